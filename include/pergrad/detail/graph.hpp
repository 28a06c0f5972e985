// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/graph.hpp - unfolds a network's layers into one flat list of nodes
//
// A node says how many places back in the list its input lies (1: the node before it), so lists can be joined and
// repeated without renumbering. Types are looked up in an indexed base table: recursion over the list would be
// quadratic to compile.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <pergrad/layers/sequential.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

/// A layer whose input lies `Back` nodes before it; a branch sum has a second input `Back2` nodes before it.
template <class Layer, std::size_t Back = 1, std::size_t Back2 = 0>
struct node {
  using layer_type = Layer;
  static constexpr std::size_t back = Back;
  static constexpr std::size_t back2 = Back2;
};

template <class... Nodes>
struct node_list {
  static constexpr std::size_t size = sizeof...(Nodes);
};

/// The node that ends a residual: y = a + b.
struct branch_sum {
  static constexpr bool is_branch_sum = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
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
                              Nodes::back2 + (Nodes::back2 > Index ? Distance : 0)>...>;
};

/// Entries of a network's list that come to nothing.
template <class Layer>
struct unfold {
  using type = node_list<node<Layer>>;
};
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

template <class Body, class Shortcut>
struct residual_list {
  using type = typename join<Body, typename shift<Shortcut, Body::size>::type,
                             node_list<node<branch_sum, Shortcut::size + 1, 1>>>::type;
};
template <class Body>
struct residual_list<Body, node_list<>> {
  using type = typename join<Body, node_list<node<branch_sum, 1, Body::size + 1>>>::type;
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
  using type = typename residual_list<typename unfold<typename split::body>::type,
                                      typename unfold<typename split::shortcut>::type>::type;
};

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

}  // namespace pergrad::inline v0_1::detail
