// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/build.hpp - from the types of a network to its tables
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <pergrad/concepts.hpp>
#include <pergrad/cuda/kernels/functions.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/cuda/plan/plan.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/graph.hpp>

namespace pergrad::inline v0_1::on_device {

/// Places values of different lifetimes into one stretch: each at the first gap where nothing lives that it would
/// overlap.
template <std::size_t Most>
class packer {
 public:
  /// Where `size` elements that live from time `birth` to time `death` lie.
  constexpr int place(int size, int birth, int death) {
    const int rounded = (size + line - 1) / line * line;
    int at = 0;
    std::size_t before = 0;
    for (std::size_t k = 0; k < count_; ++k) {
      const item& other = items_[k];
      if (other.birth > death || other.death < birth || other.at + other.size <= at) continue;
      if (other.at >= at + rounded) break;  // items are in order of their places
      at = other.at + other.size;
    }
    while (before < count_ && items_[before].at <= at) ++before;
    for (std::size_t k = count_; k > before; --k) items_[k] = items_[k - 1];
    items_[before] = {at, rounded, birth, death};
    ++count_;
    size_ = std::max(size_, at + rounded);
    return at;
  }
  [[nodiscard]] constexpr int size() const { return size_; }

 private:
  static constexpr int line = 8;
  struct item {
    int at = 0, size = 0, birth = 0, death = 0;
  };
  std::array<item, Most> items_{};
  std::size_t count_ = 0;
  int size_ = 0;
};

template <class Program>
struct build_tables {
  using structure = typename Program::structure;
  using tables = typename Program::tables;
  static constexpr std::size_t size = structure::size;
  template <std::size_t Index>
  using layer_at = typename structure::template layer_at<Index>;
  static constexpr shape shape_of(std::size_t node) { return structure::shapes[structure::inputs[node]]; }

  static constexpr tables make() {
    tables t;
    facts f;
    detail::for_each_index<size>([&](auto index_constant) {
      constexpr std::size_t i = index_constant;
      using layer = layer_at<i>;
      describe_node<layer, i>(t, f);
    });
    connect(t, f);
    place_values(t, f);
    detail::for_each_index<size>([&](auto index_constant) {
      constexpr std::size_t i = index_constant;
      list_leaves<layer_at<i>, i>(t);
    });
    return t;
  }

 private:
  struct facts {
    std::array<std::size_t, size + 1> root{};  ///< the slot whose memory a slot shares
    std::array<bool, size> reshapes{};
    std::array<bool, size> reads_x{};  ///< in backward, for its derivative or its factors
    std::array<bool, size> factors_read_x{};
    std::array<bool, size> reads_y{};
    std::array<bool, size> factors_read_y{};
  };

  static constexpr void to_axes(extent from, int (&to)[axes]) {
    to[0] = static_cast<int>(from.depth);
    to[1] = static_cast<int>(from.height);
    to[2] = static_cast<int>(from.width);
  }
  /// Steps of the pixels of an image, its channels outside (PyTorch's images) or inside (positions of features).
  static constexpr void lay_out(const int (&image)[axes], int channels, bool channels_first, int (&step)[axes],
                                int& channel) {
    const int inner = channels_first ? 1 : channels;
    step[2] = inner;
    step[1] = inner * image[2];
    step[0] = inner * image[2] * image[1];
    channel = channels_first ? image[0] * image[1] * image[2] : 1;
  }
  static constexpr affine_view view_of(const affine_map& map, bool channels_first) {
    affine_view v;
    v.groups = static_cast<int>(map.groups);
    v.channels = static_cast<int>(map.in_channels / map.groups);
    v.outputs = static_cast<int>(map.group_outputs());
    to_axes(map.kernel, v.kernel);
    to_axes(map.stride, v.stride);
    to_axes(map.padding, v.padding);
    to_axes(map.dilation, v.dilation);
    to_axes(map.in_size, v.in);
    to_axes(map.out_size, v.out);
    lay_out(v.in, static_cast<int>(map.in_channels), channels_first, v.x_step, v.x_channel);
    lay_out(v.out, static_cast<int>(map.out_channels), channels_first, v.y_step, v.y_output);
    v.x_group = v.channels * v.x_channel;
    v.y_group = v.outputs * v.y_output;
    return v;
  }

  template <class Layer, std::size_t Index>
  static constexpr void describe_node(tables& t, facts& f) {
    op_row& row = t.ops[Index];
    const shape in = shape_of(Index);
    row.node = static_cast<int>(Index);
    row.in_size = static_cast<int>(in.size());
    row.out_size = static_cast<int>(structure::shapes[Index + 1].size());
    row.parameters = static_cast<int>(structure::parameter_offsets[Index]);
    row.weights = static_cast<int>(structure::parameter_counts[Index]);
    row.function = Program::functions::template index_of<typename function_of<Layer>::type>;
    if constexpr (detail::has_affine<Layer>) {
      constexpr bool channels_first = requires { requires Layer::channels_first; };
      const affine_map map = Layer::affine(in);
      row.kind = op_kind::affine;
      row.view = view_of(map, channels_first);
      if (map.bias) row.bias = row.parameters + row.view.size();
      f.factors_read_x[Index] = structure::trained_counts[Index] > 0;
    } else if constexpr (detail::is_branch_sum<Layer>) {
      row.kind = op_kind::branch_sum;
    } else if constexpr (detail::is_reshape<Layer>) {
      f.reshapes[Index] = true;
    } else if constexpr (detail::has_value<Layer>) {
      row.kind = op_kind::elementwise;
      f.reads_y[Index] = true;
      f.reads_x[Index] = !requires { requires Layer::derivative_from_output; };
    } else if constexpr (detail::has_windows<Layer>) {
      row.kind = op_kind::pooling;
      f.reads_x[Index] = true;
      f.reads_y[Index] = true;
      describe_pool<Layer>(t, row, in, structure::shapes[Index + 1]);
    } else {
      row.kind = op_kind::general;
      row.in_shape = in;
      row.saved_size = static_cast<int>(detail::saved_count_of<Layer>(in, shape{}));
      f.reads_x[Index] = true;
      if constexpr (detail::has_factors<Layer>) {
        for (const factor& each : detail::factors_of<Layer>(in, shape{})) {
          f.factors_read_x[Index] =
              f.factors_read_x[Index] || each.delta.from == source::activation || each.other.from == source::activation;
          f.factors_read_y[Index] =
              f.factors_read_y[Index] || each.delta.from == source::output || each.other.from == source::output;
        }
      }
    }
  }
  template <class Layer>
  static constexpr void describe_pool(tables& t, op_row& row, shape in, shape out) {
    const auto place = [&](int count) {
      const int at = t.integers;
      t.integers += count;
      return at;
    };
    int in_axes[axes] = {};
    int out_axes[axes] = {};
    to_axes(detail::image_size(in), in_axes);
    to_axes(detail::image_size(out), out_axes);
    row.channels = static_cast<int>(in.e0);
    for (int axis = 0; axis < axes; ++axis) {
      window_axis& windows = row.windows[axis];
      windows.in = in_axes[axis];
      windows.out = out_axes[axis];
      windows.first = place(windows.out);
      windows.last = place(windows.out);
      windows.seen_first = place(windows.in);
      windows.seen_last = place(windows.in);
    }
    row.divisors = t.scalars;
    t.scalars += out_axes[0] * out_axes[1] * out_axes[2];
  }

  /// Which gradients exist, and who writes them first.
  static constexpr void connect(tables& t, facts& f) {
    std::array<bool, size + 1> trained{};
    for (std::size_t i = 0; i < size; ++i) {
      op_row& row = t.ops[i];
      const bool second = row.kind == op_kind::branch_sum;
      row.input_gradient = trained[structure::inputs[i]] ? 1 : 0;
      row.input2_gradient = second && trained[structure::inputs2[i]] ? 1 : 0;
      row.backward = row.input_gradient != 0 || row.input2_gradient != 0 || structure::trained_counts[i] > 0 ? 1 : 0;
      trained[i + 1] = row.backward != 0;
      f.root[i + 1] = f.reshapes[i] ? f.root[structure::inputs[i]] : i + 1;
    }
    for (std::size_t i = 0; i < size; ++i) t.ops[i].handed_on = f.root[i + 1] != f.root[size] ? 1 : 0;
    std::array<bool, size + 1> written{};
    written[f.root[size]] = true;
    for (std::size_t i = size; i-- > 0;) {
      op_row& row = t.ops[i];
      if (row.backward == 0 || f.reshapes[i]) continue;
      const auto claim = [&](std::size_t slot, int wanted) {
        const bool before = written[f.root[slot]];
        written[f.root[slot]] = before || wanted != 0;
        return before ? 1 : 0;
      };
      row.accumulate = claim(structure::inputs[i], row.input_gradient);
      if (row.kind == op_kind::branch_sum) row.accumulate2 = claim(structure::inputs2[i], row.input2_gradient);
    }
  }

  static constexpr void place_values(tables& t, const facts& f) {
    constexpr int n = static_cast<int>(size);
    constexpr int end = 2 * n + 1;
    std::array<int, size + 1> value_death{};
    std::array<int, size + 1> gradient_birth{};
    std::array<int, size + 1> gradient_death{};
    for (int& each : gradient_birth) each = end;
    for (std::size_t i = 0; i < size; ++i) {
      const op_row& row = t.ops[i];
      const int forward = row.node;
      const int backward = 2 * n - row.node;
      const auto live = [&](std::size_t slot, int until) {
        value_death[f.root[slot]] = std::max(value_death[f.root[slot]], until);
      };
      const auto gradient = [&](std::size_t slot, bool exists) {
        if (exists) gradient_birth[f.root[slot]] = std::min(gradient_birth[f.root[slot]], backward);
      };
      const bool derives = row.backward != 0 && row.input_gradient != 0;
      live(structure::inputs[i], f.factors_read_x[i] ? end : f.reads_x[i] && derives ? backward : forward);
      live(i + 1, f.factors_read_y[i] ? end : f.reads_y[i] && derives ? backward : forward);
      if (row.kind == op_kind::general && row.backward != 0) live(structure::inputs[i], backward);
      if (row.kind == op_kind::branch_sum) {
        live(structure::inputs2[i], forward);
        gradient(structure::inputs2[i], row.input2_gradient != 0);
      }
      gradient(structure::inputs[i], row.input_gradient != 0 || row.kind == op_kind::general);
      if (row.backward != 0 && !f.reshapes[i]) {
        int& death = gradient_death[f.root[i + 1]];
        death = std::max(death, structure::trained_counts[i] > 0 ? end : backward);
      }
    }
    value_death[f.root[size]] = end;
    gradient_birth[f.root[size]] = n;
    gradient_death[f.root[size]] = end;

    packer<4 * size + 4> workspace;
    std::array<int, size + 1> values{};
    std::array<int, size + 1> gradients{};
    std::array<int, size + 1> saved{};
    values[0] = in_input(0);
    for (std::size_t s = 1; s <= size; ++s) {
      if (f.root[s] == s) {
        values[s] = workspace.place(t.ops[s - 1].out_size, t.ops[s - 1].node, value_death[s]);
      }
      const op_row& row = t.ops[s - 1];
      if (row.saved_size > 0) saved[s - 1] = workspace.place(row.saved_size, row.node, end);
      if (row.kind == op_kind::general && row.accumulate != 0) {
        t.ops[s - 1].scratch = workspace.place(row.in_size, 2 * n - row.node, 2 * n - row.node);
      }
    }
    for (std::size_t s = size + 1; s-- > 0;) {
      if (f.root[s] != s || gradient_birth[s] == end) continue;
      const int death = std::max(gradient_birth[s], gradient_death[s]);
      const int count = s == 0 ? t.ops[0].in_size : t.ops[s - 1].out_size;
      gradients[s] = workspace.place(count, gradient_birth[s], death);
    }
    t.workspace = workspace.size();
    t.output = values[f.root[size]];
    t.output_gradient = gradients[f.root[size]];
    for (std::size_t i = 0; i < size; ++i) {
      op_row& row = t.ops[i];
      row.in = values[f.root[structure::inputs[i]]];
      row.in2 = values[f.root[structure::inputs2[i]]];
      row.out = values[f.root[i + 1]];
      row.dx = gradients[f.root[structure::inputs[i]]];
      row.dx2 = gradients[f.root[structure::inputs2[i]]];
      row.dy = gradients[f.root[i + 1]];
      row.saved = saved[i];
      if (f.reshapes[i]) row.out_size = 0;  // nothing to do
    }
  }

  template <class Layer, std::size_t Index>
  static constexpr void list_leaves(tables& t) {
    op_row& row = t.ops[Index];
    row.first_outer = row.last_outer = t.outer_count;
    row.first_elementwise = row.last_elementwise = t.elementwise_count;
    if (structure::trained_counts[Index] == 0) return;
    const int layer = t.layers++;
    if constexpr (detail::has_affine<Layer>) {
      outer_leaf weights;
      weights.view = row.view;
      weights.x = row.in;
      weights.delta = row.dy;
      weights.parameters = row.parameters;
      add(t, row, layer, weights);
      if (row.bias >= 0) {
        elementwise_leaf bias;
        bias.count = row.view.groups * row.view.outputs;
        bias.delta = row.dy;
        bias.delta_stride = row.view.y_output;
        for (int axis = 0; axis < axes; ++axis) {
          bias.out[axis] = row.view.out[axis];
          bias.delta_step[axis] = row.view.y_step[axis];
        }
        bias.parameters = row.bias;
        add(t, row, layer, bias);
      }
    } else if constexpr (detail::has_factors<Layer>) {
      int parameter = row.parameters;
      for (const factor& each : detail::factors_of<Layer>(shape_of(Index), shape{})) {
        if (each.outer) {
          outer_leaf leaf;
          leaf.view.channels = static_cast<int>(each.columns);
          leaf.view.outputs = static_cast<int>(each.rows);
          leaf.view.in[1] = leaf.view.out[1] = static_cast<int>(each.positions);
          leaf.view.x_channel = static_cast<int>(each.other.stride);
          leaf.view.x_step[1] = static_cast<int>(each.other.position_stride);
          leaf.view.y_output = static_cast<int>(each.delta.stride);
          leaf.view.y_step[1] = static_cast<int>(each.delta.position_stride);
          leaf.x = place_of(row, each.other);
          leaf.delta = place_of(row, each.delta);
          leaf.parameters = parameter;
          add(t, row, layer, leaf);
        } else {
          elementwise_leaf leaf;
          leaf.count = static_cast<int>(each.rows);
          leaf.out[1] = static_cast<int>(each.positions);
          leaf.delta = place_of(row, each.delta);
          leaf.delta_step[1] = static_cast<int>(each.delta.position_stride);
          leaf.delta_stride = static_cast<int>(each.delta.stride);
          leaf.ones = each.other.from == source::ones ? 1 : 0;
          if (leaf.ones == 0) leaf.other = place_of(row, each.other);
          leaf.other_step[1] = static_cast<int>(each.other.position_stride);
          leaf.other_stride = static_cast<int>(each.other.stride);
          leaf.parameters = parameter;
          add(t, row, layer, leaf);
        }
        parameter += static_cast<int>(each.size());
      }
    }
  }
  static constexpr int place_of(const op_row& row, const operand& from) {
    const int place = from.from == source::activation ? row.in
                      : from.from == source::output   ? row.out
                      : from.from == source::saved    ? row.saved
                                                      : row.dy;
    const int offset = static_cast<int>(from.offset);
    return place < 0 ? place - offset : place + offset;
  }
  static constexpr void add(tables& t, op_row& row, int layer, outer_leaf leaf) {
    leaf.node = row.node;
    leaf.layer = layer;
    leaf.method = cheapest_on_device(leaf.view);
    if (leaf.method == norm_method::instantiate && (Program::layered || t.kept + leaf.size() > most_kept)) {
      leaf.method = norm_method::direct;
    }
    if (leaf.method == norm_method::instantiate) {
      leaf.kept = t.kept;
      t.kept += leaf.size();
    }
    if (Program::layered) {
      leaf.squares = t.squares;
      leaf.square_count = leaf.view.groups * square_tiles_of(leaf.view);
      t.squares += leaf.square_count;
    }
    t.outer[static_cast<std::size_t>(t.outer_count++)] = leaf;
    row.last_outer = t.outer_count;
  }
  static constexpr void add(tables& t, op_row& row, int layer, elementwise_leaf leaf) {
    leaf.node = row.node;
    leaf.layer = layer;
    leaf.kept = t.kept;
    t.kept += leaf.count;
    t.elementwise[static_cast<std::size_t>(t.elementwise_count++)] = leaf;
    row.last_elementwise = t.elementwise_count;
  }
};

}  // namespace pergrad::inline v0_1::on_device
