// SPDX-License-Identifier: Apache-2.0
// pergrad/graph/graph.hpp - unfolds a network's layers into one flat list of nodes
//
// A node says how many places back in the list its input lies (1: the node before it), so lists can be joined and
// repeated without renumbering. Types are looked up in an indexed base table: recursion over the list would be
// quadratic to compile.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <pergrad/graph/sequential.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

/// Which block of shared parameters a node uses: the same for every use of `Size` nodes.
template <std::size_t Key, std::size_t Index, std::size_t Size>
struct tie {};
struct untied {};
/// Of a node that two keys claim: one of them would be forgotten.
struct tied_twice {};
/// A tie in numbers. No address stands for it: with -fsanitize=undefined g++ 12 takes no comparison of an address with
/// null for a constant expression.
struct tie_number {
  std::size_t key = 0;
  std::size_t index = 0;
  std::size_t size = 0;  ///< 0 for parameters that are not shared
};
template <class Tie>
inline constexpr tie_number tie_of{};
template <std::size_t Key, std::size_t Index, std::size_t Size>
inline constexpr tie_number tie_of<tie<Key, Index, Size>>{Key, Index, Size};
template <class Before, class After>
using tie_once = std::conditional_t<std::is_same_v<Before, untied>, After, tied_twice>;

/// A layer whose input lies `Back` nodes before it; one with two inputs has the second `Back2` nodes before it. Its
/// parameters stand behind those of the node that comes `Later` nodes after it. `Recomputed`: so many nodes of its
/// recomputed block are left, it among them; 0: what it has computed is kept.
template <class Layer, std::size_t Back = 1, std::size_t Back2 = 0, bool Frozen = false, std::size_t Group = 0,
          class Tie = untied, std::size_t Later = 0, std::size_t Recomputed = 0>
struct node {
  using layer_type = Layer;
  using tie_type = Tie;
  static constexpr std::size_t back = Back;
  static constexpr std::size_t back2 = Back2;
  static constexpr bool is_frozen = Frozen;
  static constexpr std::size_t group = Group;
  static constexpr std::size_t later = Later;
  static constexpr std::size_t recomputed = Recomputed;
};

template <class... Nodes>
struct node_list {
  static constexpr std::size_t size = sizeof...(Nodes);
};

/// The node that ends a residual: y = a + b.
struct branch_sum {
  static constexpr const char* name = "residual";
  static constexpr bool is_branch_sum = true;
  [[nodiscard]] static constexpr shape output_shape(shape first, shape /*second*/) noexcept { return first; }
};

template <class... Lists>
struct join;
template <>
struct join<> {
  using type = node_list<>;
};
template <class... Nodes>
struct join<node_list<Nodes...>> {
  using type = node_list<Nodes...>;
};
template <class... First, class... Second>
struct join<node_list<First...>, node_list<Second...>> {
  using type = node_list<First..., Second...>;
};
template <class... First, class... Second, class... Third, class... Fourth, class... Rest>
struct join<node_list<First...>, node_list<Second...>, node_list<Third...>, node_list<Fourth...>, Rest...> {
  using type = typename join<node_list<First..., Second..., Third..., Fourth...>, Rest...>::type;
};
template <class... First, class... Second, class... Third>
struct join<node_list<First...>, node_list<Second...>, node_list<Third...>> {
  using type = node_list<First..., Second..., Third...>;
};

/// A list whose outside input lies `Distance` nodes further back than it would if it followed that input directly.
template <class List, std::size_t Distance, class Indices = std::make_index_sequence<List::size>>
struct shift;
template <class... Nodes, std::size_t Distance, std::size_t... Index>
struct shift<node_list<Nodes...>, Distance, std::index_sequence<Index...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back + (Nodes::back > Index ? Distance : 0),
                              Nodes::back2 + (Nodes::back2 > Index ? Distance : 0), Nodes::is_frozen, Nodes::group,
                              typename Nodes::tie_type, Nodes::later, Nodes::recomputed>...>;
};

/// Two branches from the same input, and the layer in which they meet. An empty branch is the input itself.
template <class Layer, class First, class Second>
struct merge_lists {
  using type = typename join<First, typename shift<Second, First::size>::type,
                             node_list<node<Layer, Second::size + 1, (Second::size > 0 ? 1 : First::size + 1)>>>::type;
};

/// A layer may be a composition of others: then it says `using unfolds_to = sequential<...>;`.
template <class Layer>
struct unfold {
  using type = node_list<node<Layer>>;
};
template <class Layer>
requires requires { typename Layer::unfolds_to; }
struct unfold<Layer> : unfold<typename Layer::unfolds_to> {};
template <class... Layers>
struct unfold<sequential<Layers...>> {
  using type = typename join<typename unfold<Layers>::type...>::type;
};

template <class List, std::size_t Count>
struct repeat_list {
  using half = typename repeat_list<List, Count / 2>::type;
  using type =
      std::conditional_t<Count % 2 == 0, typename join<half, half>::type, typename join<half, half, List>::type>;
};
template <class List>
struct repeat_list<List, 1> {
  using type = List;
};
template <class List>
struct repeat_list<List, 0> {
  using type = node_list<>;
};
template <std::size_t Count, class... Layers>
struct unfold<repeat<Count, Layers...>> {
  using type = typename repeat_list<typename unfold<sequential<Layers...>>::type, Count>::type;
};

/// Splits the projection, if any, from a residual's body.
template <class Body, class... Layers>
struct split_residual;
template <class... Body>
struct split_residual<sequential<Body...>> {
  using body = sequential<Body...>;
  using shortcut = sequential<>;
};
template <class... Body, class... Shortcut>
struct split_residual<sequential<Body...>, projection<Shortcut...>> {
  using body = sequential<Body...>;
  using shortcut = sequential<Shortcut...>;
};
template <class... Body, class Next, class... Rest>
struct split_residual<sequential<Body...>, Next, Rest...> : split_residual<sequential<Body..., Next>, Rest...> {};

template <class... Layers>
struct unfold<residual<Layers...>> {
  using split = split_residual<sequential<>, Layers...>;
  using type = typename merge_lists<branch_sum, typename unfold<typename split::body>::type,
                                    typename unfold<typename split::shortcut>::type>::type;
};
template <class Layer, class First, class Second>
struct unfold<merge<Layer, First, Second>>
    : merge_lists<Layer, typename unfold<First>::type, typename unfold<Second>::type> {};

template <class List>
struct freeze;
template <class... Nodes>
struct freeze<node_list<Nodes...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back, Nodes::back2, true, Nodes::group,
                              typename Nodes::tie_type, Nodes::later, Nodes::recomputed>...>;
};
template <class... Layers>
struct unfold<frozen<Layers...>> : freeze<typename unfold<sequential<Layers...>>::type> {};

template <std::size_t Group, class List>
struct put_into_group;
template <std::size_t Group, class... Nodes>
struct put_into_group<Group, node_list<Nodes...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back, Nodes::back2, Nodes::is_frozen, Group,
                              typename Nodes::tie_type, Nodes::later, Nodes::recomputed>...>;
};
template <std::size_t Group, class... Layers>
struct unfold<parameter_group<Group, Layers...>> : put_into_group<Group, typename unfold<sequential<Layers...>>::type> {
};

template <std::size_t Key, class List, class Indices = std::make_index_sequence<List::size>>
struct tie_together;
template <std::size_t Key, class... Nodes, std::size_t... Index>
struct tie_together<Key, node_list<Nodes...>, std::index_sequence<Index...>> {
  using type = node_list<
      node<typename Nodes::layer_type, Nodes::back, Nodes::back2, Nodes::is_frozen, Nodes::group,
           tie_once<typename Nodes::tie_type, tie<Key, Index, sizeof...(Nodes)>>, Nodes::later, Nodes::recomputed>...>;
};
template <std::size_t Key, class... Layers>
struct unfold<tied<Key, Layers...>> : tie_together<Key, typename unfold<sequential<Layers...>>::type> {};

template <class List, class Indices = std::make_index_sequence<List::size>>
struct recompute;
template <class... Nodes, std::size_t... Index>
struct recompute<node_list<Nodes...>, std::index_sequence<Index...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back, Nodes::back2, Nodes::is_frozen, Nodes::group,
                              typename Nodes::tie_type, Nodes::later, sizeof...(Nodes) - Index>...>;
};
template <class... Layers>
struct unfold<recomputed<Layers...>> : recompute<typename unfold<sequential<Layers...>>::type> {};

/// The layers, with parameters that stand behind those of the node `Nodes` nodes later: compositions use it where
/// PyTorch numbers their parameters in another order than they compute in.
template <std::size_t Nodes, class... Layers>
struct parameters_later {};
template <std::size_t Count, class List>
struct postpone;
template <std::size_t Count, class... Nodes>
struct postpone<Count, node_list<Nodes...>> {
  using type = node_list<node<typename Nodes::layer_type, Nodes::back, Nodes::back2, Nodes::is_frozen, Nodes::group,
                              typename Nodes::tie_type, Count, Nodes::recomputed>...>;
};
template <std::size_t Count, class... Layers>
struct unfold<parameters_later<Count, Layers...>> : postpone<Count, typename unfold<sequential<Layers...>>::type> {};

template <std::size_t Index, class Type>
struct table_entry {};
template <class Indices, class... Types>
struct type_table_base;
template <std::size_t... Index, class... Types>
struct type_table_base<std::index_sequence<Index...>, Types...> : table_entry<Index, Types>... {};
/// Constant-time lookup of a type by index.
template <class... Types>
struct type_table : type_table_base<std::index_sequence_for<Types...>, Types...> {};
template <std::size_t Index, class Type>
std::type_identity<Type> look_up(table_entry<Index, Type>);
template <std::size_t Index, class Table>
using type_at = typename decltype(look_up<Index>(Table{}))::type;

/// Calls f(std::integral_constant<std::size_t, 0>{}), …, f(…<Count - 1>); no fold, which clang limits to 256 operands.
template <std::size_t Count, class Function>
constexpr void for_each_index(Function&& f) {
  [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    using expand = int[];
    static_cast<void>(expand{0, (static_cast<void>(f(std::integral_constant<std::size_t, Index>{})), 0)...});
  }
  (std::make_index_sequence<Count>{});
}

template <class Layer, class Function>
constexpr void call_with_layer(Function& f, std::size_t index) {
  f(std::type_identity<Layer>{}, index);
}
template <class Function, class... Layers>
constexpr void call_in_order(std::type_identity<type_table<Layers...>> /*layers*/, Function& f) {
  using call = void (*)(Function&, std::size_t);
  constexpr std::array<call, sizeof...(Layers)> calls{&call_with_layer<Layers, Function>...};
  for (std::size_t i = 0; i < sizeof...(Layers); ++i) calls[i](f, i);
}
/// Calls f(std::type_identity<layer>{}, index) for the layers of a `structure` in their order. It is compiled once for
/// each type of layer, however many nodes there are.
template <class Structure, class Function>
constexpr void for_each_layer(Function&& f) {
  call_in_order(std::type_identity<typename Structure::table>{}, f);
}

}  // namespace pergrad::inline v0_1::detail
