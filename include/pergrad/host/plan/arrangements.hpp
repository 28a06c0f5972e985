// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/arrangements.hpp - in which order values are stored: what nodes demand, what they wish, what they
// get
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/concepts.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/windows.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_host {

/// Are the layer's rank-2 shapes (channels, positions)?
template <class Layer>
[[nodiscard]] constexpr bool is_channels_first() {
  return requires { requires Layer::channels_first; };
}
/// Is its derivative a function of its output?
template <class Layer>
[[nodiscard]] constexpr bool derives_from_output() {
  return requires { requires Layer::derivative_from_output; };
}
/// Does it swap channels and positions?
template <class Layer>
[[nodiscard]] constexpr bool swaps_channels_and_positions() {
  return requires { requires Layer::is_transpose; };
}
/// How the input of a node that reads images must be stored; no channels: any way will do.
template <class Layer>
[[nodiscard]] constexpr arrangement reads(node_kind kind, shape in, const affine_map& map) {
  const bool any = kind == node_kind::affine ? takes_one_pixel(map) && in.rank() == 1
                                             : kind != node_kind::pooling && !detail::reads_images<Layer>;
  return any ? arrangement{.channels = 0} : arrange(in, is_channels_first<Layer>());
}
/// How a node stores its output; no channels: as the reader wishes.
template <class Layer>
[[nodiscard]] constexpr arrangement writes(node_kind kind, shape out) {
  const bool chosen = kind == node_kind::affine || kind == node_kind::pooling || detail::reads_images<Layer>;
  return chosen ? arrange(out, is_channels_first<Layer>()) : arrangement{.channels = 0};
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
    const std::array<node_row, Structure::size>& nodes, const std::array<arrangement, Structure::size>& read_as,
    const std::array<bool, Structure::size>& transposes) {
  std::array<arrangement, Structure::size + 1> wished{};
  for (arrangement& each : wished) each.channels = 0;
  for (std::size_t i = Structure::size; i-- > 0;) {
    arrangement wish = read_as[i];
    if (transposes[i]) {
      const shape out = Structure::shapes[i + 1];
      wish = choose(out, wished[i + 1]).transposed();
      if (wished[i + 1].channels == 0) wish.channels = 0;
    } else if (keeps_arrangement(nodes[i].kind)) {
      wish = wished[i + 1];
    }
    if (wish.channels != 0) wished[Structure::inputs[i]] = wish;
  }
  return wished;
}

}  // namespace pergrad::inline v0_1::on_host
