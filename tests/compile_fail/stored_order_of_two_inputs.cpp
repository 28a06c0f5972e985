// expect-error: stored_order_of_two_inputs<.*at_layer<0>.*layer_type<times>
// expect-error: a team does not say how a second one is stored; see docs/custom_layers.md
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct times {
  static constexpr bool on_tiles = true;
#ifndef COMPILE_FAIL_FIXED
  static constexpr bool stored_order = true;
#endif
  static constexpr pg::shape output_shape(pg::shape in, pg::shape in2) { return in == in2 ? in : pg::shape{}; }
  template <class Team>
  static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) multiply(team, team.x(b), team.x2(b), team.y(b));
  }
  template <class Team>
  static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      if (team.wants_dx) multiply(team, team.dy(b), team.x2(b), team.dx(b));
      if (team.wants_dx2) multiply(team, team.dy(b), team.x(b), team.dx2(b));
    }
  }

 private:
  template <class Team, class Scalar>
  static void multiply(const Team& team, const Scalar* left, const Scalar* right, Scalar* out) {
    team.map(static_cast<std::ptrdiff_t>(team.in.size()), [&](const auto& at) { at.put(out, at(left) * at(right)); });
  }
};

using net_type = pg::network<pg::shape{1, 8, 8},
                             pg::merge<times, pg::sequential<pg::conv2d<4, 3>>, pg::sequential<pg::conv2d<4, 3>>>,
                             pg::flatten, pg::linear<10>>;

#include "whole_program.inc"
