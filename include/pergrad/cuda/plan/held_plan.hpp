// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/held_plan.hpp - which networks' samples a block holds in shared memory, and the tables of their
// products (layers/held_samples.hpp)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/cuda/kernels/gemm_affine.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// Shared memory of a block: what all GPUs since compute capability 8.0 have, if that is enough, or so much that a
/// multiprocessor of compute capability 9.0 has room for two.
inline constexpr std::size_t usual_held_bytes = std::size_t{99} << 10U;
inline constexpr std::size_t most_held_bytes = std::size_t{112} << 10U;
/// Weights that a block reads on its way, and all blocks of a launch: a multiprocessor takes 64 bytes a clock from the
/// device's cache, and all of an H200's several terabytes a second. Estimates, not measured.
inline constexpr std::size_t most_streamed_bytes = std::size_t{1} << 20U;
inline constexpr std::size_t most_streamed_bytes_of_launch = std::size_t{1} << 26U;

/// Is a node's product one of a whole matrix and all of its input, as a fully connected layer's, whose weights pass by?
/// Those of all others are held.
[[nodiscard]] constexpr bool is_streamed(const op_row& row) {
  return row.adjoint == 0 && row.view.groups == 1 && geometry{row.view}.contiguous != 0;
}

/// Describes products one after the other. Without integers it only counts, in a constant expression.
class held_products {
 public:
  /// `first`: of the tables among a network's integers; `tile`: numbers that a tile of weights has room for.
  constexpr explicit held_products(int first, int scalar_bytes, int tile, int* integers = nullptr) noexcept
      : place_{first}, scalar_bytes_{scalar_bytes}, tile_{tile}, integers_{integers} {}

  [[nodiscard]] constexpr int end() const noexcept { return place_; }
  [[nodiscard]] constexpr int weights() const noexcept { return weights_; }
  [[nodiscard]] constexpr int copies() const noexcept { return copies_; }
  /// Of weights that pass by, and whether each tile has room for some.
  [[nodiscard]] constexpr int streamed() const noexcept { return streamed_; }
  [[nodiscard]] constexpr bool fit() const noexcept { return fit_; }

  /// A node's product forward, and that back.
  constexpr held_product describe(const op_row& row, bool back) {
    held_product of;
    if (row.kind != node_kind::affine || row.out_size == 0 || (back && row.input_gradient == 0)) return of;
    const affine_view& view = row.view;
    of.back = back != (row.adjoint != 0) ? 1 : 0;
    of.groups = view.groups;
    of.all_outputs = view.groups * view.outputs;
    of.width = divisor{view.view_width()};
    of.weights = row.parameters;
    of.rows = of.back != 0 ? view.channels : view.outputs;
    if (is_streamed(row)) {
      describe_tiles(of, view);
      return of;
    }
    of.held_step = held_product::padded(view.view_width());
    if (back) {
      of.held = held_of_node_;
    } else {
      of.held = held_of_node_ = weights_;
      weights_ += of.all_outputs * of.held_step;
    }
    of.weight_group = view.outputs * of.held_step;
    of.back != 0 ? describe_adjoint(of, view) : describe_forward(of, view);
    return of;
  }

 private:
  using steps_type = int[axes];

  [[nodiscard]] constexpr int place(int count) noexcept {
    const int at = place_;
    place_ += (count + 3) / 4 * 4 + 4;  // four are read before it is known that they are needed
    return at;
  }
  constexpr void put(int at, int value) const noexcept {
    if (integers_ != nullptr) integers_[at] = value;
  }
  constexpr void describe_tiles(held_product& of, const affine_view& view) {
    constexpr int least_depth = 16;
    constexpr int least_rows = 64;
    if (of.back != 0) of.rows = view.view_width();
    streamed_ += view.size();
    const int several = 16 / scalar_bytes_;
    of.together = of.weights % several == 0 && view.view_width() % several == 0 ? several : 1;
    // Rows of a tile that is so deep lie so far apart that they are in other banks.
    const auto depth_for = [&](int rows) { return of.back != 0 ? tile_ / rows : (tile_ / rows - 4) / 4 * 4; };
    of.rows_of_tile = smaller_of(of.rows, held_product::threads);
    while (of.rows_of_tile > least_rows && depth_for(of.rows_of_tile) < smaller_of(least_depth, of.depth())) {
      of.rows_of_tile /= 2;
    }
    if (of.back != 0 && of.rows_of_tile % of.together != 0) of.together = 1;
    of.depth_of_tile = smaller_of(depth_for(of.rows_of_tile) / 4 * 4, (of.depth() + 3) / 4 * 4);
    if (of.depth_of_tile < 4) {
      fit_ = false;
      of.depth_of_tile = 4;
    }
    of.step_of_tile = of.back != 0 ? of.rows_of_tile : held_product::padded(of.depth_of_tile);
    of.pieces = divisor{(of.back != 0 ? of.rows_of_tile : of.depth_of_tile) / of.together};
  }
  /// The operand's copy: along an axis from `before` places before its first one, `size` in all. Gives the steps of
  /// pixels in it, and those of channels.
  constexpr int copy(held_product& of, const int (&image)[axes], const steps_type& image_step, const steps_type& before,
                     const steps_type& size, int channels, int channel_step, steps_type& step) {
    // No block has room for more, and then nothing of this is used.
    constexpr std::int64_t most = std::int64_t{1} << 20U;
    const auto counted = [](std::int64_t count) { return static_cast<int>(count < most ? count : most); };
    const int volume = counted(std::int64_t{size[0]} * size[1] * size[2]);
    of.copies = 1;
    of.copy = divisor{volume};
    of.channels = of.groups * channels;
    of.channel_step = channel_step;
    of.sources = place(volume);
    of.operand_group = counted(std::int64_t{channels} * volume);
    copies_ = larger_of(copies_, (counted(std::int64_t{of.channels} * volume) + 3) / 4 * 4);
    step[2] = 1;
    step[1] = size[2];
    step[0] = size[2] * size[1];
    for (int i = 0; integers_ != nullptr && i < volume; ++i) {
      const box_index at = index_in(size, i);
      const int pixel[axes] = {at.d - before[0], at.h - before[1], at.w - before[2]};
      int from = 0;
      for (int axis = 0; axis < axes; ++axis) {
        if (pixel[axis] < 0 || pixel[axis] >= image[axis]) from = -1;
        if (from >= 0) from += pixel[axis] * image_step[axis];
      }
      put(of.sources + i, from);
    }
    return volume;
  }

  constexpr void describe_forward(held_product& of, const affine_view& view) {
    steps_type step{};
    std::copy_n(view.x_step, axes, step);
    int channel_step = view.x_channel;
    of.operand_group = view.x_group;
    if (view.padding[0] + view.padding[1] + view.padding[2] > 0) {
      steps_type size{};
      for (int axis = 0; axis < axes; ++axis) {
        size[axis] = (view.out[axis] - 1) * view.stride[axis] + (view.kernel[axis] - 1) * view.dilation[axis] + 1;
      }
      channel_step = copy(of, view.in, view.x_step, view.padding, size, view.channels, view.x_channel, step);
    }
    of.class_count = 1;
    of.classes[0] = {.columns = view.positions(), .depth = view.view_width()};
    of.weight_step = of.held_step;
    of.steps = place(view.view_width());
    of.bases = place(view.positions());
    of.results = place(view.positions());
    of.result_group = view.y_group;
    of.result_step = view.y_output;
    if (integers_ == nullptr) return;
    for (int k = 0; k < view.view_width(); ++k) {
      const box_index tap = index_in(view.kernel, k % view.taps());
      put(of.steps + k, scalar_bytes_ * (k / view.taps() * channel_step + tap.d * view.dilation[0] * step[0] +
                                         tap.h * view.dilation[1] * step[1] + tap.w * view.dilation[2] * step[2]));
    }
    for (int t = 0; t < view.positions(); ++t) {
      const box_index at = index_in(view.out, t);
      put(of.bases + t,
          at.d * view.stride[0] * step[0] + at.h * view.stride[1] * step[1] + at.w * view.stride[2] * step[2]);
      put(of.results + t, position_in_y(view, t));
    }
  }

  constexpr void describe_adjoint(held_product& of, const affine_view& view) {
    steps_type step{};
    steps_type before{};
    steps_type size{};
    bool is_inside = true;
    for (int axis = 0; axis < axes; ++axis) {
      step[axis] = view.y_step[axis];
      before[axis] = (view.kernel[axis] - 1) * view.dilation[axis] / view.stride[axis];
      const int last = (view.in[axis] - 1 + view.padding[axis]) / view.stride[axis];
      size[axis] = before[axis] + last + 1;
      is_inside = is_inside && before[axis] == 0 && last < view.out[axis];
    }
    int channel_step = view.y_output;
    of.operand_group = view.y_group;
    if (!is_inside) {
      channel_step = copy(of, view.out, view.y_step, before, size, view.outputs, view.y_output, step);
    }
    of.weight_step = view.taps();
    of.class_count = stride_class::count(view);
    int columns = 0;
    int steps = 0;
    stride_class kinds[held_product::most_classes];
    for (int c = 0; c < of.class_count; ++c) {
      const stride_class& kind = kinds[c] = stride_class{view, c};
      held_product::pixel_class& to = of.classes[c];
      to = {.first_column = columns,
            .columns = kind.pixels[0] * kind.pixels[1] * kind.pixels[2],
            .first_step = steps,
            .depth = view.outputs * kind.tap_count};
      columns += to.columns;
      steps += (to.depth + 3) / 4 * 4;
    }
    of.steps = place(steps);
    of.weight_steps = place(steps);
    of.bases = place(columns);
    of.results = place(columns);
    of.result_group = view.x_group;
    of.result_step = view.x_channel;
    for (int c = 0; integers_ != nullptr && c < of.class_count; ++c) {
      const stride_class& kind = kinds[c];
      const held_product::pixel_class& to = of.classes[c];
      for (int k = 0; k < to.depth; ++k) {
        int output = k;
        int tap[axes];
        kind.tap_of(output, tap);
        int at = output * channel_step;
        for (int axis = 0; axis < axes; ++axis) {
          at -= tap[axis] * view.dilation[axis] / view.stride[axis] * step[axis];
        }
        put(of.steps + to.first_step + k, scalar_bytes_ * at);
        put(of.weight_steps + to.first_step + k,
            scalar_bytes_ * (output * of.held_step + (tap[0] * view.kernel[1] + tap[1]) * view.kernel[2] + tap[2]));
      }
      for (int i = 0; i < to.columns; ++i) {
        const box_index number = index_in(kind.pixels, i);
        const int of_class[axes] = {number.d, number.h, number.w};
        int base = 0;
        int pixel = 0;
        for (int axis = 0; axis < axes; ++axis) {
          base += (kind.whole[axis] + of_class[axis] + (is_inside ? 0 : before[axis])) * step[axis];
          pixel += (kind.pixel[axis] + of_class[axis] * view.stride[axis]) * view.x_step[axis];
        }
        put(of.bases + to.first_column + i, base);
        put(of.results + to.first_column + i, pixel);
      }
    }
  }

  int place_;
  int scalar_bytes_;
  int tile_;
  int* integers_;
  int streamed_ = 0;
  bool fit_ = true;
  int weights_ = 0;
  int copies_ = 0;
  int held_of_node_ = -1;
};

/// Are there weights to hold among the nodes'?
[[nodiscard]] constexpr bool holds_weights(std::span<const op_row> ops) {
  return std::ranges::any_of(
      ops, [](const op_row& row) { return row.kind == node_kind::affine && row.out_size > 0 && !is_streamed(row); });
}
/// Can a block hold a sample of a network of these nodes, all of whose parameters are affine nodes'?
[[nodiscard]] constexpr bool may_be_held(std::span<const op_row> ops) {
  return std::ranges::all_of(ops, [](const op_row& row) {
    if (row.out_lengths >= 0 || row.in_lengths >= 0) return false;
    if (row.out_size == 0) return true;
    const bool goes_back = row.input_gradient != 0 || row.adjoint != 0;
    return row.kind != node_kind::general && row.kind != node_kind::tiled &&
           !(row.kind == node_kind::affine && goes_back && stride_class::count(row.view) > held_product::most_classes);
  });
}
/// Shared memory of a block for it.
[[nodiscard]] constexpr std::size_t held_bytes(const network_sizes& net, std::size_t input_size,
                                               std::size_t scalar_bytes) noexcept {
  constexpr auto rounded = [](std::size_t count) { return (count + 3) / 4 * 4; };
  constexpr std::size_t others = 4;
  const std::size_t of_sample = rounded(static_cast<std::size_t>(net.workspace)) + rounded(input_size);
  return (static_cast<std::size_t>(net.held_together) * of_sample +
          static_cast<std::size_t>(net.held_weights + net.held_copies) + others) *
         scalar_bytes;
}
/// Says what a network needs for it, if a block has room. Where there are no convolutions a block takes four samples,
/// which read weights once.
constexpr void hold_samples(network_sizes& net, std::span<const op_row> ops, int input_size, std::size_t scalar_bytes) {
  constexpr int largest_tile = 8192;
  std::int64_t weights = 0;  // what is counted below fits an int then
  for (const op_row& row : ops) weights += row.kind == node_kind::affine ? row.view.size() : 0;
  const std::int64_t values = std::int64_t{net.workspace} + input_size;
  const auto scalars_of = [&](std::size_t bytes) { return static_cast<std::int64_t>(bytes / scalar_bytes); };
  if (values > scalars_of(most_held_bytes) || weights > scalars_of(most_held_bytes + most_streamed_bytes)) return;
  network_sizes held = net;
  held.held_integers = (net.integers + 3) / 4 * 4;
  held.held_together = holds_weights(ops) ? 1 : 4;
  held.held_products = 2 * static_cast<int>(ops.size());
  const auto describe_all = [&](int tile) {
    held_products products{held.held_integers, static_cast<int>(scalar_bytes), tile};
    for (const op_row& row : ops) {
      static_cast<void>(products.describe(row, false));
      static_cast<void>(products.describe(row, true));
    }
    held.integers = products.end();
    held.held_weights = products.weights();
    held.held_streamed = products.streamed();
    held.held_copies = larger_of(products.copies(), 3 * tile);
    return products.fit();
  };
  static_cast<void>(describe_all(0));
  const int copies = held.held_copies;
  held.held_copies = 0;
  const std::size_t others = held_bytes(held, static_cast<std::size_t>(input_size), scalar_bytes);
  const bool streams = held.held_streamed > 0;
  const auto has_room = [&](std::size_t bytes, int least_tile) {
    if (others >= bytes) return false;
    const auto room = static_cast<int>((bytes - others) / scalar_bytes);
    held.held_tile = streams ? smaller_of(largest_tile, room / 3 / 4 * 4) : 0;
    return copies <= room && (!streams || held.held_tile >= least_tile) && describe_all(held.held_tile);
  };
  constexpr int large_tile = 4096;
  if (!has_room(usual_held_bytes, large_tile) && !has_room(most_held_bytes, 0)) return;
  if (static_cast<std::size_t>(held.held_streamed) * scalar_bytes <= most_streamed_bytes) net = held;
}

}  // namespace pergrad::inline v0_1::on_device
