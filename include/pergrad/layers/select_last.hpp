// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/select_last.hpp - y = x_(n-1), with n the sample's own length
#pragma once

#include <cstddef>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `{positions, features}` to `{features}`: the last position that is there, zeros if none is (a convolution may leave
/// none of a short sample). PyTorch: `x[:, -1]`.
struct select_last {
  static constexpr const char* name = "select_last";
  static constexpr bool on_tiles = true;
  static constexpr bool knows_lengths = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e1}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 && in.varying_axis() != 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::ptrdiff_t length = tile.length(b);
      auto* y = tile.y(b);
      if (length == 0) {
        for (std::ptrdiff_t i = 0; i < features; ++i) y[i] = 0;
        continue;
      }
      const auto* x = tile.x(b) + (length - 1) * features;
      for (std::ptrdiff_t i = 0; i < features; ++i) y[i] = x[i];
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const auto* dy = tile.dy(b);
      auto* dx = tile.dx(b);
      for (std::ptrdiff_t i = 0; i < size; ++i) dx[i] = 0;
      if (tile.length(b) == 0) continue;
      dx += (tile.length(b) - 1) * features;
      for (std::ptrdiff_t i = 0; i < features; ++i) dx[i] = dy[i];
    }
  }
};

}  // namespace pergrad::inline v0_1
