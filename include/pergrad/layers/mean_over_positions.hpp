// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/mean_over_positions.hpp - y = (1/n) sum over t < n of x_t, with n the sample's own length
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1 {

/// `{positions, features}` to `{features}`: the mean over the positions that are there; over none (a convolution may
/// leave none of a short sample) it is 0. PyTorch: `x.mean(dim=1)`.
struct mean_over_positions {
  static constexpr const char* name = "mean_over_positions";
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
      const auto divisor = on_host::splat(static_cast<scalar>(std::max<std::ptrdiff_t>(1, length)));
      const scalar* x = tile.x(b);
      scalar* y = tile.y(b);
      on_host::for_each_vector<scalar>(features, [&](std::ptrdiff_t i, const auto& lanes) {
        auto sum = on_host::splat(scalar{0});
        for (std::ptrdiff_t t = 0; t < length; ++t) sum += lanes.load(x + t * features + i);
        lanes.store(y + i, sum / divisor);
      });
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto positions = static_cast<std::ptrdiff_t>(tile.in.e0);
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const std::ptrdiff_t length = tile.length(b);
      const auto divisor = on_host::splat(static_cast<scalar>(std::max<std::ptrdiff_t>(1, length)));
      const scalar* dy = tile.dy(b);
      scalar* dx = tile.dx(b);
      on_host::for_each_vector<scalar>(features, [&](std::ptrdiff_t i, const auto& lanes) {
        const on_host::vector<scalar> share = lanes.load(dy + i) / divisor;
        for (std::ptrdiff_t t = 0; t < length; ++t) lanes.store(dx + t * features + i, share);
      });
      std::fill(dx + length * features, dx + positions * features, scalar{0});
    }
  }
};

}  // namespace pergrad::inline v0_1
