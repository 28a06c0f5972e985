// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/added_table.hpp - what layers share that add one table to every sequence
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::detail {

/// On `{positions, features}`; keeps the shape and hands the gradient on as it is.
struct added_table {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    return in.rank() == 2 ? mistake::none : mistake::needs_a_sequence;
  }

  /// y = x + table, of the input's shape.
  template <class Tile>
  static void add(const Tile& tile, const typename Tile::scalar* table) {
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

}  // namespace pergrad::inline v0_1::detail
