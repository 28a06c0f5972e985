// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/channel_affine.hpp - y = gain_c x + shift_c, one gain and one shift a channel
//
// What is left of a batch norm whose statistics are constants: gain = weight / sqrt(variance + eps), shift = bias -
// mean gain. Per-sample gradients: of gain_c the sum of dy x over the pixels of channel c, of shift_c the sum of dy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

/// `channel_affine` on an input of any rank. The channels are the first axis, as in PyTorch's batch norm: the features
/// of a vector, the channels of `{channels, positions}`, of an image or of a volume. `frozen<channel_affine>` is a
/// batch norm with fixed statistics. Parameters: all gains, then all shifts, at first 1 and 0.
struct channel_affine {
  static constexpr const char* name = "channel_affine";
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
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
  /// Channels know nothing of each other.
  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept { return count_parts(in.e0, in.size()); }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    detail::initialise_affine(initialiser, first, in.e0, parameters);
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const auto channels = static_cast<std::ptrdiff_t>(team.in.e0);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      scale(team, team.x_layout, team.x(b), team.y_layout, team.y(b), team.parameters + channels);
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto channels = static_cast<std::ptrdiff_t>(team.in.e0);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const scalar* x = team.x(b);
      const scalar* dy = team.dy(b);
      scalar* saved = team.saved(b);
      if (team.wants_factors) {
        team.for_each_group(channels, 1, [&](const auto& groups) {
          static_cast<void>(groups.template reduce<2>(
              team.dy_layout, team.x_layout, {{saved, saved + channels}},
              [&](const auto& /*channels*/) {
                return [=](const auto& at) {
                  const auto slope = at.first(dy);
                  return values(slope * at.second(x), slope);
                };
              },
              [](std::ptrdiff_t /*channel*/, const auto& sums) { return sums; }));
        });
      }
      if (team.wants_dx) {
        scale(team, team.dy_layout, dy, team.dx_layout, team.dx(b), static_cast<const scalar*>(nullptr));
      }
    }
  }

 private:
  /// to = gain_c from + shift_c; `shift` may be null.
  template <class Team, class Layout>
  PERGRAD_HD static void scale(const Team& team, const Layout& from_layout, const typename Team::scalar* from,
                               const Layout& to_layout, typename Team::scalar* to, const typename Team::scalar* shift) {
    using scalar = typename Team::scalar;
    const scalar* gain = team.parameters;
    team.for_each_group(static_cast<std::ptrdiff_t>(team.in.e0), 1, [&](const auto& groups) {
      groups.map(from_layout, to_layout, [&](const auto& here) {
        const auto gains = here.per_channel([&](std::ptrdiff_t c) { return gain[c]; });
        const auto shifts = here.per_channel([&](std::ptrdiff_t c) { return shift == nullptr ? scalar{0} : shift[c]; });
        return [=](const auto& at) { at.put_second(to, at.first(from) * gains + shifts); };
      });
    });
  }
};

}  // namespace pergrad::inline v0_1
