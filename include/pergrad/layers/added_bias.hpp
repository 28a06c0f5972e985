// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/added_bias.hpp - y = x + b, one b a feature: the bias of a layer whose weight is not trained
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

/// On `{features}`, or position by position on `{positions, features}`, of any length each; keeps the shape. Behind
/// `frozen<linear<Features, no_bias>>` it is that layer's bias (BitFit: Ben Zaken et al. 2021, arXiv:2106.10199).
/// Parameters: bias `[features]`, at first 0 as a norm's shifts: nothing here knows the fan-in of the layer in front.
/// Per-sample gradient: the sum of dy over the positions.
struct added_bias {
  static constexpr const char* name = "added_bias";
  static constexpr bool by_position = true;
  static constexpr bool forgets_values = true;
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return features(in); }
  [[nodiscard]] static constexpr block_list<1> blocks(shape in) noexcept { return {{{"bias", {features(in)}}}}; }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(in.size() / features(in), features(in), {source::backprop, 0, features(in)}));
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() > 2 ? detail::mistake::needs_features : detail::mistake::none;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape /*in*/, const Initialiser& initialiser, std::uint64_t first,
                         std::span<Scalar> parameters) {
    detail::initialise_affine(initialiser, first, 0, parameters);
  }

  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept {
    return count_parts(in.size() / features(in), in.size());
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const auto width = static_cast<std::ptrdiff_t>(features(team.in));
    const auto [first, rows] = range_of_part(team, static_cast<std::ptrdiff_t>(team.in.size()) / width);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const auto* x = team.x(b) + first * width;
      auto* y = team.y(b) + first * width;
      team.map(rows, width, [&](std::ptrdiff_t r, const auto& at) {
        at.put(y + r * width, at(x + r * width) + at(team.parameters));
      });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    const auto [first, count] = range_of_part(team, static_cast<std::ptrdiff_t>(team.in.size()));
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      team.copy(count, team.dy(b) + first, team.dx(b) + first);
    }
  }

 private:
  [[nodiscard]] PERGRAD_HD static constexpr std::size_t features(shape in) noexcept {
    return in.rank() == 1 ? in.e0 : in.e1;
  }
};

}  // namespace pergrad::inline v0_1
