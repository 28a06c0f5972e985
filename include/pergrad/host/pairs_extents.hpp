// SPDX-License-Identifier: Apache-2.0
// pergrad/host/pairs_extents.hpp - which convolutions with even kernels are filtered in pairs, and what that takes
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/detail/layout.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_host {

/// Extents of a convolution that is filtered in pairs (pairs.hpp).
struct pair_extents {
  index channels = 0;
  index outputs = 0;
  index height = 0;  ///< of the output
  index width = 0;
  index kernel_rows = 0;  ///< pairs of the kernel's rows
  index kernel_columns = 0;

  [[nodiscard]] constexpr index tile_rows() const noexcept { return (height + 1) / 2; }
  [[nodiscard]] constexpr index tile_columns() const noexcept { return (width + 1) / 2; }
  [[nodiscard]] constexpr index patch_rows() const noexcept { return tile_rows() + kernel_rows - 1; }
  [[nodiscard]] constexpr index patch_columns() const noexcept { return tile_columns() + kernel_columns - 1; }
  /// Elements of one of the nine transforms of the input, of the output or its gradient, and of the kernels.
  [[nodiscard]] constexpr index spread() const noexcept {
    return round_up(patch_rows() * patch_columns() * channels) + line;
  }
  [[nodiscard]] constexpr index tiles() const noexcept {
    return round_up(tile_rows() * tile_columns() * outputs) + line;
  }
  [[nodiscard]] constexpr index kernels() const noexcept {
    return round_up(kernel_rows * kernel_columns * channels * outputs) + line;
  }
  /// Elements that forward and a sample's gradient need.
  [[nodiscard]] constexpr index forward_room() const noexcept { return spread() + tiles(); }
  [[nodiscard]] constexpr index gradient_room() const noexcept { return spread() + tiles() + kernels(); }
};

[[nodiscard]] constexpr pair_extents extents_in_pairs(const affine_map& map) noexcept {
  return {static_cast<index>(map.in_channels),       static_cast<index>(map.out_channels),
          static_cast<index>(map.out_size.height),   static_cast<index>(map.out_size.width),
          static_cast<index>(map.kernel.height / 2), static_cast<index>(map.kernel.width / 2)};
}

/// Can the layer be formed so?
[[nodiscard]] constexpr bool fits_in_pairs(const affine_map& map) noexcept {
  return map.kernel.depth == 1 && map.kernel.height % 2 == 0 && map.kernel.width % 2 == 0 && map.stride == extent{1} &&
         map.dilation == extent{1} && map.groups == 1 && !map.adjoint && map.in_size.depth == 1 &&
         map.padding.depth == 0;
}
/// Is it faster so? As for F(2 x 2, 3 x 3) (winograd_extents.hpp): multiply-adds a tile, with those that the transforms
/// are worth.
[[nodiscard]] constexpr bool pays_in_pairs(const pair_extents& of) noexcept {
  constexpr index fewest_outputs = 64;
  const index products = of.kernel_rows * of.kernel_columns * of.channels * of.outputs;
  const index filtered = 9 * products + 134 * (of.channels + of.outputs);
  const index direct = 16 * products * (of.height * of.width) / (4 * of.tile_rows() * of.tile_columns());
  return of.height * of.width >= fewest_outputs && of.kernel_rows * of.kernel_columns >= 4 &&
         10 * filtered <= 7 * direct;
}

/// The last tiles' patches reach one pixel further than the outputs' windows where an extent is odd.
[[nodiscard]] constexpr halo with_whole_pairs(halo around, const pair_extents& of) noexcept {
  around.bottom += of.height % 2;
  around.right += of.width % 2;
  return around;
}

}  // namespace pergrad::inline v0_1::on_host
