// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/positions.hpp - the positions of a leaf's deltas, one after the other
#pragma once

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// Calls f(t, offset in x, offset in delta) for the first `count` positions.
template <class Function>
void for_each_position(const outer_leaf& leaf, index count, Function&& f) {
  index i = 0;
  index j = 0;
  index x_row = 0;
  index delta_row = 0;
  for (index t = 0; t < count; ++t) {
    f(t, x_row + j * leaf.step[1].x, delta_row + j * leaf.step[1].delta);
    if (++j < leaf.step[1].extent) continue;
    j = 0;
    ++i;
    const index plane = i / leaf.step[0].extent;
    const index row = i % leaf.step[0].extent;
    x_row = plane * leaf.step_plane.x + row * leaf.step[0].x;
    delta_row = plane * leaf.step_plane.delta + row * leaf.step[0].delta;
  }
}

}  // namespace pergrad::inline v0_1::on_host
