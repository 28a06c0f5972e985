// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/winograd_extents.hpp - which convolutions are formed by minimal filtering, and what that takes of a
// tape
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/windows.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_host {

/// Extents of a convolution, or of its input gradient, by minimal filtering (winograd.hpp).
struct winograd_extents {
  index channels = 0;  ///< of what is read
  index outputs = 0;   ///< channels of what is written
  index height = 0;    ///< of what is written
  index width = 0;
  index above = 0;  ///< pixels of the first patch before the image that is read
  index left = 0;

  [[nodiscard]] constexpr index patch_rows() const noexcept { return (height + 1) / 2; }
  [[nodiscard]] constexpr index patch_columns() const noexcept { return (width + 1) / 2; }
  /// Elements from one of the 16 matrices of V, M or U to the next, of which each has `count`. The line more keeps them
  /// off each other's sets of the L1 cache.
  [[nodiscard]] static constexpr index step(index count) noexcept { return round_up(count) + line; }
  [[nodiscard]] constexpr index spread_step(index rows_together) const noexcept {
    return step(rows_together * patch_columns() * channels);
  }
  [[nodiscard]] constexpr index sums_step(index rows_together) const noexcept {
    return step(rows_together * patch_columns() * outputs);
  }
  [[nodiscard]] constexpr index panel_step() const noexcept { return step(channels * outputs); }
  /// Elements for V and M of so many rows of patches.
  [[nodiscard]] constexpr index room(index rows_together) const noexcept {
    return 16 * (spread_step(rows_together) + sums_step(rows_together));
  }
  /// Rows of patches that go together, of all samples of a tile.
  [[nodiscard]] constexpr index rows_together() const noexcept {
    return std::max<index>(1, patches_together / patch_columns());
  }
  static constexpr index patches_together = 64;
};

/// With fewer, the transformed weights are read for too few patches.
inline constexpr index fewest_outputs_to_filter = 64;

/// Can the layer be formed so?
[[nodiscard]] constexpr bool winograd_fits(const affine_map& map) noexcept {
  return map.kernel == extent{1, 3, 3} && map.stride == extent{1} && map.dilation == extent{1} && map.groups == 1 &&
         !map.adjoint && map.in_size.depth == 1 && map.padding.depth == 0 && map.padding.height <= 2 &&
         map.padding.width <= 2;
}
[[nodiscard]] constexpr winograd_extents winograd_forward(const affine_map& map) noexcept {
  return {static_cast<index>(map.in_channels),     static_cast<index>(map.out_channels),
          static_cast<index>(map.out_size.height), static_cast<index>(map.out_size.width),
          static_cast<index>(map.padding.height),  static_cast<index>(map.padding.width)};
}
/// A convolution of delta, padded with what is left of the kernel's reach.
[[nodiscard]] constexpr winograd_extents winograd_backward(const affine_map& map) noexcept {
  return {static_cast<index>(map.out_channels),       static_cast<index>(map.in_channels),
          static_cast<index>(map.in_size.height),     static_cast<index>(map.in_size.width),
          2 - static_cast<index>(map.padding.height), 2 - static_cast<index>(map.padding.width)};
}
/// Is it faster so? In multiply-adds a patch, of which a core does 32 a cycle: the transforms move 16 values for each
/// channel in and out and cost what was measured (docs/internals/tricks.md); outputs of a patch beyond the image are
/// wasted.
[[nodiscard]] constexpr bool winograd_pays(const winograd_extents& of) noexcept {
  const index products = of.channels * of.outputs;
  const index filtered = 18 * products + 134 * of.channels + 74 * of.outputs;
  const index direct = 36 * products * (of.height * of.width) / (4 * of.patch_rows() * of.patch_columns());
  return of.height * of.width >= fewest_outputs_to_filter && 10 * filtered <= 7 * direct;
}

/// Extents of a convolution with an even kernel that is filtered in pairs (pairs.hpp).
struct pair_extents {
  index channels = 0;
  index outputs = 0;
  index height = 0;  ///< of the output
  index width = 0;
  index kernel_rows = 0;  ///< pairs of the kernel's rows
  index kernel_columns = 0;

  [[nodiscard]] constexpr index output_rows() const noexcept { return (height + 1) / 2; }
  [[nodiscard]] constexpr index output_columns() const noexcept { return (width + 1) / 2; }
  [[nodiscard]] constexpr index input_rows() const noexcept { return output_rows() + kernel_rows - 1; }
  [[nodiscard]] constexpr index input_columns() const noexcept { return output_columns() + kernel_columns - 1; }
  /// Elements of one of the nine transforms of the input, of the output or its gradient, and of the kernels.
  [[nodiscard]] constexpr index of_input() const noexcept {
    return winograd_extents::step(input_rows() * input_columns() * channels);
  }
  [[nodiscard]] constexpr index of_output() const noexcept {
    return winograd_extents::step(output_rows() * output_columns() * outputs);
  }
  [[nodiscard]] constexpr index of_kernels() const noexcept {
    return winograd_extents::step(kernel_rows * kernel_columns * channels * outputs);
  }
  /// Elements that forward, or a sample's gradient, needs.
  [[nodiscard]] constexpr index room() const noexcept { return of_input() + of_output() + of_kernels(); }
};
[[nodiscard]] constexpr pair_extents extents_in_pairs(const affine_map& map) noexcept {
  return {static_cast<index>(map.in_channels),       static_cast<index>(map.out_channels),
          static_cast<index>(map.out_size.height),   static_cast<index>(map.out_size.width),
          static_cast<index>(map.kernel.height / 2), static_cast<index>(map.kernel.width / 2)};
}
[[nodiscard]] constexpr bool fits_in_pairs(const affine_map& map) noexcept {
  return map.kernel.depth == 1 && map.kernel.height % 2 == 0 && map.kernel.width % 2 == 0 && map.stride == extent{1} &&
         map.dilation == extent{1} && map.groups == 1 && !map.adjoint && map.in_size.depth == 1 &&
         map.padding.depth == 0;
}
/// Is it faster so? As above.
[[nodiscard]] constexpr bool pays_in_pairs(const pair_extents& of) noexcept {
  const index products = of.kernel_rows * of.kernel_columns * of.channels * of.outputs;
  const index filtered = 9 * products + 134 * (of.channels + of.outputs);
  const index direct = 16 * products * (of.height * of.width) / (4 * of.output_rows() * of.output_columns());
  return of.height * of.width >= fewest_outputs_to_filter && of.kernel_rows * of.kernel_columns >= 4 &&
         10 * filtered <= 7 * direct;
}

/// Decides for both directions of an affine node whose `input_gradient` is known.
constexpr void choose_winograd(node_row& row) noexcept {
  row.in_pairs = fits_in_pairs(row.map) && pays_in_pairs(extents_in_pairs(row.map));
  if (!winograd_fits(row.map)) return;
  const winograd_extents forward = winograd_forward(row.map);
  const winograd_extents backward = winograd_backward(row.map);
  if (winograd_pays(forward)) row.winograd_rows = forward.rows_together();
  if (row.input_gradient && winograd_pays(backward)) row.winograd_dx_rows = backward.rows_together();
}

/// Elements for the weights that one direction reads.
[[nodiscard]] constexpr index panel_elements(const node_row& row, index winograd_rows, bool in_pairs = false) noexcept {
  if (in_pairs) return 9 * extents_in_pairs(row.map).of_kernels();
  return winograd_rows > 0 ? 16 * winograd_forward(row.map).panel_step()
                           : round_up(static_cast<index>(row.map.weight_count()));
}

/// The last patches reach one pixel further than the outputs' windows where an extent is odd.
[[nodiscard]] constexpr halo with_whole_patches(halo around, const auto& of) noexcept {
  around.bottom += of.height % 2;
  around.right += of.width % 2;
  return around;
}
constexpr void widen(halo& around, halo by) { around = around.with(by); }

/// Zeros that an affine node reads around its input, and around the gradient of its output.
[[nodiscard]] constexpr halo halo_of_input(const node_row& row) {
  if (row.map.adjoint) return backward_halo(row.map);
  const halo around = forward_halo(row.map);
  if (row.in_pairs) return with_whole_patches(around, extents_in_pairs(row.map));
  return row.winograd_rows > 0 ? with_whole_patches(around, winograd_forward(row.map)) : around;
}
[[nodiscard]] constexpr halo halo_of_delta(const node_row& row) {
  if (row.map.adjoint) return forward_halo(row.map);
  halo around = row.input_gradient && !row.whole_view ? backward_halo(row.map) : halo{};
  if (row.in_pairs) widen(around, with_whole_patches({}, extents_in_pairs(row.map)));
  if (!row.input_gradient || row.whole_view) return around;
  return row.winograd_dx_rows > 0 ? with_whole_patches(around, winograd_backward(row.map)) : around;
}

/// Elements that a worker needs for V and M, of the node that needs most; a tile may have fewer rows than go together.
template <class Tables>
constexpr index choose_winograd_rooms(Tables& t) noexcept {
  index most = 0;
  const auto room_of = [&](index& rows_together, const winograd_extents& of) {
    if (rows_together == 0) return;
    rows_together = std::min(rows_together, t.tile * of.patch_rows());
    most = std::max(most, of.room(rows_together));
  };
  for (node_row& row : t.nodes) {
    t.any_in_pairs = t.any_in_pairs || row.in_pairs;
    if (row.in_pairs) most = std::max(most, extents_in_pairs(row.map).room());
    room_of(row.winograd_rows, winograd_forward(row.map));
    room_of(row.winograd_dx_rows, winograd_backward(row.map));
  }
  return most;
}

}  // namespace pergrad::inline v0_1::on_host
