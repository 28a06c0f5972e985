// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/mean_over_positions.hpp - y = (1/n) sum over t < n of x_t, with n the sample's own length
#pragma once

#include <cstddef>

#include <pergrad/detail/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `{positions, features}` to `{features}`: the mean over the positions that are there. PyTorch: `x.mean(dim=1)`.
struct mean_over_positions {
  static constexpr bool on_tiles = true;
  static constexpr bool knows_lengths = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e1}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::ptrdiff_t length = tile.length(b);
      const scalar* x = tile.x(b);
      scalar* y = tile.y(b);
      for (std::ptrdiff_t i = 0; i < features; ++i) y[i] = 0;
      for (std::ptrdiff_t t = 0; t < length; ++t) {
        for (std::ptrdiff_t i = 0; i < features; ++i) y[i] += x[t * features + i];
      }
      for (std::ptrdiff_t i = 0; i < features; ++i) y[i] /= static_cast<scalar>(length);
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto positions = static_cast<std::ptrdiff_t>(tile.in.e0);
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const std::ptrdiff_t length = tile.length(b);
      const scalar* dy = tile.dy(b);
      scalar* dx = tile.dx(b);
      for (std::ptrdiff_t t = 0; t < positions; ++t) {
        for (std::ptrdiff_t i = 0; i < features; ++i) {
          dx[t * features + i] = t < length ? dy[i] / static_cast<scalar>(length) : scalar{0};
        }
      }
    }
  }
};

}  // namespace pergrad::inline v0_1
