// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/build.hpp - from a network's plan to a device's tables: how it is cut into launches, how each
// block's norm is found, where values lie
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/cuda/kernels/functions.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/plan.hpp>

namespace pergrad::inline v0_1::on_device {

/// `fused`: one block takes a sample through everything, one launch. `layered`: products of affine layers run over the
/// whole physical batch, each in a launch of its own; what lies between them goes sample by sample.
enum class plan_kind { fused, layered };

/// Multiply-adds of one sample's forward pass.
template <class Network>
inline constexpr std::size_t forward_work = [] {
  std::size_t work = 0;
  for (const pergrad::detail::plan_node& node : pergrad::detail::network_plan<typename Network::structure>::nodes) {
    if (node.kind == node_kind::affine) work += node.map.weight_count() * node.map.positions();
  }
  return work;
}();
/// A block reads all weights for its sample; where they are many, samples must share them. The bounds are estimates
/// (weights of 1 MiB, 4 million multiply-adds a sample), not measured.
template <class Network>
inline constexpr plan_kind plan_of = Network::parameter_count <= (std::size_t{1} << 18U) && forward_work<Network> <=
                                                                                                (std::size_t{1} << 22U)
                                         ? plan_kind::fused
                                         : plan_kind::layered;

/// Blocks of the product that squares a view's gradient.
[[nodiscard]] constexpr int square_blocks_of(const affine_view& view) noexcept {
  return with_block_sizes(choose_gemm(gemm_product::squares, view, false), [&]<class Sizes>(Sizes) {
    return blocks_for(view.outputs, Sizes::rows) * blocks_for(view.view_width(), Sizes::columns);
  });
}

/// Elements of a sample's gradient that may be kept from its norm to the sums: those of a batch should stay in the
/// device's cache.
inline constexpr int most_kept = 1 << 15;
/// Positions from which on forming a gradient twice costs more than writing and reading it: 8 bytes of traffic against
/// 2 T operations an element. An estimate from data sheets, not measured.
inline constexpr int positions_worth_keeping = 16;

/// How a device finds the norm of a block: exact ways only, the cheapest in multiply-adds, as on the host
/// (gradients/plan.hpp) with a device's prices. Dots are in double, which most devices are slow at.
[[nodiscard]] constexpr norm_method cheapest_on_device(const affine_view& view) noexcept {
  const double positions = view.positions();
  const double width = view.view_width();
  const double outputs = view.outputs;
  if (view.positions() == 1) return norm_method::product;
  constexpr double dot_element = 4;
  const double gram = dot_element * positions * (positions + 1) / 2 * (width + outputs) + positions * width * outputs;
  const double direct = 2 * positions * width * outputs;
  if (gram < direct) return norm_method::gram;
  return view.positions() >= positions_worth_keeping ? norm_method::instantiate : norm_method::direct;
}

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
  using plan = detail::network_plan<structure>;
  using lifetimes = detail::value_lifetimes<structure>;
  static constexpr std::size_t size = structure::size;

  static constexpr tables make() {
    tables t;
    const lifetimes live;
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      t.ops[i].function = Program::functions::template index_of<typename function_of<Layer>::type>;
    });
    for (std::size_t i = 0; i < size; ++i) describe_node(t, i);
    connect(t, live);
    place_values(t, live);
    for (const detail::plan_factor& each : plan::factors) list_leaf(t, each);
    return t;
  }

 private:
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

  static constexpr void describe_node(tables& t, std::size_t i) {
    op_row& row = t.ops[i];
    const detail::plan_node& node = plan::nodes[i];
    row.kind = node.kind;
    row.node = static_cast<int>(i);
    row.in_shape = plan::in_of(i);
    row.in_size = static_cast<int>(row.in_shape.size());
    row.out_size = static_cast<int>(structure::shapes[i + 1].size());
    row.parameters = static_cast<int>(structure::parameter_offsets[i]);
    row.weights = static_cast<int>(structure::parameter_counts[i]);
    row.input_gradient = node.input_gradient ? 1 : 0;
    row.input2_gradient = node.input2_gradient ? 1 : 0;
    row.backward = node.backward ? 1 : 0;
    if (row.kind == node_kind::affine) {
      row.view = view_of(node.map, node.channels_first);
      row.adjoint = node.map.adjoint ? 1 : 0;
      if (node.map.bias) row.bias = row.parameters + row.view.size();
    } else if (row.kind == node_kind::pooling) {
      describe_pool(t, row, row.in_shape, structure::shapes[i + 1]);
    } else if (row.kind == node_kind::general) {
      row.saved_size = static_cast<int>(node.saved_count);
    }
  }
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

  /// Is the output the input under another shape?
  static constexpr bool is_view(const lifetimes& live, std::size_t node) { return live.root[node + 1] != node + 1; }

  static constexpr void connect(tables& t, const lifetimes& live) {
    detail::gradient_writers<size + 1> writers{live.root, size};
    for (std::size_t i = size; i-- > 0;) {
      op_row& row = t.ops[i];
      row.handed_on = live.root[i + 1] != live.root[size] ? 1 : 0;
      if (is_view(live, i)) continue;
      row.accumulate = row.input_gradient != 0 && writers.adds(structure::inputs[i]) ? 1 : 0;
      row.accumulate2 = row.input2_gradient != 0 && writers.adds(structure::inputs2[i]) ? 1 : 0;
    }
  }

  static constexpr void place_values(tables& t, const lifetimes& live) {
    constexpr int n = static_cast<int>(size);
    constexpr int end = lifetimes::end;
    packer<5 * size + 5> workspace;
    std::array<int, size + 1> values{};
    std::array<int, size + 1> gradients{};
    std::array<int, size + 1> saved{};
    std::array<int, size + 1> written{};
    values[0] = in_input(0);
    for (std::size_t s = 1; s <= size; ++s) {
      if (live.root[s] == s) {
        values[s] = workspace.place(t.ops[s - 1].out_size, t.ops[s - 1].node, live.value_death[s]);
      }
      const op_row& row = t.ops[s - 1];
      if (row.saved_size > 0) saved[s - 1] = workspace.place(row.saved_size, row.node, end);
      const bool writes_beside = row.kind == node_kind::general && (row.accumulate != 0 || row.input_gradient == 0);
      if (writes_beside) written[s - 1] = workspace.place(row.in_size, 2 * n - row.node, 2 * n - row.node);
    }
    for (std::size_t s = size + 1; s-- > 0;) {
      if (live.root[s] != s || live.gradient_birth[s] == end) continue;
      const int death = std::max(live.gradient_birth[s], live.gradient_death[s]);
      const int count = s == 0 ? t.ops[0].in_size : t.ops[s - 1].out_size;
      gradients[s] = workspace.place(count, live.gradient_birth[s], death);
    }
    t.workspace = workspace.size();
    t.output = values[live.root[size]];
    t.output_gradient = gradients[live.root[size]];
    for (std::size_t i = 0; i < size; ++i) {
      op_row& row = t.ops[i];
      row.in = values[live.root[structure::inputs[i]]];
      row.in2 = values[live.root[structure::inputs2[i]]];
      row.out = values[live.root[i + 1]];
      row.dx = gradients[live.root[structure::inputs[i]]];
      row.dx2 = gradients[live.root[structure::inputs2[i]]];
      row.dy = gradients[live.root[i + 1]];
      row.saved = saved[i];
      row.written_dx = row.accumulate != 0 || row.input_gradient == 0 ? written[i] : row.dx;
      if (is_view(live, i)) row.out_size = 0;  // nothing to do
    }
  }

  static constexpr void list_leaf(tables& t, const detail::plan_factor& each) {
    const op_row& row = t.ops[each.node];
    const factor& what = each.what;
    const bool is_affine = row.kind == node_kind::affine;
    if (what.outer) {
      outer_leaf leaf;
      if (is_affine) {
        leaf.view = row.view;
        leaf.x = row.adjoint != 0 ? row.dy : row.in;
        leaf.delta = row.adjoint != 0 ? row.in : row.dy;
      } else {
        leaf.view.channels = static_cast<int>(what.columns);
        leaf.view.outputs = static_cast<int>(what.rows);
        leaf.view.in[1] = leaf.view.out[1] = static_cast<int>(what.positions);
        leaf.view.x_channel = static_cast<int>(what.other.stride);
        leaf.view.x_step[1] = static_cast<int>(what.other.position_stride);
        leaf.view.y_output = static_cast<int>(what.delta.stride);
        leaf.view.y_step[1] = static_cast<int>(what.delta.position_stride);
        leaf.x = place_of(row, what.other);
        leaf.delta = place_of(row, what.delta);
      }
      add(t, each, leaf);
    } else {
      elementwise_leaf leaf;
      leaf.count = static_cast<int>(what.rows);
      if (is_affine) {
        const bool turned = row.adjoint != 0;
        leaf.delta = row.dy;
        leaf.delta_stride = turned ? row.view.x_channel : row.view.y_output;
        for (int axis = 0; axis < axes; ++axis) {
          leaf.out[axis] = turned ? row.view.in[axis] : row.view.out[axis];
          leaf.delta_step[axis] = turned ? row.view.x_step[axis] : row.view.y_step[axis];
        }
      } else {
        leaf.out[1] = static_cast<int>(what.positions);
        leaf.delta = place_of(row, what.delta);
        leaf.delta_step[1] = static_cast<int>(what.delta.position_stride);
        leaf.delta_stride = static_cast<int>(what.delta.stride);
        leaf.ones = what.other.from == source::ones ? 1 : 0;
        if (leaf.ones == 0) leaf.other = place_of(row, what.other);
        leaf.other_step[1] = static_cast<int>(what.other.position_stride);
        leaf.other_stride = static_cast<int>(what.other.stride);
      }
      add(t, each, leaf);
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
  static constexpr void add(tables& t, const detail::plan_factor& each, outer_leaf leaf) {
    describe_leaf(each, leaf);
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
      leaf.square_count = leaf.view.groups * square_blocks_of(leaf.view);
      t.squares += leaf.square_count;
    }
    op_row& row = t.ops[each.node];
    t.outer[next(row.first_outer, row.last_outer, t.outer_count)] = leaf;
  }
  static constexpr void add(tables& t, const detail::plan_factor& each, elementwise_leaf leaf) {
    describe_leaf(each, leaf);
    leaf.kept = t.kept;
    t.kept += leaf.count;
    op_row& row = t.ops[each.node];
    t.elementwise[next(row.first_elementwise, row.last_elementwise, t.elementwise_count)] = leaf;
  }
  static constexpr void describe_leaf(const detail::plan_factor& each, auto& leaf) {
    leaf.node = static_cast<int>(each.node);
    leaf.layer = static_cast<int>(plan::nodes[each.node].layer);
    leaf.parameters = static_cast<int>(each.parameters);
  }
  /// The place of a node's next leaf.
  static constexpr std::size_t next(int& first, int& last, int& count) {
    if (first == last) first = count;
    last = count + 1;
    return static_cast<std::size_t>(count++);
  }
};

}  // namespace pergrad::inline v0_1::on_device
