// SPDX-License-Identifier: Apache-2.0
// pergrad/graph/gate.hpp - infers a network's shapes, and lets only a sound network through
//
// Every node is examined at compile time; the first mistake found is explained (errors.hpp) and stands in for the
// network, as a type that swallows whatever is done with it, so that the compiler has one error to print and nothing
// more to say.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/graph/diagnose.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/graph/stand_ins.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

template <class Scalar, class Input, class... Layers>
class static_network;

namespace detail {

/// The unfolded list of a network with its shapes; stops inferring at the first mistake.
template <class Input, class List, class... Layers>
struct unfolded;
template <class Input, class... Nodes, class... Layers>
struct unfolded<Input, node_list<Nodes...>, Layers...> {
  static constexpr std::size_t size = sizeof...(Nodes);
  using table = type_table<typename Nodes::layer_type...>;
  template <std::size_t Index>
  using layer_at = type_at<Index, table>;

  struct findings {
    std::array<shape, size + 1> shapes{};
    std::array<std::size_t, size + 1> parameter_counts{};   ///< parameters that node i uses
    std::array<std::size_t, size + 1> parameter_offsets{};  ///< their place; frozen ones lie behind all others
    std::array<std::size_t, size + 1> trained_counts{};     ///< 0 if they are frozen
    std::array<std::size_t, size + 1> owners{};      ///< the first node that uses the same parameters: i unless tied
    std::array<std::size_t, size + 1> groups{};      ///< clipping groups
    std::array<std::size_t, size + 1> recomputed{};  ///< nodes that are left of a recomputed block; 0: values are kept
    std::array<std::size_t, size + 1>
        inputs{};  // slot that node i reads; slot 0 is the network's input, node i writes i + 1
    std::array<std::size_t, size + 1> inputs2{};         // second slot of a node with two inputs, else 0
    std::array<std::size_t, size + 1> length_origins{};  // the last slot before a slot that changed the lengths
    std::size_t trained = 0;                             // parameters that are trained
    std::size_t frozen = 0;
    std::size_t first_mistake = size;
    mistake what = mistake::none;
  };
  static constexpr findings find() {
    using diagnose_function = mistake (*)(shape, shape);
    using shape_function = shape (*)(shape, shape);
    using count_function = std::size_t (*)(shape, shape);
    using matrix_function = matrix (*)(shape, shape);
    using lengths_function = bool (*)(shape, shape);
    constexpr std::array<std::size_t, size + 1> back{Nodes::back..., 0};
    constexpr std::array<std::size_t, size + 1> back2{Nodes::back2..., 0};
    constexpr std::array<std::size_t, size + 1> group_numbers{Nodes::group..., 0};
    constexpr std::array<std::size_t, size + 1> recomputed_nodes{Nodes::recomputed..., 0};
    constexpr std::array<std::size_t, size + 1> later{Nodes::later..., 0};
    constexpr std::array<bool, size + 1> is_frozen{Nodes::is_frozen..., false};
    constexpr std::array<tie_number, size + 1> ties{tie_of<typename Nodes::tie_type>..., tie_number{}};
    constexpr std::array<bool, size + 1> tied_by_two{std::is_same_v<typename Nodes::tie_type, tied_twice>..., false};
    constexpr std::array<diagnose_function, size + 1> diagnoses{&diagnose<typename Nodes::layer_type>..., nullptr};
    constexpr std::array<shape_function, size + 1> outputs{&output_shape_of<typename Nodes::layer_type>..., nullptr};
    constexpr std::array<count_function, size + 1> counts{&parameter_count_of<typename Nodes::layer_type>..., nullptr};
    constexpr std::array<matrix_function, size + 1> matrices{&shared_matrix_of<typename Nodes::layer_type>..., nullptr};
    constexpr std::array<lengths_function, size + 1> lengths{&keeps_lengths<typename Nodes::layer_type>..., nullptr};
    constexpr std::array<bool, size + 1> takes_one{takes_one_input<typename Nodes::layer_type>..., true};
    constexpr std::array<bool, size + 1> takes_two{has_two_inputs<typename Nodes::layer_type>..., false};
    constexpr std::array<bool, size + 1> joins{joins_positions<typename Nodes::layer_type>..., false};
    constexpr std::array<bool, size + 1> says_lengths{
        (has_output_length<typename Nodes::layer_type> &&
         !std::is_base_of_v<keeps_every_length, typename Nodes::layer_type>)...,
        false};
    findings result;
    result.shapes[0] = Input::value;
    for (std::size_t i = 0; i < size; ++i) {
      result.inputs[i] = i + 1 - back[i];
      result.inputs2[i] = back2[i] == 0 ? 0 : i + 1 - back2[i];
      result.groups[i] = group_numbers[i];
      result.recomputed[i] = recomputed_nodes[i];
      const shape in = result.shapes[result.inputs[i]];
      const shape in2 = back2[i] == 0 ? shape{} : result.shapes[result.inputs2[i]];
      const bool as_many_inputs = back2[i] != 0 ? takes_two[i] : takes_one[i] || !takes_two[i];
      result.what = as_many_inputs ? diagnoses[i](in, in2) : mistake::branches_do_not_fit;
      if (result.what == mistake::none) {
        result.shapes[i + 1] = outputs[i](in, in2);
        result.parameter_counts[i] = counts[i](in, in2);
        if (!lengths[i](in, result.shapes[i + 1])) result.what = mistake::lengths_are_lost;
        if (joins[i] && !agree_in_length(result, i)) result.what = mistake::branches_differ_in_length;
        const bool same = !says_lengths[i] || in.varying_axis() == 0 || lengths_stay(i, in);
        if (result.what == mistake::none && says_lengths[i] && !lengths_fit(i, in, result.shapes[i + 1], same)) {
          result.what = mistake::output_length_too_long;
        }
        result.length_origins[i + 1] = same ? result.length_origins[result.inputs[i]] : i + 1;
      }
      if (tied_by_two[i]) result.what = mistake::ties_nest;
      result.owners[i] = i;
      for (std::size_t k = 0; ties[i].size != 0 && k < i; ++k) {
        if (ties[k].size == 0 || ties[k].key != ties[i].key || ties[k].index != ties[i].index) continue;
        result.owners[i] = k;
        const auto matrix_of = [&](std::size_t node) {
          return matrices[node](result.shapes[result.inputs[node]],
                                back2[node] == 0 ? shape{} : result.shapes[result.inputs2[node]]);
        };
        // In this order, as g++ with sanitizers knows no constants of different functions that are not equal.
        const bool share = same_matrix(matrix_of(k), matrix_of(i)) || diagnoses[k] == diagnoses[i];
        if (ties[k].size != ties[i].size || !share || result.parameter_counts[k] != result.parameter_counts[i] ||
            is_frozen[k] != is_frozen[i]) {
          result.what = mistake::tied_blocks_differ;
        }
        break;
      }
      if (result.what != mistake::none) {
        result.first_mistake = i;
        return result;
      }
      if (!is_frozen[i]) result.trained_counts[i] = result.parameter_counts[i];
    }
    result.trained = place_parameters(result, is_frozen, later, false, 0);
    result.parameter_offsets[size] = result.trained;
    result.frozen = place_parameters(result, is_frozen, later, true, result.trained) - result.trained;
    for (std::size_t i = 0; i < size; ++i) result.parameter_offsets[i] = result.parameter_offsets[result.owners[i]];
    return result;
  }
  static constexpr bool same_matrix(const matrix& a, const matrix& b) {
    return a.rows > 0 && a.rows == b.rows && a.columns == b.columns;
  }
  using length_function = std::size_t (*)(shape, std::size_t);
  static constexpr std::array<length_function, size + 1> output_lengths{
      &output_length_of<typename Nodes::layer_type>..., nullptr};
  static constexpr bool lengths_stay(std::size_t node, shape in) {
    for (std::size_t length = 0; length <= in[in.varying_axis() - 1]; ++length) {
      if (output_lengths[node](in, length) != length) return false;
    }
    return true;
  }
  /// Has the output room for the positions of every length? Of lengths that stay the `same` the longest says it.
  static constexpr bool lengths_fit(std::size_t node, shape in, shape out, bool same) {
    if (in.varying_axis() == 0) return true;
    const std::size_t longest = in[in.varying_axis() - 1];
    const std::size_t most = out[out.varying_axis() - 1];
    for (std::size_t length = same ? longest : 0; length <= longest; ++length) {
      if (output_lengths[node](in, length) > most) return false;
    }
    return true;
  }
  /// Positions in a slot of a sample that has `length` of the network's input.
  static constexpr std::size_t length_in(const findings& result, std::size_t slot, std::size_t length) {
    if (slot == 0) return length;
    const std::size_t before = result.inputs[slot - 1];
    return output_lengths[slot - 1](result.shapes[before], length_in(result, before, length));
  }
  /// Do both inputs of a node have as many positions of every sample, however short it is?
  static constexpr bool agree_in_length(const findings& result, std::size_t node) {
    const std::size_t first = result.inputs[node];
    const std::size_t second = result.inputs2[node];
    if (result.shapes[first].varying_axis() == 0 || result.length_origins[first] == result.length_origins[second]) {
      return true;
    }
    for (std::size_t length = 0; length <= Input::value.e0; ++length) {
      if (length_in(result, first, length) != length_in(result, second, length)) return false;
    }
    return true;
  }
  /// Gives the owners of parameters their places from `end` on, node after node but for those that stand later; returns
  /// the end.
  static constexpr std::size_t place_parameters(findings& result, const std::array<bool, size + 1>& is_frozen,
                                                const std::array<std::size_t, size + 1>& later, bool frozen,
                                                std::size_t end) {
    std::size_t most = 0;
    for (const std::size_t each : later) most = each > most ? each : most;
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t back = 0; back <= most && back <= i; ++back) {
        const std::size_t candidate = back == 0 ? i : i - (most < i ? most : i) + back - 1;
        if (later[candidate] != i - candidate || result.owners[candidate] != candidate ||
            is_frozen[candidate] != frozen) {
          continue;
        }
        result.parameter_offsets[candidate] = end;
        end += result.parameter_counts[candidate];
      }
    }
    return end;
  }
  static constexpr findings found = find();

  /// Index in the user's list of the entry that node `node_index` comes from.
  static constexpr std::size_t entry_of(std::size_t node_index) {
    constexpr std::array<std::size_t, sizeof...(Layers) + 1> sizes{unfold<Layers>::type::size..., 0};
    std::size_t end = 0;
    for (std::size_t entry = 0; entry < sizeof...(Layers); ++entry) {
      end += sizes[entry];
      if (node_index < end) return entry;
    }
    return sizeof...(Layers);
  }

  static constexpr const auto& shapes = found.shapes;
  static constexpr const auto& parameter_counts = found.parameter_counts;
  static constexpr const auto& parameter_offsets = found.parameter_offsets;
  static constexpr const auto& trained_counts = found.trained_counts;
  static constexpr const auto& owners = found.owners;
  static constexpr const auto& groups = found.groups;
  static constexpr const auto& inputs = found.inputs;
  static constexpr const auto& inputs2 = found.inputs2;
};

template <class Input, class... Layers>
using structure = unfolded<Input, typename join<typename unfold<Layers>::type...>::type, Layers...>;

template <mistake What, class Where, class Layer, class Given, class Structure, std::size_t Index>
constexpr auto explain() {
  using namespace error;
  // clang-format off
  if constexpr (What == mistake::no_output_shape) return std::type_identity<no_output_shape<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_parameter_count) return std::type_identity<no_parameter_count<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_forward) return std::type_identity<no_forward<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_backward) return std::type_identity<no_backward<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_factors) return std::type_identity<no_factors<Where, Layer, Given>>{};
  else if constexpr (What == mistake::factor_outside_tape) return std::type_identity<factor_reads_outside_the_tape<Where, Layer, Given>>{};
  else if constexpr (What == mistake::factor_of_ids) return std::type_identity<factor_reads_ids<Where, Layer, Given>>{};
  else if constexpr (What == mistake::matrices_outside_parameters) return std::type_identity<matrices_lie_outside_the_parameters<Where, Layer, Given>>{};
  else if constexpr (What == mistake::of_two_kinds) return std::type_identity<error::layer_of_two_kinds<Where, Layer, Given>>{};
  else if constexpr (What == mistake::affine_map_does_not_fit) return std::type_identity<error::affine_map_does_not_fit<Where, Layer, Given>>{};
  else if constexpr (What == mistake::output_length_too_long) return std::type_identity<error::output_length_too_long<Where, Layer, Given>>{};
  else if constexpr (What == mistake::stored_order_of_two) return std::type_identity<stored_order_of_two_inputs<Where, Layer, Given>>{};
  else if constexpr (What == mistake::mixes_samples) return std::type_identity<mixes_samples<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_an_image) return std::type_identity<needs_an_image<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_features) return std::type_identity<needs_features<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_channels_and_positions) return std::type_identity<needs_channels_and_positions<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_a_volume) return std::type_identity<needs_a_volume<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_two_axes) return std::type_identity<needs_two_axes<Where, Layer, Given>>{};
  else if constexpr (What == mistake::reshape_changes_size) return std::type_identity<reshape_changes_size<Where, Layer, Given>>{};
  else if constexpr (What == mistake::output_padding_too_large) return std::type_identity<output_padding_too_large<Where, Layer, Given>>{};
  else if constexpr (What == mistake::kernel_too_large) return std::type_identity<kernel_larger_than_padded_input<Where, Layer, Given>>{};
  else if constexpr (What == mistake::groups_do_not_divide) return std::type_identity<groups_do_not_divide_channels<Where, Layer, Given>>{};
  else if constexpr (What == mistake::pool_padding_too_large) return std::type_identity<padding_larger_than_half_the_window<Where, Layer, Given>>{};
  else if constexpr (What == mistake::zero_is_no_size) return std::type_identity<zero_is_no_size<Where, Layer, Given>>{};
  else if constexpr (What == mistake::option_not_offered) return std::type_identity<option_not_offered<Where, Layer, Given>>{};
  else if constexpr (What == mistake::rank_of_zero) return std::type_identity<adapters_of_rank_zero<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_projection) return std::type_identity<adapters_on_no_projection<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_such_projection) return std::type_identity<no_such_projection<Where, Layer, Given>>{};
  else if constexpr (What == mistake::fewer_blocks) return std::type_identity<fewer_blocks_than_trained<Where, Layer, Given>>{};
  else if constexpr (What == mistake::softmax_is_in_the_loss) return std::type_identity<error::softmax_is_in_the_loss<Where, Layer, Given>>{};
  else if constexpr (What == mistake::activation_not_offered) return std::type_identity<error::activation_not_offered<Where, Layer, Given>>{};
  else if constexpr (What == mistake::layer_of_pytorch_not_offered) return std::type_identity<error::layer_of_pytorch_not_offered<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_derivative) return std::type_identity<error::no_derivative<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_probability) return std::type_identity<probability_out_of_range<Where, Layer, Given>>{};
  else if constexpr (What == mistake::rejects_input) return std::type_identity<layer_rejects_its_input<Where, Layer, Given>>{};
  else if constexpr (What == mistake::no_output) return std::type_identity<layer_gives_no_output<Where, Layer, Given>>{};
  else if constexpr (What == mistake::element_function_changes_shape) return std::type_identity<element_function_changes_shape<Where, Layer, Given>>{};
  else if constexpr (What == mistake::ids_into_a_float_layer) return std::type_identity<ids_into_a_float_layer<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_ids) return std::type_identity<needs_ids<Where, Layer, Given>>{};
  else if constexpr (What == mistake::needs_a_sequence) return std::type_identity<needs_a_sequence<Where, Layer, Given>>{};
  else if constexpr (What == mistake::ties_nest) return std::type_identity<ties_nest<Where, Layer, Given>>{};
  else if constexpr (What == mistake::tied_blocks_differ) return std::type_identity<tied_blocks_differ<Where, Layer, Given>>{};
  else if constexpr (What == mistake::lengths_are_lost) return std::type_identity<lengths_are_lost<Where, Layer, Given>>{};
  else if constexpr (What == mistake::branches_differ_in_length) return std::type_identity<branches_differ_in_length<Where, Layer, Given>>{};
  else if constexpr (What == mistake::branches_not_given) return std::type_identity<branches_not_given<Where, Layer, Given>>{};
  else if constexpr (What == mistake::not_on_tiles) return std::type_identity<not_on_tiles<Where, Layer, Given>>{};
  else if constexpr (What == mistake::heads_do_not_divide) return std::type_identity<heads_do_not_divide_features<Where, Layer, Given>>{};
  else if constexpr (What == mistake::key_value_heads_do_not_divide) return std::type_identity<key_value_heads_do_not_divide_heads<Where, Layer, Given>>{};
  else if constexpr (What == mistake::rotary_of_odd_width) return std::type_identity<rotary_heads_of_odd_width<Where, Layer, Given>>{};
  else if constexpr (What == mistake::branches_do_not_fit) {
    return std::type_identity<branches_do_not_fit<Where, Layer, Given, gets_shape<Structure::found.shapes[Structure::found.inputs2[Index]]>>>{};
  }
  else if constexpr (What == mistake::branches_differ) {
    return std::type_identity<residual_branches_differ<Where, Given, gets_shape<Structure::found.shapes[Structure::found.inputs2[Index]]>>>{};
  } else {
    using layer = typename Structure::template layer_at<Index>;
    constexpr shape in = Structure::found.shapes[Structure::found.inputs[Index]];
    constexpr shape in2 = Structure::found.shapes[Structure::found.inputs2[Index]];
    constexpr std::size_t covered = [](shape given, shape second) {
      std::size_t sum = 0;
      for (const factor& each : factors_of<layer>(given, second)) sum += each.size();
      return sum;
    }(in, in2);
    return std::type_identity<factors_do_not_cover_the_parameters<Where, Layer, count<covered>, count<parameter_count_of<layer>(in, in2)>>>{};
  }
  // clang-format on
}

/// Behind the gate: a sound network, of which nothing is to be said.
template <class Input, class... Layers>
struct sound {
  template <class Scalar>
  using network = static_network<Scalar, Input, Layers...>;
  static constexpr int say() noexcept { return 0; }
};
/// `chosen` is a sound network, or the explanation of what is wrong.
template <class Input, class... Layers>
struct gate {
  static constexpr auto choose() {
    if constexpr (sizeof...(Layers) == 0 || structure<Input, Layers...>::size == 0) {
      return std::type_identity<error::empty_network<error::gets<Input>>>{};
    } else if constexpr (Input::value.rank() == 0 || Input::value.has_gap()) {
      return std::type_identity<error::not_a_shape<error::gets<Input>>>{};
    } else if constexpr (Input::value.varying_axis() != 0 && Input::value.rank() != (Input::value.ids != 0 ? 1 : 2)) {
      return std::type_identity<error::variable_needs_positions<error::gets<Input>>>{};
    } else {
      using found = structure<Input, Layers...>;
      if constexpr (found::found.what != mistake::none) {
        constexpr std::size_t index = found::found.first_mistake;
        return explain<found::found.what, error::at_layer<found::entry_of(index)>,
                       error::layer_type<typename found::template layer_at<index>>,
                       error::gets_shape<found::found.shapes[found::found.inputs[index]]>, found, index>();
      } else {
        return std::type_identity<sound<Input, Layers...>>{};
      }
    }
  }
  using chosen = typename decltype(choose())::type;
};
// Spelled with numbers: nvcc hands the shape's own name on to the host's compiler without its argument.
template <shape Input, class... Layers>
using chosen = typename gate<
    name_with_lengths<name_of_extents<Input.ids, Input.e0, Input.e1, Input.e2, Input.e3>, Input.varying_axis()>,
    Layers...>::chosen;
/// A network, once what is to be said of it is said: by a call, so that nothing stands between the program's line and
/// the sentence, and the compiler prints little.
template <class Network, int /*said*/>
using explained_network = Network;

}  // namespace detail
}  // namespace pergrad::inline v0_1
