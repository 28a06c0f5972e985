// expect-error: layer_has_no_device_code<.*twice
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct twice {
  static constexpr bool on_tiles = true;
#ifdef COMPILE_FAIL_FIXED
  static constexpr bool on_device = true;  // all that it writes, verbs of the team write
#endif
  static constexpr pg::shape output_shape(pg::shape in) { return in; }
  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) copy(team, team.x(b), team.y(b));
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) copy(team, team.dy(b), team.dx(b));
  }
  template <class Team, class Scalar>
  PERGRAD_HD static void copy(const Team& team, const Scalar* from, Scalar* to) {
    team.map(static_cast<std::ptrdiff_t>(team.in.size()), [&](const auto& at) { at.put(to, at(from) + at(from)); });
  }
};

using net_type = pg::network<pg::shape{8}, pg::linear<4>, twice, pg::linear<3>>;
using loss_type = pg::cross_entropy;

#include "device_program.inc"
