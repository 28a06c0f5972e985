// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/adaptive_avg_pool2d.hpp - means over windows that cut any image into a fixed number of (overlapping)
// parts
//
// Output row i of n sees input rows floor(i h / n) .. ceil((i + 1) h / n) - 1, as in PyTorch; columns likewise.
#pragma once

#include <cstddef>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/mistakes.hpp>
#include <pergrad/detail/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `adaptive_avg_pool2d<Height, Width>` on `{channels, height, width}`. PyTorch: `nn.AdaptiveAvgPool2d`.
template <std::size_t Height, std::size_t Width = Height>
struct adaptive_avg_pool2d : detail::mean_of_window {
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, Height, Width}; }
  [[nodiscard]] static constexpr window_range rows(shape in, std::size_t i) noexcept { return part(in.e1, Height, i); }
  [[nodiscard]] static constexpr window_range columns(shape in, std::size_t i) noexcept {
    return part(in.e2, Width, i);
  }
  /// Inputs that the mean of output (i, j) counts.
  [[nodiscard]] static constexpr std::size_t divisor(shape in, std::size_t i, std::size_t j) noexcept {
    const window_range row = rows(in, i);
    const window_range column = columns(in, j);
    return (row.end - row.begin) * (column.end - column.begin);
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (in.rank() != 3) return detail::mistake::needs_an_image;
    return Height == 0 || Width == 0 ? detail::mistake::zero_is_no_size : detail::mistake::none;
  }

 private:
  [[nodiscard]] static constexpr window_range part(std::size_t size, std::size_t parts, std::size_t i) noexcept {
    return {i * size / parts, ((i + 1) * size + parts - 1) / parts};
  }
};

}  // namespace pergrad::inline v0_1
