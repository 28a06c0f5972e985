// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/channel_affine.hpp - y = gain_c x + shift_c, one gain and one shift a channel
//
// What is left of a batch norm whose statistics are constants: gain = weight / sqrt(variance + eps), shift = bias -
// mean gain. Per-sample gradients: of gain_c the sum of dy x over the pixels of channel c, of shift_c the sum of dy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/channel_norm.hpp>
#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `channel_affine` on an input of any rank. The channels are the first axis, as in PyTorch's batch norm: the features
/// of a vector, the channels of `{channels, positions}`, of an image or of a volume. `frozen<channel_affine>` is a
/// batch norm with fixed statistics. Parameters: all gains, then all shifts, at first 1 and 0.
struct channel_affine {
  static constexpr const char* name = "channel_affine";
  static constexpr bool on_tiles = true;
  static constexpr bool stored_order = true;
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return 2 * in.e0; }
  [[nodiscard]] static constexpr block_list<2> blocks(shape in) noexcept {
    return {{{"weight", {in.e0}}, {"bias", {in.e0}}}};
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return parameter_count(in); }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(1, in.e0, {.from = source::saved}),
                        elementwise_sum(1, in.e0, {.from = source::saved, .offset = in.e0}));
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.varying_axis() != 0 ? detail::mistake::lengths_are_lost : detail::mistake::none;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    detail::initialise_affine(initialiser, first, in.e0, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      detail::normalisation::scale_image(tile.x_layout, tile.x(b), tile.y_layout, tile.y(b), tile.parameters,
                                         tile.parameters + tile.in.e0);
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      if (tile.wants_factors) {
        detail::normalisation::sum_image(tile.dy_layout, tile.dy(b), tile.x_layout, tile.x(b), tile.saved(b),
                                         tile.saved(b) + tile.in.e0);
      }
      if (!tile.wants_dx) continue;
      detail::normalisation::scale_image(tile.dy_layout, tile.dy(b), tile.dx_layout, tile.dx(b), tile.parameters,
                                         static_cast<const scalar*>(nullptr));
    }
  }
};

}  // namespace pergrad::inline v0_1
