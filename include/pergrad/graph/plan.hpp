// SPDX-License-Identifier: Apache-2.0
// pergrad/graph/plan.hpp - a checked network as tables that every executor reads: what nodes are, where gradients flow,
// which factors the parameters have, how long values live
//
// Made once of the types: what a layer's type says is asked once a type, with the node's shapes as numbers. Where
// values lie, and how norms and sums are formed of the factors, each executor decides for itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <pergrad/concepts.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

enum class node_kind : int { affine, elementwise, pooling, reshape, branch_sum, general, tiled };

template <class Layer>
[[nodiscard]] constexpr node_kind kind_of() {
  if constexpr (has_affine<Layer>) {
    return node_kind::affine;
  } else if constexpr (is_branch_sum<Layer>) {
    return node_kind::branch_sum;
  } else if constexpr (is_reshape<Layer>) {
    return node_kind::reshape;
  } else if constexpr (has_value<Layer>) {
    return node_kind::elementwise;
  } else if constexpr (has_windows<Layer>) {
    return node_kind::pooling;
  } else if constexpr (is_tiled<Layer>) {
    return node_kind::tiled;
  } else {
    return node_kind::general;
  }
}

/// The place of a node among the uses of shared parameters. The backward pass meets the last use first; the sample's
/// gradient is whole, and its norm known, once the first use has been added.
struct tied_use {
  bool first = true;
  bool last = true;
  [[nodiscard]] constexpr bool shared() const noexcept { return !first || !last; }
};

/// What every executor asks of a node.
struct plan_node {
  node_kind kind = node_kind::general;
  bool two_inputs = false;
  bool derives_from_output = false;  ///< elementwise: its derivative is a function of the output
  bool forgets_values = false;       ///< tiled: its backward reads neither x nor y
  bool channels_first = false;       ///< shapes of rank 2 are (channels, positions)
  bool swaps_axes = false;           ///< reshape: of channels and positions
  bool reads_images = false;         ///< tiled: reads and writes values as they are stored
  bool takes_ids = false;
  affine_map map;  ///< affine
  std::size_t saved_count = 0;
  std::size_t factor_count = 0;  ///< of the layer, trained or not
  std::size_t projection_count = 0;
  bool input_gradient = false;  ///< a parameter that is trained lies before the input
  bool input2_gradient = false;
  bool backward = false;  ///< or in the node itself
  tied_use use;
  std::size_t recomputed = 0;  ///< number of its recomputed block, from 1 on; 0: its values are kept
  std::size_t layer = 0;  ///< number among the layers with trained parameters; all uses of a tied one have the same
};

/// One use of one block of trained parameters. A table that is shared with a matrix is an outer sum by ids. Of an
/// affine layer the factors are its weights, an outer sum with rows and columns of one group, and its bias; their
/// operands are what the node's map says.
struct plan_factor {
  factor what;
  std::size_t node = 0;
  std::size_t parameters = 0;  ///< the first of the block
  std::size_t first_use = 0;   ///< of the block: which of the outer, the elementwise or the row sums it is
};

/// What the type of a layer says of a node.
template <class Layer>
constexpr void describe_node(shape in, shape second, plan_node& to) {
  to.kind = kind_of<Layer>();
  to.two_inputs = has_two_inputs<Layer>;
  to.derives_from_output = requires { requires Layer::derivative_from_output; };
  to.forgets_values = requires { requires Layer::forgets_values; };
  to.channels_first = says_channels_first<Layer>;
  to.swaps_axes = requires { requires Layer::is_transpose; };
  to.reads_images = reads_images<Layer>;
  to.takes_ids = takes_ids<Layer>;
  to.saved_count = saved_count_of<Layer>(in, second);
  if constexpr (has_projections<Layer>) to.projection_count = projections_of<Layer>(in, second).size();
  if constexpr (has_affine<Layer>) {
    to.map = Layer::affine(in);
    to.channels_first = is_channels_first<Layer>(in, Layer::output_shape(in));
    to.factor_count = to.map.bias ? 2 : 1;
  } else if constexpr (has_factors<Layer>) {
    to.factor_count = factors_of<Layer>(in, second).size();
  }
}
/// The factors of a node's parameters, of which the first is `parameters`.
template <class Layer>
constexpr void list_factors_of(shape in, shape second, std::size_t node, std::size_t parameters, plan_factor* to) {
  if constexpr (has_affine<Layer>) {
    const affine_map map = Layer::affine(in);
    *to++ = {outer_sum(map.positions(), map.group_outputs(), {}, map.view_width(), {}), node, parameters};
    if (map.bias) *to = {elementwise_sum(map.positions(), map.bias_count(), {}), node, parameters + map.weight_count()};
  } else if constexpr (has_factors<Layer>) {
    for (const factor& each : factors_of<Layer>(in, second)) {
      *to++ = {each, node, parameters};
      parameters += each.size();
    }
  }
}

/// Which reader of a value writes its gradient first, and which add to it: they are asked in the order of the backward
/// pass. Slots that share a storage have one gradient; that of the output is there from the beginning.
template <std::size_t Slots>
class gradient_writers {
 public:
  constexpr gradient_writers(const std::array<std::size_t, Slots>& storage, std::size_t output) : storage_{storage} {
    written_[storage[output]] = true;
  }
  /// Is there something already? From now on there is.
  [[nodiscard]] constexpr bool adds(std::size_t slot) { return std::exchange(written_[storage_[slot]], true); }

 private:
  const std::array<std::size_t, Slots>& storage_;
  std::array<bool, Slots> written_{};
};

/// The tables of a `structure` (gate.hpp).
template <class Structure>
struct network_plan {
  static constexpr std::size_t size = Structure::size;
  static constexpr shape in_of(std::size_t node) { return Structure::shapes[Structure::inputs[node]]; }
  static constexpr shape second_of(std::size_t node) { return Structure::shapes[Structure::inputs2[node]]; }

 private:
  static constexpr std::array<plan_node, size> make_nodes() {
    std::array<plan_node, size> made{};
    for_each_layer<Structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      describe_node<Layer>(in_of(i), second_of(i), made[i]);
    });
    std::array<bool, size + 1> trained{};       // a parameter lies before this slot
    std::array<std::size_t, size> last_uses{};  // of the node's parameters
    std::size_t layers = 0;
    for (std::size_t i = 0; i < size; ++i) {
      plan_node& node = made[i];
      const std::size_t owner = Structure::owners[i];
      node.input_gradient = trained[Structure::inputs[i]];
      node.input2_gradient = node.two_inputs && trained[Structure::inputs2[i]];
      node.backward = node.input_gradient || node.input2_gradient || Structure::trained_counts[i] > 0;
      trained[i + 1] = node.backward;
      node.layer = owner == i ? layers : made[owner].layer;
      if (owner == i && Structure::trained_counts[i] > 0) ++layers;
      last_uses[owner] = i;
    }
    for (std::size_t i = 0; i < size; ++i)
      made[i].use = {Structure::owners[i] == i, last_uses[Structure::owners[i]] == i};
    // A block that nothing is run backwards of has nothing to compute again; what a use of a shared table leaves is
    // read with that of all others.
    std::array<bool, size> tables{};
    for (std::size_t i = 0; i < size; ++i) {
      if (made[i].takes_ids) tables[Structure::owners[i]] = true;
    }
    for (std::size_t i = 0, blocks = 0; i < size; i += std::max<std::size_t>(1, Structure::found.recomputed[i])) {
      const std::size_t end = i + Structure::found.recomputed[i];
      bool recomputes = false;
      for (std::size_t k = i; k < end; ++k) recomputes = recomputes || made[k].backward;
      for (std::size_t k = i; k < end; ++k) {
        recomputes = recomputes && !(made[k].use.shared() && tables[Structure::owners[k]]);
      }
      if (recomputes) ++blocks;
      for (std::size_t k = i; recomputes && k < end; ++k) made[k].recomputed = blocks;
    }
    return made;
  }

 public:
  static constexpr std::array<plan_node, size> nodes = make_nodes();
  /// Recomputed blocks, from 1 on: the first node and the last one. What is outside reads the last one's output, and
  /// the block one slot of what is outside.
  static constexpr std::size_t recomputed_count = [] {
    std::size_t count = 0;
    for (const plan_node& each : nodes) count = std::max(count, each.recomputed);
    return count;
  }();
  struct node_range {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  static constexpr std::array<node_range, recomputed_count + 1> recomputed = [] {
    std::array<node_range, recomputed_count + 1> ranges{};
    for (std::size_t i = 0; i < size; ++i) {
      node_range& range = ranges[nodes[i].recomputed];
      if (i == 0 || nodes[i - 1].recomputed != nodes[i].recomputed) range.first = i;
      range.last = i;
    }
    ranges[0] = {0, size - 1};
    return ranges;
  }();

 private:
  static constexpr std::size_t factor_count = [] {
    std::size_t count = 0;
    for (std::size_t i = 0; i < size; ++i) count += Structure::trained_counts[i] > 0 ? nodes[i].factor_count : 0;
    return count;
  }();
  static constexpr std::array<plan_factor, factor_count> list_factors() {
    std::array<plan_factor, factor_count> list{};
    std::array<bool, size> joins_ids{};  // a table, and a matrix that is multiplied with, too
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t owner = Structure::owners[i];
      if ((nodes[i].kind == node_kind::affine) != (nodes[owner].kind == node_kind::affine)) joins_ids[owner] = true;
    }
    std::array<std::size_t, size> first_of{};
    std::size_t count = 0;
    std::size_t outer = 0;
    std::size_t elementwise = 0;
    std::size_t sparse = 0;
    for_each_layer<Structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      if (Structure::trained_counts[i] == 0) return;
      list_factors_of<Layer>(in_of(i), second_of(i), i, Structure::parameter_offsets[i], list.data() + count);
      first_of[i] = count;
      for (std::size_t k = 0; k < nodes[i].factor_count; ++k) {
        plan_factor& each = list[count++];
        if (each.what.sparse && joins_ids[Structure::owners[i]]) each.what = as_outer_sum(each.what);
        std::size_t& number = each.what.sparse ? sparse : each.what.outer ? outer : elementwise;
        each.first_use = nodes[i].use.first ? number : list[first_of[Structure::owners[i]] + k].first_use;
        ++number;
      }
    });
    return list;
  }

 public:
  /// Node after node.
  static constexpr std::array<plan_factor, factor_count> factors = list_factors();
  /// Of which kinds, for arrays of them, which have one element at least.
  static constexpr std::size_t room_for(auto wanted) {
    std::size_t count = 0;
    for (const plan_factor& each : factors) count += wanted(each.what) ? 1U : 0U;
    return std::max<std::size_t>(1, count);
  }
  static constexpr std::size_t most_outer = room_for([](const factor& each) { return each.outer; });
  static constexpr std::size_t most_sparse = room_for([](const factor& each) { return each.sparse; });
  static constexpr std::size_t most_elementwise =
      room_for([](const factor& each) { return !each.outer && !each.sparse; });
};

/// When values are needed: node i runs at time i and its backward at time 2 size - i; behind them, at `end`, norms and
/// sums are made of the factors. Slots of which one is the other under another shape are one value, that of their root.
template <class Structure>
struct value_lifetimes {
  using plan = network_plan<Structure>;
  static constexpr std::size_t size = Structure::size;
  static constexpr int end = 2 * static_cast<int>(size) + 1;

  std::array<std::size_t, size + 1> root{};
  // Of roots. A value is there from the time of its node on; a gradient that nobody writes is born at the end.
  std::array<int, size + 1> value_death{};
  std::array<int, size + 1> gradient_birth{};
  std::array<int, size + 1> gradient_death{};

  constexpr value_lifetimes() {
    for (int& each : gradient_birth) each = end;
    for (std::size_t i = 0; i < size; ++i) {
      const plan_node& node = plan::nodes[i];
      const bool is_view = node.kind == node_kind::reshape && !node.swaps_axes;
      root[i + 1] = is_view ? root[Structure::inputs[i]] : i + 1;
      const int forward = static_cast<int>(i);
      const int backward = end - 1 - forward;
      const bool is_function = node.kind == node_kind::elementwise || node.kind == node_kind::pooling;
      const bool function_goes_back = is_function && node.input_gradient;
      const bool tiled_goes_back = node.kind == node_kind::tiled && node.backward;
      const bool reads_x = (function_goes_back && !node.derives_from_output) || tiled_goes_back ||
                           (node.kind == node_kind::general && node.backward);
      live(Structure::inputs[i], reads_x ? backward : forward);
      live(i + 1, function_goes_back || tiled_goes_back ? backward : forward);
      if (node.two_inputs) live(Structure::inputs2[i], tiled_goes_back ? backward : forward);
      if (node.input_gradient) write_gradient(Structure::inputs[i], backward);
      if (node.input2_gradient) write_gradient(Structure::inputs2[i], backward);
      if (node.backward && !is_view) {
        int& death = gradient_death[root[i + 1]];
        death = std::max(death, Structure::trained_counts[i] > 0 ? end : backward);
      }
    }
    for (const plan_factor& each : plan::factors) {
      const auto reads = [&](source from) { return each.what.delta.from == from || each.what.other.from == from; };
      const bool is_affine = plan::nodes[each.node].kind == node_kind::affine;
      if (is_affine || reads(source::activation)) live(Structure::inputs[each.node], end);
      if (reads(source::second_activation)) live(Structure::inputs2[each.node], end);
      if (reads(source::output)) live(each.node + 1, end);
    }
    live(size, end);
    gradient_birth[root[size]] = static_cast<int>(size);
    gradient_death[root[size]] = end;
  }

 private:
  constexpr void live(std::size_t slot, int until) {
    value_death[root[slot]] = std::max(value_death[root[slot]], until);
  }
  constexpr void write_gradient(std::size_t slot, int from) {
    gradient_birth[root[slot]] = std::min(gradient_birth[root[slot]], from);
  }
};

}  // namespace pergrad::inline v0_1::detail
