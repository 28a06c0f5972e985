// expect-error: matrices_lie_outside_the_parameters<.*at_layer<1>.*layer_type<scale>.*gets<.*of_shape<64>
// expect-error: offset \+ rows \* columns is at most parameter_count; see docs/custom_layers.md
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct scale {  // y = x + w
  static constexpr bool on_tiles = true;
  static constexpr pg::shape output_shape(pg::shape in) { return in; }
  static constexpr std::size_t parameter_count(pg::shape in) { return in.e0; }
#ifdef COMPILE_FAIL_FIXED
  static constexpr std::array<pg::matrix, 1> matrices(pg::shape in) { return {pg::matrix{0, 2, in.e0 / 2}}; }
#else
  static constexpr std::array<pg::matrix, 1> matrices(pg::shape in) { return {pg::matrix{1, 2, in.e0 / 2}}; }
#endif
  static constexpr auto factors(pg::shape in) {
    return pg::list_factors(pg::elementwise_sum(1, in.e0, {pg::source::backprop}));
  }
  template <class Team>
  static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      team.map(static_cast<std::ptrdiff_t>(team.in.e0),
               [&](const auto& at) { at.put(team.y(b), at(team.x(b)) + at(team.parameters)); });
    }
  }
  template <class Team>
  static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      team.copy(static_cast<std::ptrdiff_t>(team.in.e0), team.dy(b), team.dx(b));
    }
  }
};

using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, scale, pg::linear<10>>;

#include "whole_program.inc"
