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

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/probability.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `dropout<0.1>` on any shape. PyTorch: `nn.Dropout(0.1)`. Random only under `with_randomness` and in `dp_sgd`;
/// elsewhere, as in evaluation, it changes nothing. Takes no options.
template <probability Probability, class... Options>
struct dropout {
  static constexpr const char* name = "dropout";
  static constexpr bool by_position = true;
  static constexpr bool forgets_values = true;
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  [[nodiscard]] static constexpr auto settings() noexcept {
    return std::array{Probability.numerator, Probability.denominator};
  }

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return in.size(); }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr detail::mistake check(shape /*in*/) noexcept {
    if (sizeof...(Options) != 0) return detail::mistake::option_not_offered;
    return Probability.holds() ? detail::mistake::none : detail::mistake::no_probability;
  }

  static constexpr std::uint32_t threshold = Probability.threshold();  ///< an element is kept if its bits are not below
  /// What it is then multiplied by; of 1, which `check` refuses, it would be no constant.
  static constexpr double share = Probability.holds() ? static_cast<double>(Probability.scale()) : 1;

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto count = static_cast<std::ptrdiff_t>(team.in.size());
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const scalar* x = team.x(b);
      scalar* y = team.y(b);
      scalar* mask = team.saved(b);
      draw_mask(team, b, count, mask);
      team.map(count, [&](const auto& at) { at.put(y, at(x) * at(mask)); });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto count = static_cast<std::ptrdiff_t>(team.in.size());
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      const scalar* dy = team.dy(b);
      const scalar* mask = team.saved(b);
      scalar* dx = team.dx(b);
      team.map(count, [&](const auto& at) { at.put(dx, at(dy) * at(mask)); });
    }
  }

  /// What each of a sample's first `count` elements is multiplied by: 0 or 1 / (1 - p), or 1 where nothing is random.
  template <class Team, class Scalar>
  PERGRAD_HD static void draw_mask(const Team& team, std::ptrdiff_t sample, std::ptrdiff_t count, Scalar* mask) {
    constexpr auto kept = static_cast<Scalar>(share);
    if (!team.is_random()) return team.fill(count, mask, Scalar{1});
    team.draw(sample, 0, count,
              [&](std::ptrdiff_t i, std::uint32_t bits) { mask[i] = bits < threshold ? Scalar{0} : kept; });
  }
};

}  // namespace pergrad::inline v0_1
