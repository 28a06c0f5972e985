// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/learned_positions.hpp - y_t = x_t + p_t with one learned p_t a position
//
// The table's per-sample gradient is dy itself: zero behind a sample's length, where dy is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/elements.hpp>
#include <pergrad/detail/mistakes.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// On `{positions, features}`; keeps the shape. Parameters: the table `[positions, features]`. PyTorch: `x +
/// self.table[:x.shape[1]]`; first values as those of `nn.Embedding`, N(0, 1).
struct learned_positions {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return in.size(); }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(1, in.size(), {source::backprop}));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    const detail::fans fan{static_cast<double>(in.e1), static_cast<double>(in.e1)};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = static_cast<Scalar>(detail::table_value(initialiser, first + i, fan));
    }
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    const auto* table = tile.parameters;
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const auto* x = tile.x(b);
      auto* y = tile.y(b);
      on_host::for_each_vector<typename Tile::scalar>(size, [&](std::ptrdiff_t i, const auto& lanes) {
        lanes.store(y + i, lanes.load(x + i) + lanes.load(table + i));
      });
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      std::copy_n(tile.dy(b), tile.in.size(), tile.dx(b));
    }
  }
};

}  // namespace pergrad::inline v0_1
