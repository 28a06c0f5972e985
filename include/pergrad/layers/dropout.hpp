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

#include <pergrad/concepts.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/probability.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

/// `dropout<0.1>` on any shape. PyTorch: `nn.Dropout(0.1)`. Random only under `with_randomness` and in `dp_sgd`;
/// elsewhere, as in evaluation, it changes nothing. Takes no options.
template <probability Probability, class... Options>
struct dropout : detail::keeps_every_length {
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
  [[nodiscard]] static constexpr detail::mistake check(shape /*in*/) noexcept {
    if (sizeof...(Options) != 0) return detail::mistake::option_not_offered;
    return Probability.holds() ? detail::mistake::none : detail::mistake::no_probability;
  }

  static constexpr std::uint32_t threshold = Probability.threshold();  ///< an element is kept if its bits are not below
  /// What it is then multiplied by; of 1, which `check` refuses, it would be no constant.
  static constexpr double share = Probability.holds() ? Probability.scale() : 1;

  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept { return parts_of_mask(in.size()); }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto [first, count] = part_of_mask(team, static_cast<std::ptrdiff_t>(team.in.size()));
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const scalar* x = team.x(b) + first;
      scalar* y = team.y(b) + first;
      scalar* mask = team.saved(b) + first;
      draw_mask(team, b, {first, count}, mask);
      team.map(count, [&](const auto& at) { at.put(y, at(x) * at(mask)); });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto [first, count] = part_of_mask(team, static_cast<std::ptrdiff_t>(team.in.size()));
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      const scalar* dy = team.dy(b) + first;
      const scalar* mask = team.saved(b) + first;
      scalar* dx = team.dx(b) + first;
      team.map(count, [&](const auto& at) { at.put(dx, at(dy) * at(mask)); });
    }
  }

  static constexpr std::ptrdiff_t drawn_together = 16;  ///< elements whose bits are drawn as one block
  /// In how many parts a mask of so many elements may be drawn.
  [[nodiscard]] static constexpr std::size_t parts_of_mask(std::size_t elements) noexcept {
    return count_parts((elements + drawn_together - 1) / drawn_together, elements);
  }
  /// Of the first `count` elements, those of a team's part.
  template <class Team>
  [[nodiscard]] PERGRAD_HD static part_range part_of_mask(const Team& team, std::ptrdiff_t count) noexcept {
    const part_range drawn = range_of_part(team, (count + drawn_together - 1) / drawn_together);
    const std::ptrdiff_t first = drawn.first * drawn_together;
    const std::ptrdiff_t end = (drawn.first + drawn.count) * drawn_together;
    return {first, (end < count ? end : count) - (first < count ? first : count)};
  }
  /// What each of these elements of a sample is multiplied by: 0 or 1 / (1 - p), or 1 where nothing is random. `mask`
  /// is the place of the first one, whose number `drawn_together` divides.
  template <class Team, class Scalar>
  PERGRAD_HD static void draw_mask(const Team& team, std::ptrdiff_t sample, part_range of, Scalar* mask) {
    constexpr auto kept = static_cast<Scalar>(share);
    if (!team.is_random()) return team.fill(of.count, mask, Scalar{1});
    team.draw(sample, of.first, of.count,
              [&](std::ptrdiff_t i, std::uint32_t bits) { mask[i] = bits < threshold ? Scalar{0} : kept; });
  }
};

}  // namespace pergrad::inline v0_1
