// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/nodes.hpp - forward and backward of one node for one sample, by the threads of a block
//
// An element of the result is one thread's; only where a layer has far fewer outputs than the block has threads do
// several threads share a sum. What a thread adds up, it adds up in a fixed order.
#pragma once

#include <cstddef>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/functions.hpp>
#include <pergrad/cuda/kernels/pointwise.hpp>
#include <pergrad/cuda/kernels/random.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/cuda/kernels/team.hpp>

namespace pergrad::inline v0_1::on_device {

/// Which of the blocks of a sample a block is, where a layer is in parts.
struct block_part {
  std::ptrdiff_t part = 0;
  std::ptrdiff_t parts = 1;
};

/// A block at work on one sample. `HasProducts`: whether it forms those of affine layers.
template <class Block, class Scalar, class Functions, int Threads, bool HasProducts>
struct node_worker {
  const Block& block;
  const table_view<Scalar>& tables;
  sample_values<Scalar> values;
  const Scalar* parameters;
  Scalar (&scratch)[static_cast<std::size_t>(Threads)];              ///< shared by the block
  double (&partial)[static_cast<std::size_t>(Threads / warp_size)];  ///< as well
  layer_bits bits;                                                   ///< of the sample
  block_part which{};
  Scalar* held = nullptr;  ///< shared: room for a matrix that a layer reads at every position
  int held_room = 0;

  /// Sets a node's output, or its gradient, to zero behind the sample's length: values as soon as they are written,
  /// gradients before they are read.
  PERGRAD_HD void trim(const op_row& row, int place) const {
    pointwise().trim(row, place, range_of_part(which, row.out_size));
  }

  PERGRAD_HD void forward(const op_row& row) const {
    if (row.out_size == 0) return;
    switch (row.kind) {
      case node_kind::affine: {
        const Scalar* bias = row.bias < 0 ? nullptr : parameters + row.bias;
        const Scalar* x = values.at(row.in);
        Scalar* y = values.to(row.out);
        if constexpr (HasProducts) {
          row.adjoint != 0 ? through_adjoint(row, x, y, bias, false) : through_view(row, x, y, bias, false);
        }
        return;
      }
      case node_kind::general:
      case node_kind::tiled:
        return Functions::visit(row.function, [&]<class Function>() { function_forward<Function>(row); });
      default:
        return pointwise().template forward<Functions>(row);
    }
  }

  /// The input's gradients from the output's, of a layer whose factors are there before.
  PERGRAD_HD void backward(const op_row& row) const {
    if (row.out_size == 0) return;
    if (row.kind != node_kind::affine) return pointwise().template backward<Functions>(row);
    if (row.input_gradient == 0) return;
    const Scalar* dy = values.at(row.dy);
    Scalar* dx = values.to(row.dx);
    const bool onto = row.accumulate != 0;
    if constexpr (HasProducts) {
      row.adjoint != 0 ? through_view(row, dy, dx, nullptr, onto) : through_adjoint(row, dy, dx, nullptr, onto);
    }
  }
  /// The same of general and tiled layers, which leave in their saved values what their factors read. Not one function
  /// with the others: called from two places it would not be inlined, and the worker would lie in local memory.
  PERGRAD_HD void backward_to_factors(const op_row& row) const {
    if (row.out_size == 0) return;
    Functions::visit(row.function, [&]<class Function>() {
      if constexpr (leaves_factors<Function>) function_backward<Function>(row);
    });
  }

  /// Adds what a layer has written in the place of gradients to them.
  PERGRAD_HD void add_written(const op_row& row) const {
    const auto add = [&](int to, int from, int count) {
      const part_range own = range_of_part(which, count);
      const Scalar* more = values.at(from) + own.first;
      Scalar* sums = values.to(to) + own.first;
      for_each(static_cast<int>(own.count), [&](int i) { sums[i] += more[i]; });
    };
    if (row.accumulate != 0 && (row.projected_inputs & 1) == 0) add(row.dx, row.written_dx, row.in_size);
    if (row.accumulate2 != 0 && (row.projected_inputs & 2) == 0) add(row.dx2, row.written_dx2, row.in2_size);
  }

 private:
  template <class Function>
  static constexpr bool leaves_factors = detail::is_tiled<Function> ||
                                         (!detail::has_value<Function> && detail::has_general_backward<Function>);

  template <class Function>
  PERGRAD_HD void for_each(int count, Function&& f) const {
    on_device::for_each(block, count, f);
  }

  /// Threads that share one sum, a power of two, where there are `count` sums of `terms` terms.
  [[nodiscard]] PERGRAD_HD static constexpr int sharing(int count, int terms) noexcept {
    int parts = 1;
    while (parts < warp_size && 2 * parts * count <= Threads && 8 * parts <= terms) parts *= 2;
    return parts;
  }

  /// y[i] = bias + sum over the taps and channels of the position, channel after channel. `onto`: in the place of the
  /// bias, what is there.
  PERGRAD_HD void through_view(const op_row& row, const Scalar* x, Scalar* y, const Scalar* bias, bool onto) const {
    const affine_view& view = row.view;
    const Scalar* weights = parameters + row.parameters;
    const int positions = view.positions();
    const int channels = view.groups * view.outputs;
    const int count = channels * positions;
    const int width = view.view_width();
    const bool inner = view.y_output == 1;  // neighbours in memory are neighbours in the block
    if (view.pixels() == 1 || view.taps() == 1) {
      // One tap a channel: threads may share the channels.
      const int parts = sharing(count, view.channels);
      const auto sum_of = [&](int i, int part) {
        const int channel = inner ? i % channels : i / positions;
        const int position = inner ? i / channels : i % positions;
        const int group = channel / view.outputs;
        int tap = -1;
        int offset = 0;
        for_each_tap(view, position, [&](int k, int pixel) {
          tap = k;
          offset = pixel;
        });
        Scalar sum = 0;
        if (tap < 0) return sum;
        const Scalar* from = x + group * view.x_group + offset;
        const Scalar* weight = weights + channel * width + tap;
        for (int c = part; c < view.channels; c += parts) {
          sum = fma(weight[c * view.taps()], from[c * view.x_channel], sum);
        }
        return sum;
      };
      const auto place = [&](int i) {
        const int channel = inner ? i % channels : i / positions;
        const int position = inner ? i / channels : i % positions;
        return channel * view.y_output + position_in_y(view, position);
      };
      const auto start_of = [&](int i) {
        if (onto) return y[place(i)];
        return bias == nullptr ? Scalar{0} : bias[inner ? i % channels : i / positions];
      };
      block.each([&](int t) {
        for (int k = t; k < count * parts; k += Threads) {  // at most one for a thread that shares
          const int i = parts == 1 ? k : k / parts;
          const Scalar sum = sum_of(i, k - i * parts);
          if (parts == 1) {
            y[place(i)] = sum + start_of(i);
          } else {
            scratch[k] = sum;
          }
        }
      });
      if (parts == 1) return;
      block.each([&](int t) {
        if (t >= count) return;
        Scalar sum = start_of(t);
        PERGRAD_ROLLED
        for (int part = 0; part < parts; ++part) sum += scratch[t * parts + part];
        y[place(t)] = sum;
      });
      return;
    }
    for_each(count, [&](int i) {
      const int channel = inner ? i % channels : i / positions;
      const int position = inner ? i / channels : i % positions;
      const int group = channel / view.outputs;
      const Scalar* from = x + group * view.x_group;
      const Scalar* weight = weights + channel * width;
      Scalar& to = y[channel * view.y_output + position_in_y(view, position)];
      Scalar sum = onto ? to : bias == nullptr ? Scalar{0} : bias[channel];
      for (int c = 0; c < view.channels; ++c) {
        for_each_tap(view, position, [&](int tap, int pixel) { sum = fma(weight[tap], from[pixel], sum); });
        from += view.x_channel;
        weight += view.taps();
      }
      to = sum;
    });
  }

  /// x[i] = bias + sum over the positions that see input i, and over their outputs. `onto`: added to what is there.
  PERGRAD_HD void through_adjoint(const op_row& row, const Scalar* y, Scalar* x, const Scalar* bias, bool onto) const {
    const affine_view& view = row.view;
    const Scalar* weights = parameters + row.parameters;
    const int pixels = view.pixels();
    const int channels = view.groups * view.channels;
    const int width = view.view_width();
    const int taps = view.taps();
    const bool inner = view.x_channel == 1;
    for_each(channels * pixels, [&](int i) {
      const int channel = inner ? i % channels : i / pixels;
      const int pixel = inner ? i / channels : i % pixels;
      const int group = channel / view.channels;
      const auto [pd, ph, pw] = index_in(view.in, pixel);
      const Scalar* weight = weights + group * view.outputs * width + channel % view.channels * taps;
      const Scalar* from = y + group * view.y_group;
      Scalar sum = 0;
      for (int kd = 0; kd < view.kernel[0]; ++kd) {
        const int od = position_seeing(view, 0, pd, kd);
        if (od < 0) continue;
        for (int kh = 0; kh < view.kernel[1]; ++kh) {
          const int oh = position_seeing(view, 1, ph, kh);
          if (oh < 0) continue;
          PERGRAD_ROLLED
          for (int kw = 0; kw < view.kernel[2]; ++kw) {
            const int ow = position_seeing(view, 2, pw, kw);
            if (ow < 0) continue;
            const Scalar* delta = from + od * view.y_step[0] + oh * view.y_step[1] + ow * view.y_step[2];
            const Scalar* here = weight + (kd * view.kernel[1] + kh) * view.kernel[2] + kw;
            for (int n = 0; n < view.outputs; ++n) sum = fma(here[n * width], delta[n * view.y_output], sum);
          }
        }
      }
      Scalar& to = x[channel * view.x_channel + pd * view.x_step[0] + ph * view.x_step[1] + pw * view.x_step[2]];
      if (bias != nullptr) sum += bias[channel];
      to = onto ? to + sum : sum;
    });
  }
  /// The position whose tap k is input i, or -1.
  [[nodiscard]] PERGRAD_HD static int position_seeing(const affine_view& view, int axis, int i, int k) noexcept {
    const int distance = i + view.padding[axis] - k * view.dilation[axis];
    if (distance < 0 || distance % view.stride[axis] != 0) return -1;
    const int o = distance / view.stride[axis];
    return o < view.out[axis] ? o : -1;
  }

  template <class Function>
  PERGRAD_HD void function_forward(const op_row& row) const {
    if constexpr (detail::is_tiled<Function>) {
      device_code_of<Function>::forward(team_of(row, false));
    } else if constexpr (!detail::has_value<Function> && detail::has_general_forward<Function>) {
      block.once([&] {
        const view<const Scalar> weights{parameters + row.parameters, static_cast<std::size_t>(row.weights)};
        const view<const Scalar> from{values.at(row.in), static_cast<std::size_t>(row.in_size)};
        const view<Scalar> to{values.to(row.out), static_cast<std::size_t>(row.out_size)};
        const view<Scalar> saved{values.to(row.saved), static_cast<std::size_t>(row.saved_size)};
        if constexpr (detail::has_saving_forward<Function>) {
          device_code_of<Function>::forward(row.in_shape, weights, from, to, saved);
        } else {
          device_code_of<Function>::forward(row.in_shape, weights, from, to);
        }
      });
    }
  }
  template <class Function>
  PERGRAD_HD void function_backward(const op_row& row) const {
    if constexpr (detail::is_tiled<Function>) {
      device_code_of<Function>::backward(team_of(row, true));
    } else {
      block.once([&] {
        const view<const Scalar> weights{parameters + row.parameters, static_cast<std::size_t>(row.weights)};
        const view<const Scalar> from{values.at(row.in), static_cast<std::size_t>(row.in_size)};
        const view<const Scalar> backprop{values.at(row.dy), static_cast<std::size_t>(row.out_size)};
        const view<Scalar> to{values.to(row.written_dx), static_cast<std::size_t>(row.in_size)};
        const view<Scalar> saved{values.to(row.saved), static_cast<std::size_t>(row.saved_size)};
        if constexpr (detail::has_saving_backward<Function>) {
          device_code_of<Function>::backward(row.in_shape, weights, from, backprop, to, saved);
        } else {
          device_code_of<Function>::backward(row.in_shape, weights, from, backprop, to);
        }
      });
    }
  }

  [[nodiscard]] PERGRAD_HD pointwise_worker<Block, Scalar> pointwise() const noexcept {
    return {block, values, tables.scalars};
  }

  /// The block as the team of a layer on tiles.
  [[nodiscard]] PERGRAD_HD block_team<Block, Scalar> team_of(const op_row& row, bool backward) const {
    block_team<Block, Scalar> team{{block, partial, scratch}};
    team.in = row.in_shape;
    team.in2 = row.in2_shape;
    team.out = row.out_shape;
    team.x = {values.at(row.in)};
    team.x2 = {values.at(row.in2)};
    team.y = {values.to(row.out)};
    team.saved = {values.to(row.saved)};
    team.scratch = {values.to(backward ? row.back_scratch : row.scratch)};
    if (backward) {
      team.dy = {values.at(row.dy)};
      team.dx = {values.to(row.written_dx)};
      team.dx2 = {values.to(row.written_dx2)};
      team.wants_factors = row.wants_factors != 0;
      team.wants_dx = row.input_gradient != 0;
      team.wants_dx2 = row.input2_gradient != 0;
    }
    team.part = which.part;
    team.parts = which.parts;
    team.projected = row.projected != 0;
    team.parameters = parameters + row.parameters;
    if (row.held_rows > 0 && row.held_size() <= held_room) {
      const Scalar* from = team.parameters + row.held;
      for_each(row.held_rows * row.held_columns,
               [&](int i) { held[i / row.held_columns * row.held_step() + i % row.held_columns] = from[i]; });
      team.held = held;
      team.held_at = row.held;
      team.held_step = row.held_step();
    }
    team.own_lengths[0] =
        static_cast<std::uint32_t>(values.positions(row.in_lengths, static_cast<int>(row.in_shape.e0)));
    team.own_lengths[1] =
        static_cast<std::uint32_t>(values.positions(row.in2_lengths, static_cast<int>(row.in2_shape.e0)));
    team.bits = bits;
    team.layer_number = static_cast<std::uint32_t>(row.node);
    team.varies = row.in_lengths >= 0;
    team.varies2 = row.in2_lengths >= 0;
    return team;
  }
};

}  // namespace pergrad::inline v0_1::on_device
