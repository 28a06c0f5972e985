// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/parts.hpp - gradients over many positions: how many of them go together
//
// Such a gradient is formed a block of outputs and a few lines of positions at a time, so that what a part reads stays
// in the cache while the whole view passes by. Every part after the first reads and writes all sums of its block again.
// What was measured: docs/internals/tricks.md.
#pragma once

#include <algorithm>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/tables.hpp>

namespace pergrad::inline v0_1::on_host::parts {

/// Do the deltas of one sample, those of a block of outputs, leave too little of the cache for anything else?
template <class Scalar>
[[nodiscard]] constexpr bool pay(const outer_leaf& leaf) noexcept {
  constexpr index most_cached = (index{3} << 16) / static_cast<index>(sizeof(Scalar));  // 192 KB
  return leaf.delta_stride == 1 && leaf.positions() * std::min(leaf.outputs, panel_block) > most_cached;
}

/// Lines of positions in a part: as many as stay in the second cache with what they see of x, their deltas and the sums
/// of a block of outputs.
template <class Scalar>
[[nodiscard]] constexpr index lines(const outer_leaf& leaf) noexcept {
  constexpr index fewest = 256;  // positions: with fewer, adding up costs more than the cache gives
  constexpr index most = 1024;   // more have not been measured
  constexpr index cached = (index{3} << 19) / static_cast<index>(sizeof(Scalar));  // 1.5 MiB
  const index block = std::min(leaf.outputs, panel_block);
  index beside = leaf.view_width() * block + (leaf.view_plane.extent - 1) * leaf.view_plane.x;
  for (const view_axis& axis : leaf.view) beside += (axis.extent - 1) * axis.x;
  const index positions = leaf.step[1].extent;
  const index fitting = (cached - beside) / (leaf.step[0].x + positions * block);
  return std::max<index>(1, std::clamp(fitting * positions, fewest, most) / positions);
}

}  // namespace pergrad::inline v0_1::on_host::parts
