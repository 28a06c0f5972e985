// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/sequence_bias.hpp - one learned position behind the last one of every sample
//
// Its per-sample gradient is dy at that position, which lies where the sample ends.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `{positions, features}` to `{positions + 1, features}`; a sample of length n has n + 1 positions then. Parameters:
/// one position `[features]`; first values N(0, 1). PyTorch: `torch.cat([x, bias.expand(len(x), 1, -1)], 1)`.
struct sequence_bias {
  static constexpr const char* name = "sequence_bias";
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0 + 1, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept {
    return length + 1;
  }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return in.e1; }
  [[nodiscard]] static constexpr block_list<1> blocks(shape in) noexcept { return {{{"bias", {in.e1}}}}; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return in.e1; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(1, in.e1, {source::saved}));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    const auto features = static_cast<double>(in.e1);
    detail::initialise_rows(initialiser, {features, features}, first, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::ptrdiff_t end = tile.length(b) * features;
      auto* y = tile.y(b);
      std::copy_n(tile.x(b), end, y);
      std::copy_n(tile.parameters, features, y + end);
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto features = static_cast<std::ptrdiff_t>(tile.in.e1);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::ptrdiff_t end = tile.length(b) * features;
      const auto* dy = tile.dy(b);
      std::copy_n(dy + end, features, tile.saved(b));
      if (!tile.wants_dx) continue;
      auto* dx = tile.dx(b);
      std::copy_n(dy, end, dx);
      std::fill(dx + end, dx + static_cast<std::ptrdiff_t>(tile.in.size()), scalar{0});
    }
  }
};

}  // namespace pergrad::inline v0_1
