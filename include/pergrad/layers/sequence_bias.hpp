// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/sequence_bias.hpp - one learned position behind the last one of every sample
//
// Its per-sample gradient is dy at that position, which lies where the sample ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
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
  static constexpr bool on_device = true;

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

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const auto features = static_cast<std::ptrdiff_t>(team.in.e1);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const std::ptrdiff_t end = team.length(b) * features;
      team.copy(end, team.x(b), team.y(b));
      team.copy(features, team.parameters, team.y(b) + end);
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    const auto features = static_cast<std::ptrdiff_t>(team.in.e1);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const std::ptrdiff_t end = team.length(b) * features;
      team.copy(features, team.dy(b) + end, team.saved(b));
      if (!team.wants_dx) continue;
      team.copy(end, team.dy(b), team.dx(b));
      team.fill(static_cast<std::ptrdiff_t>(team.in.size()) - end, team.dx(b) + end, 0);
    }
  }
};

}  // namespace pergrad::inline v0_1
