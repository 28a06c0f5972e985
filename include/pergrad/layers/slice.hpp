// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/slice.hpp - some of the features: y_i = x_(First + i), i < Count
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `slice<First, Count>` on `{features}`: `{Count}`. What is left out has gradient 0. In the branches of `parallel`,
/// `with_state` or `merge` it takes records apart that hold several things. PyTorch: `x[:, First:First+Count]`.
template <std::size_t First, std::size_t Count>
struct slice {
  static constexpr const char* name = "slice";
  static constexpr bool on_tiles = true;
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{First}; }

  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return {Count}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (Count == 0) return detail::mistake::zero_is_no_size;
    if (in.rank() != 1) return detail::mistake::needs_features;
    return First + Count <= in.e0 ? detail::mistake::none : detail::mistake::rejects_input;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const auto* x = tile.x(b) + First;
      auto* y = tile.y(b);
      for (std::size_t i = 0; i < Count; ++i) y[i] = x[i];
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const std::size_t size = tile.in.size();
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const auto* dy = tile.dy(b);
      auto* dx = tile.dx(b);
      for (std::size_t i = 0; i < First; ++i) dx[i] = 0;
      for (std::size_t i = 0; i < Count; ++i) dx[First + i] = dy[i];
      for (std::size_t i = First + Count; i < size; ++i) dx[i] = 0;
    }
  }
};

}  // namespace pergrad::inline v0_1
