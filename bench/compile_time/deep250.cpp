// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/deep250.cpp - what depth alone costs to compile: 250 small layers.
#include <cstddef>
#include <type_traits>
#include <utility>

#include "training_step.hpp"

namespace pg = pergrad;

// linear<16>, relu, linear<16>, relu, ... , written as a pack so that the network sees 250 separate layers.
template <std::size_t Index>
using layer_at = std::conditional_t<Index % 2 == 0, pg::linear<16>, pg::relu>;

template <class Indices>
struct deep;
template <std::size_t... Indices>
struct deep<std::index_sequence<Indices...>> {
  using type = pg::network<pg::shape{16}, layer_at<Indices>...>;
};
using net = deep<std::make_index_sequence<250>>::type;
static_assert(net::structure::size == 250);

int main() { return compile_time::take_a_step<net>(); }
