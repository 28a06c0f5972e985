// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/channel_affine.hpp - y = gain_c x + shift_c, one gain and one shift a channel
//
// What is left of a batch norm whose statistics are constants: gain = weight / sqrt(variance + eps), shift = bias - mean
// gain. Per-sample gradients: of gain_c the sum of dy x over the pixels of channel c, of shift_c the sum of dy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/channel_norm.hpp>
#include <pergrad/detail/image_access.hpp>
#include <pergrad/detail/mistakes.hpp>
#include <pergrad/detail/normalisation.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `channel_affine` on an input of any rank. The channels are the first axis, as in PyTorch's batch norm: the features
/// of a vector, the channels of `{channels, positions}`, of an image or of a volume. `frozen<channel_affine>` is a batch
/// norm with fixed statistics. Parameters: all gains, then all shifts, at first 1 and 0.
struct channel_affine {
  static constexpr bool on_tiles = true;
  static constexpr bool stored_order = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return 2 * in.e0; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return parameter_count(in); }
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in) noexcept { return 3 * in.size(); }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(1, in.e0, {.from = source::saved}),
                        elementwise_sum(1, in.e0, {.from = source::saved, .offset = in.e0}));
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.varying_axis != 0 ? detail::mistake::lengths_are_lost : detail::mistake::none;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    detail::initialise_affine(initialiser, first, in.e0, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const detail::image_extents image{tile.in};
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const detail::image_source<scalar> x{image, tile.x_layout, tile.x(b), tile.scratch(b)};
      const detail::image_target<scalar> y{image, tile.y_layout, tile.y(b), tile.scratch(b) + image.size()};
      detail::normalisation::scale_image(x.at, x.values, y.at, y.values, tile.parameters,
                                         tile.parameters + image.channels);
      y.finish(image, tile.y_layout, tile.y(b));
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const detail::image_extents image{tile.in};
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const detail::image_source<scalar> x{image, tile.x_layout, tile.x(b), tile.scratch(b)};
      const detail::image_source<scalar> dy{image, tile.dy_layout, tile.dy(b), tile.scratch(b) + image.size()};
      detail::normalisation::sum_image(dy.at, dy.values, x.at, x.values, tile.saved(b),
                                       tile.saved(b) + image.channels);
      if (!tile.wants_dx) continue;
      const detail::image_target<scalar> dx{image, tile.dx_layout, tile.dx(b), tile.scratch(b) + 2 * image.size()};
      detail::normalisation::scale_image(dy.at, dy.values, dx.at, dx.values, tile.parameters,
                                         static_cast<const scalar*>(nullptr));
      dx.finish(image, tile.dx_layout, tile.dx(b));
    }
  }
};

}  // namespace pergrad::inline v0_1
