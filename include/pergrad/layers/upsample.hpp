// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/upsample.hpp - every pixel several times (nearest neighbour): y[c, i, j] = x[c, floor(i / f), floor(j
// / g)]
//
// A window of one pixel that several outputs see; dx is the sum of what they get.
#pragma once

#include <cstddef>

#include <pergrad/concepts.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/pools.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `upsample<Factor>` on `{channels, positions}`, `{channels, height, width}` or `{channels, depth, height, width}`.
/// Factor: one number, or `extent{height, width}` or `extent{depth, height, width}`. PyTorch: `nn.Upsample` with
/// `scale_factor` and its default `mode='nearest'`.
template <extent Factor, class... Options>
struct upsample : detail::mean_of_window {
  using rule_is_of = upsample;
  static constexpr const char* name = "upsample";
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    const extent size = detail::image_size(in);
    return detail::image_shape(
        in.e0, {size.depth * Factor.depth, size.height * Factor.height, size.width * Factor.width}, in.rank() - 1);
  }
  [[nodiscard]] static constexpr window_range planes(shape in, std::size_t d) noexcept {
    return pixel(in.rank() < 4 ? 0 : d / Factor.depth);
  }
  [[nodiscard]] static constexpr window_range rows(shape /*in*/, std::size_t i) noexcept {
    return pixel(i / Factor.height);
  }
  [[nodiscard]] static constexpr window_range columns(shape in, std::size_t j) noexcept {
    return pixel(in.rank() < 3 ? 0 : j / Factor.width);
  }
  [[nodiscard]] static constexpr std::size_t divisor(shape /*in*/, std::size_t /*d*/, std::size_t /*i*/,
                                                     std::size_t /*j*/) noexcept {
    return 1;
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (in.rank() < 2) return detail::mistake::needs_an_image;
    if (sizeof...(Options) != 0 || !detail::fits_axes(Factor, in.rank() - 1))
      return detail::mistake::option_not_offered;
    return detail::has_zero(Factor) ? detail::mistake::zero_is_no_size : detail::mistake::none;
  }

 private:
  [[nodiscard]] static constexpr window_range pixel(std::size_t number) noexcept { return {number, number + 1}; }
};

}  // namespace pergrad::inline v0_1
