// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/mean_over_positions.hpp - y = (1/n) sum over t < n of x_t, with n the sample's own length
#pragma once

#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

/// `{positions, features}` to `{features}`: the mean over the positions that are there; over none (a convolution may
/// leave none of a short sample) it is 0. PyTorch: `x.mean(dim=1)`.
struct mean_over_positions {
  static constexpr const char* name = "mean_over_positions";
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  static constexpr bool knows_lengths = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e1}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }

  /// Features know nothing of each other.
  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept { return count_parts(in.e1, in.size()); }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto features = static_cast<std::ptrdiff_t>(team.in.e1);
    const auto [first, count] = range_of_part(team, features);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const std::ptrdiff_t length = team.length(b);
      const auto divisor = static_cast<scalar>(length < 1 ? 1 : length);
      const scalar* x = team.x(b) + first;
      scalar* y = team.y(b) + first;
      team.map(count, [&](const auto& at) {
        auto sum = at.zero();
        for (std::ptrdiff_t t = 0; t < length; ++t) sum += at(x + t * features);
        at.put(y, sum / divisor);
      });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto positions = static_cast<std::ptrdiff_t>(team.in.e0);
    const auto features = static_cast<std::ptrdiff_t>(team.in.e1);
    const auto [first, count] = range_of_part(team, features);
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      const std::ptrdiff_t length = team.length(b);
      const auto divisor = static_cast<scalar>(length < 1 ? 1 : length);
      const scalar* dy = team.dy(b) + first;
      scalar* dx = team.dx(b) + first;
      team.map(count, [&](const auto& at) {
        const auto share = at(dy) / divisor;
        for (std::ptrdiff_t t = 0; t < length; ++t) at.put(dx + t * features, share);
      });
      const part_range behind = range_of_part(team, (positions - length) * features);
      team.fill(behind.count, team.dx(b) + length * features + behind.first, scalar{0});
    }
  }
};

}  // namespace pergrad::inline v0_1
