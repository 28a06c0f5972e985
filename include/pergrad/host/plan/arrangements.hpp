// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/arrangements.hpp - in which order values are stored: what nodes demand, what they wish, what they
// get
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/graph/layout.hpp>
#include <pergrad/graph/plan.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/windows.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_host {

/// How the input of a node that reads images must be stored; no channels: any way will do.
[[nodiscard]] constexpr arrangement reads(const detail::plan_node& node, shape in) {
  const bool any = node.kind == node_kind::affine ? takes_one_pixel(node.map) && in.rank() == 1
                                                  : node.kind != node_kind::pooling && !node.reads_images;
  return any ? arrangement{.channels = 0} : arrange(in, node.channels_first);
}
/// How a node stores its output; no channels: as the reader wishes.
[[nodiscard]] constexpr arrangement writes(const detail::plan_node& node, shape out) {
  const bool chosen = node.kind == node_kind::affine || node.kind == node_kind::pooling || node.reads_images;
  return chosen ? arrange(out, node.channels_first) : arrangement{.channels = 0};
}
/// Are the values of such a node stored as its input is?
[[nodiscard]] constexpr bool keeps_arrangement(node_kind kind) {
  return kind == node_kind::reshape || kind == node_kind::elementwise || kind == node_kind::branch_sum;
}
/// The column of pixels that a shape of rank 2 is stored as: as it is if it is one, else (positions, features).
[[nodiscard]] constexpr arrangement column_of(shape of, arrangement now) {
  return now.agrees_with(arrange(of, true)) ? arrange(of, true) : arrange(of, false);
}
/// A wish is granted, except that a sequence stays a column of positions.
[[nodiscard]] constexpr arrangement choose(shape of, arrangement wish) {
  if (wish.channels == 0 || (of.rank() == 2 && wish != arrange(of, true))) return arrange(of, false);
  return wish;
}

/// How the first reader of each slot that cares wants it to be stored.
template <class Structure>
[[nodiscard]] constexpr std::array<arrangement, Structure::size + 1> wishes(
    const std::array<arrangement, Structure::size>& read_as) {
  std::array<arrangement, Structure::size + 1> wished{};
  for (arrangement& each : wished) each.channels = 0;
  for (std::size_t i = Structure::size; i-- > 0;) {
    const detail::plan_node& node = detail::network_plan<Structure>::nodes[i];
    arrangement wish = read_as[i];
    if (node.swaps_axes) {
      const shape out = Structure::shapes[i + 1];
      wish = choose(out, wished[i + 1]).transposed();
      if (wished[i + 1].channels == 0) wish.channels = 0;
    } else if (keeps_arrangement(node.kind)) {
      wish = wished[i + 1];
    }
    if (wish.channels != 0) wished[Structure::inputs[i]] = wish;
  }
  return wished;
}

}  // namespace pergrad::inline v0_1::on_host
