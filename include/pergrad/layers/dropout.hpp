// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/dropout.hpp - inverted dropout: y = x m / (1 - p) with m = 0 at probability p, in training only
//
// The mask is a function of (run's key, step, record, layer, element): it does not depend on tiles, chunks, threads or
// executors, and a record keeps its mask within a step, so clipping sees the gradient of one fixed function
// (Srivastava et al. 2014, JMLR 15).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/probability.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `dropout<0.1>` on any shape. PyTorch: `nn.Dropout(0.1)`. Random only under `with_randomness` and in `dp_sgd`;
/// elsewhere, as in evaluation, it changes nothing.
template <probability Probability>
struct dropout {
  static constexpr const char* name = "dropout";
  static constexpr bool on_tiles = true;
  [[nodiscard]] static constexpr auto settings() noexcept {
    return std::array{Probability.numerator, Probability.denominator};
  }

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return in.size(); }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr detail::mistake check(shape /*in*/) noexcept {
    return Probability.holds() ? detail::mistake::none : detail::mistake::no_probability;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const std::size_t count = tile.in.size();
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const scalar* x = tile.x(b);
      scalar* y = tile.y(b);
      scalar* mask = tile.saved(b);
      draw_mask(tile, b, count, mask);
      for (std::size_t i = 0; i < count; ++i) y[i] = x[i] * mask[i];
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const std::size_t count = tile.in.size();
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      const auto* dy = tile.dy(b);
      const auto* mask = tile.saved(b);
      auto* dx = tile.dx(b);
      for (std::size_t i = 0; i < count; ++i) dx[i] = dy[i] * mask[i];
    }
  }

  /// What each of a sample's first `count` elements is multiplied by: 0 or 1 / (1 - p), or 1 where nothing is random.
  template <class Tile, class Scalar>
  static void draw_mask(const Tile& tile, std::ptrdiff_t sample, std::size_t count, Scalar* mask) {
    constexpr std::uint32_t threshold = Probability.threshold();
    constexpr auto kept = static_cast<Scalar>(Probability.scale());
    if (!tile.is_random()) {
      for (std::size_t i = 0; i < count; ++i) mask[i] = 1;
      return;
    }
    constexpr std::size_t together = 256;
    std::uint32_t bits[together];
    for (std::size_t first = 0; first < count; first += together) {
      const std::size_t here = count - first < together ? count - first : together;
      tile.random_bits(sample, first, {bits, here});
      for (std::size_t i = 0; i < here; ++i) mask[first + i] = bits[i] < threshold ? Scalar{0} : kept;
    }
  }
};

}  // namespace pergrad::inline v0_1
