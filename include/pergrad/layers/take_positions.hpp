// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/take_positions.hpp - some of the positions of a sequence: y_t = x_(First + t), t < Count
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `take_positions<First, Count>` on `{positions, features}`: `{Count, features}`. What is left out has gradient 0.
/// PyTorch: `x[:, First:First+Count]`. Of samples with lengths of their own only the first positions can be taken
/// (First = 0), because others might not be there.
template <std::size_t First, std::size_t Count>
struct take_positions {
  static constexpr const char* name = "take_positions";
  static constexpr bool on_tiles = true;
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{First}; }

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    shape out{Count, in.e1};
    if (First == 0) out.set_varying_axis(in.varying_axis());
    return out;
  }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept
      requires(First == 0) {
    return length < Count ? length : Count;
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (Count == 0) return detail::mistake::zero_is_no_size;
    if (in.rank() != 2 || in.varying_axis() == 2) return detail::mistake::needs_a_sequence;
    return First + Count <= in.e0 ? detail::mistake::none : detail::mistake::rejects_input;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    const std::size_t size = Count * tile.in.e1;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      std::copy_n(tile.x(b) + First * tile.in.e1, size, tile.y(b));
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const std::size_t begin = First * tile.in.e1;
    const std::size_t end = begin + Count * tile.in.e1;
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      auto* dx = tile.dx(b);
      std::fill_n(dx, begin, 0);
      std::copy_n(tile.dy(b), end - begin, dx + begin);
      std::fill_n(dx + end, tile.in.size() - end, 0);
    }
  }
};

}  // namespace pergrad::inline v0_1
