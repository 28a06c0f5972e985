// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/build.hpp - from a network's plan to a device's tables: how it is cut into launches, what nodes do,
// where values lie
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/cuda/kernels/functions.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/cuda/plan/held_plan.hpp>
#include <pergrad/cuda/plan/leaves.hpp>
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
  using plan = pergrad::detail::network_plan<typename Network::structure>;
  for (const pergrad::detail::plan_node& node : plan::nodes) {
    if (node.kind == node_kind::affine) work += node.map.weight_count() * node.map.positions();
  }
  // Of other layers' products those whose matrices are trained.
  for (const pergrad::detail::plan_factor& each : plan::factors) {
    const bool of_product = each.what.outer && !each.what.by_ids && plan::nodes[each.node].kind != node_kind::affine;
    if (of_product) work += each.what.size() * each.what.positions;
  }
  return work;
}();
/// A block reads all weights for its sample, and few blocks fit on a multiprocessor; where samples share products,
/// either costs less. The bounds are those of networks for which a launch for every layer costs more than that.
template <class Network>
inline constexpr plan_kind plan_of = Network::parameter_count <= (std::size_t{1} << 13U) && forward_work<Network> <=
                                                                                                (std::size_t{1} << 17U)
                                         ? plan_kind::fused
                                         : plan_kind::layered;

/// Projections of all layers on tiles.
template <class Structure>
[[nodiscard]] constexpr std::size_t count_projections() {
  std::size_t count = 0;
  for (const pergrad::detail::plan_node& node : pergrad::detail::network_plan<Structure>::nodes) {
    count += node.projection_count;
  }
  return count;
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
  /// Values in whose places their gradients lie.
  using places_taken = std::array<bool, size + 1>;

  static constexpr tables make() {
    tables t;
    lifetimes live;
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      t.ops[i].function = Program::functions::template index_of<typename function_of<Layer>::type>;
      std::size_t scratch = detail::scratch_count_of<Layer>(plan::in_of(i), plan::second_of(i));
      if constexpr (Program::layered) {
        const detail::layer_parts parts = detail::parts_of<Layer>(plan::in_of(i), plan::second_of(i));
        t.ops[i].parts = static_cast<int>(parts.count);
        scratch += (parts.count - 1) * parts.scratch;
      }
      t.ops[i].scratch_size = static_cast<int>(scratch);
    });
    for (std::size_t i = 0; i < size; ++i) describe_node(t, i);
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      if constexpr (requires { Layer::attention_of(shape{}); }) {
        constexpr bool projects = requires { Layer::projections(shape{}); };
        t.ops[i].attention = attention_by_kernels(Layer::attention_of(plan::in_of(i)), projects);
      }
    });
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      if constexpr (requires { Layer::matrix_of_positions; }) {
        constexpr std::size_t worthwhile = 4;  // positions
        const auto all = detail::matrices_of<Layer>(plan::in_of(i), plan::second_of(i));
        const auto& read = all[Layer::matrix_of_positions];
        if (plan::in_of(i).e0 < worthwhile) return;
        t.ops[i].held = static_cast<int>(read.offset);
        t.ops[i].held_rows = static_cast<int>(read.rows);
        t.ops[i].held_columns = static_cast<int>(read.columns);
      }
    });
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      constexpr bool keeps_maxima = remembers_inputs<typename function_of<Layer>::type>;
      if (keeps_maxima && t.ops[i].backward != 0) t.ops[i].saved_size = t.ops[i].out_size;
    });
    describe_lengths(t);
    places_taken taken{};
    if constexpr (Program::layered) {
      leave_room_for_joined(t, live);
      take_along(t, live, taken);
    }
    connect(t, live);
    place_values(t, live, taken);
    for (const detail::plan_factor& each : plan::factors) build_leaves<Program>::list(t, each);
    for (elementwise_leaf& leaf : t.elementwise) leaf.squares += t.squares;
    t.squares += t.elementwise_squares;
    if constexpr (Program::layered) {
      detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
        if constexpr (detail::has_projections<Layer>) {
          for (const position_projection& each : detail::projections_of<Layer>(plan::in_of(i), plan::second_of(i))) {
            list_projection(t, t.ops[i], each);
          }
        }
      });
      const auto are_affine = [&](const auto& leaves, int count) {
        return std::all_of(leaves.begin(), leaves.begin() + count, [&](const auto& leaf) {
          return t.ops[static_cast<std::size_t>(leaf.node)].kind == node_kind::affine;
        });
      };
      // A block that holds samples has one thread take the loss of each.
      const bool has_few_outputs = structure::shapes[size].size() <= most_outputs_of_thread;
      // cuBLAS adds up in an order of its own, and how many samples there are decides whether blocks hold them: one of
      // both for all batches.
      constexpr bool may_call_library = sizeof(typename Program::scalar) == sizeof(float);
      if (has_few_outputs && t.row_count == 0 && are_affine(t.outer, t.outer_count) &&
          are_affine(t.elementwise, t.elementwise_count) && may_be_held(t.ops) &&
          !(may_call_library && calls_library_for(t.ops))) {
        hold_samples(t, t.ops, static_cast<int>(structure::shapes[0].size()), sizeof(typename Program::scalar));
      }
    }
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
    row.in2_shape = node.two_inputs ? plan::second_of(i) : shape{};
    row.out_shape = structure::shapes[i + 1];
    row.in_size = static_cast<int>(row.in_shape.size());
    row.in2_size = static_cast<int>(row.in2_shape.size());
    row.out_size = static_cast<int>(row.out_shape.size());
    row.parameters = static_cast<int>(structure::parameter_offsets[i]);
    row.weights = static_cast<int>(structure::parameter_counts[i]);
    row.input_gradient = node.input_gradient ? 1 : 0;
    row.input2_gradient = node.input2_gradient ? 1 : 0;
    row.backward = node.backward ? 1 : 0;
    row.wants_factors = structure::trained_counts[i] > 0 ? 1 : 0;
    row.saved_size = static_cast<int>(node.saved_count);
    if (row.kind == node_kind::affine) {
      row.view = view_of(node.map, node.channels_first);
      row.adjoint = node.map.adjoint ? 1 : 0;
      if (node.map.bias) row.bias = row.parameters + row.view.size();
    } else if (row.kind == node_kind::pooling) {
      describe_pool(t, row, row.in_shape, row.out_shape);
    }
  }
  /// A table of lengths for every value that has some.
  static constexpr void describe_lengths(tables& t) {
    std::array<int, size + 1> lengths{};
    for (std::size_t s = 0; s <= size; ++s) {
      lengths[s] = structure::shapes[s].varying_axis() == 0 ? -1 : t.integers;
      if (lengths[s] >= 0) t.integers += static_cast<int>(structure::shapes[0].e0) + 1;
    }
    for (std::size_t i = 0; i < size; ++i) {
      op_row& row = t.ops[i];
      row.in_lengths = lengths[structure::inputs[i]];
      row.in2_lengths = plan::nodes[i].two_inputs ? lengths[structure::inputs2[i]] : -1;
      row.out_lengths = lengths[i + 1];
    }
    t.output_lengths = lengths[size];
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
      windows.of_in = divisor{windows.in};
      windows.of_out = divisor{windows.out};
    }
    row.divisors = t.scalars;
    t.scalars += out_axes[0] * out_axes[1] * out_axes[2];
  }

  /// A product may write the results of a function of single numbers next to it in the list (`joins` in program.hpp)
  /// while other blocks still read what it multiplies: that lives a step longer.
  static constexpr void leave_room_for_joined(const tables& t, lifetimes& live) {
    for (std::size_t i = 0; i < size; ++i) {
      if (t.ops[i].kind != node_kind::affine) continue;
      const int forward = static_cast<int>(i);
      const int back = lifetimes::end - 1 - forward;
      int& operand = live.value_death[live.root[structure::inputs[i]]];
      int& delta = live.gradient_death[live.root[i + 1]];
      if (i + 1 < size && t.ops[i + 1].kind == node_kind::elementwise) operand = std::max(operand, forward + 1);
      if (i > 0 && t.ops[i - 1].kind == node_kind::elementwise) delta = std::max(delta, back + 1);
    }
  }

  /// A function of single numbers that only the pool behind it reads is computed by that, forward and back: what it
  /// reads then lives as long as the function's gradient is asked for, which the pool writes; what lies between them is
  /// stored nowhere. Not behind a product that computes it.
  static constexpr void take_along(tables& t, lifetimes& live, places_taken& taken) {
    for (std::size_t i = 0; i + 1 < size; ++i) {
      op_row& row = t.ops[i];
      const op_row& pool = t.ops[i + 1];
      if (row.kind != node_kind::elementwise || pool.kind != node_kind::pooling || stretches_of(row) == 0 ||
          row.out_lengths >= 0 || stretches_of(pool) == 0 || readers_of(i + 1) != 1 ||
          structure::inputs[i + 1] != i + 1 || (row.input_gradient == 0) != (pool.input_gradient == 0)) {
        continue;
      }
      const std::size_t before = structure::inputs[i];
      if (before > 0 && t.ops[before - 1].kind == node_kind::affine && t.ops[before - 1].view.positions() == 1)
        continue;
      row.taken_along = 1;
      const int back = lifetimes::end - 1 - pool.node;
      int& death = live.value_death[live.root[before]];
      // Of a pool of maxima an element's gradient needs no element but its own: it takes its place, if nobody asks for
      // the value later, as a function before it might that derives from its output.
      taken[before] = pool.saved_size > 0 && row.input_gradient != 0 && readers_of(before) == 1 &&
                      live.root[before] == before && death <= back + 1;
      death = std::max(death, row.input_gradient != 0 ? back + 1 : pool.node);
      live.value_death[i + 1] = row.node;
      if (row.input_gradient == 0) continue;
      int& birth = live.gradient_birth[live.root[before]];
      birth = std::min(birth, back);
      live.gradient_birth[i + 1] = lifetimes::end;
    }
  }
  /// Nodes that read a value.
  static constexpr std::size_t readers_of(std::size_t slot) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < size; ++i) {
      count += structure::inputs[i] == slot ? 1U : 0U;
      count += plan::nodes[i].two_inputs && structure::inputs2[i] == slot ? 1U : 0U;
    }
    return count;
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

  static constexpr void place_values(tables& t, const lifetimes& live, const places_taken& taken) {
    constexpr int n = static_cast<int>(size);
    constexpr int end = lifetimes::end;
    packer<7 * size + 2 + plan::most_sparse> workspace;
    std::array<int, size + 1> values{};
    std::array<int, size + 1> gradients{};
    values[0] = in_input(0);
    for (std::size_t s = 1; s <= size; ++s) {
      if (live.root[s] == s) {
        const int death = taken[s] ? std::max(live.gradient_birth[s], live.gradient_death[s]) : live.value_death[s];
        values[s] = workspace.place(t.ops[s - 1].out_size, t.ops[s - 1].node, death);
      }
      op_row& row = t.ops[s - 1];
      const int back = 2 * n - row.node;
      const auto place = [&](int& where, int count, int birth, int death, bool wanted) {
        if (wanted && count > 0) where = workspace.place(count, birth, death);
      };
      const bool writes = row.kind == node_kind::general || row.kind == node_kind::tiled;
      place(row.saved, row.saved_size, row.node, row.kind == node_kind::pooling ? back : end, true);
      place(row.scratch, row.scratch_size, row.node, row.node, true);
      place(row.back_scratch, row.scratch_size, back, back, row.backward != 0);
      place(row.written_dx, row.in_size, back, back, writes && writes_beside(row));
      place(row.written_dx2, row.in2_size, back, back, writes && row.accumulate2 != 0);
    }
    for (std::size_t s = size + 1; s-- > 0;) {
      if (live.root[s] != s || live.gradient_birth[s] == end) continue;
      if (taken[s]) {
        gradients[s] = values[s];
        continue;
      }
      const int death = std::max(live.gradient_birth[s], live.gradient_death[s]);
      const int count = s == 0 ? t.ops[0].in_size : t.ops[s - 1].out_size;
      gradients[s] = workspace.place(count, live.gradient_birth[s], death);
    }
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
      if (!writes_beside(row)) row.written_dx = row.dx;
      if (row.accumulate2 == 0) row.written_dx2 = row.dx2;
      if (is_view(live, i)) {  // nothing to do
        row.out_size = 0;
        row.out_lengths = -1;
      }
    }
    for (const detail::plan_factor& each : plan::factors) {
      if (each.what.sparse && plan::nodes[each.node].use.first) {
        t.rows[each.first_use].links = workspace.place(positions_of_uses(each.first_use), n, end);
      }
    }
    t.workspace = workspace.size();
  }
  /// Without options, of narrow heads; else the layer's own code runs.
  static constexpr attention_row attention_by_kernels(const auto& at, bool projects) {
    constexpr std::ptrdiff_t widest = 64;
    const std::ptrdiff_t room = static_cast<std::ptrdiff_t>(at.part_count()) * at.part_scratch_count();
    const std::ptrdiff_t wanted = at.queries * at.features + 3 * at.heads * at.queries;
    if (at.extra != 0 || at.group != 1 || at.threshold != 0 || at.log_of_base != 0 || at.width > widest ||
        wanted > room) {
      return {.by_layer = static_cast<int>(at.features),
              .positions = static_cast<int>(at.queries),
              .causal = at.causal ? 1 : 0};
    }
    return {.heads = static_cast<int>(at.heads),
            .width = static_cast<int>(at.width),
            .positions = static_cast<int>(at.queries),
            .causal = at.causal ? 1 : 0,
            .projects = projects ? 1 : 0,
            .context = static_cast<int>(at.context),
            .room = static_cast<int>(at.turned_keys)};
  }
  static constexpr void list_projection(tables& t, op_row& row, const position_projection& from) {
    const bool second = from.x.from == source::second_activation;
    const auto place = [](int of, const operand& what) {
      const int offset = static_cast<int>(what.offset);
      return of < 0 ? of - offset : of + offset;
    };
    projection_row to;
    to.node = row.node;
    to.reads_input = from.reads_input();
    to.view.channels = static_cast<int>(from.weights.columns);
    to.view.outputs = static_cast<int>(from.weights.rows);
    to.view.in[1] = to.view.out[1] = static_cast<int>(from.positions);
    to.view.x_channel = to.view.y_output = 1;
    to.view.x_step[1] = static_cast<int>(from.x.position_stride);
    to.view.y_step[1] = static_cast<int>(from.y.position_stride);
    to.x = place(!to.reads_input ? row.saved : second ? row.in2 : row.in, from.x);
    to.y = place(from.y.from == source::output ? row.out : row.saved, from.y);
    to.dy = place(from.delta.from == source::backprop ? row.dy : row.saved, from.delta);
    to.weights = row.parameters + static_cast<int>(from.weights.offset);
    if (from.bias != ~std::size_t{0}) to.bias = row.parameters + static_cast<int>(from.bias);
    if (to.reads_input) {
      const int bit = second ? 2 : 1;
      to.dx = place(second ? row.dx2 : row.dx, from.x);
      to.wants_gradient = (second ? row.input2_gradient : row.input_gradient) != 0;
      // The first of several that read the same input finds there what other layers have written.
      to.accumulate = (row.projected_inputs & bit) != 0 ? 1 : second ? row.accumulate2 : row.accumulate;
      row.projected_inputs |= bit;
    } else {
      to.dx = row.back_scratch + static_cast<int>(from.gradient);
      to.wants_gradient = row.backward != 0;
    }
    row.projected = 1;
    t.projections[static_cast<std::size_t>(t.projections_used++)] = to;
  }
  /// Is the input's gradient written to a place of its own? A general layer writes it even where nobody wants it.
  static constexpr bool writes_beside(const op_row& row) {
    return row.accumulate != 0 || (row.kind == node_kind::general && row.input_gradient == 0);
  }
  /// Of all uses of a table.
  static constexpr int positions_of_uses(std::size_t first_use) {
    std::size_t count = 0;
    for (const detail::plan_factor& each : plan::factors) {
      if (each.what.sparse && each.first_use == first_use) count += each.what.positions;
    }
    return static_cast<int>(count);
  }
};

}  // namespace pergrad::inline v0_1::on_device
