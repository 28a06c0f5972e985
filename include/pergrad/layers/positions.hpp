// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/positions.hpp - y_t = x_t + p_t with one p_t a position, learned or made of sines
//
// The per-sample gradient of learned ones is dy itself: zero behind a sample's length, where dy is. Sinusoidal ones are
//     p[t, 2k] = sin(t w_k),  p[t, 2k + 1] = cos(t w_k),  w_k = 10000^(-2k / features)
// (Vaswani et al. 2017, arXiv:1706.03762, section 3.5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/layers/shared/rotations.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// On `{positions, features}`; keeps the shape and hands the gradient on as it is.
struct added_table : keeps_every_length {
  static constexpr bool on_tiles = true;
  static constexpr bool forgets_values = true;
  static constexpr bool on_device = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    return in.rank() == 2 && in.varying_axis() != 2 ? mistake::none : mistake::needs_a_sequence;
  }

  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept { return count_parts(in.e0, in.size()); }

  /// y = x + table, of the input's shape.
  template <class Team>
  PERGRAD_HD static void add(const Team& team, const typename Team::scalar* table) {
    const auto [first, count] = elements_of(team);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const auto* x = team.x(b) + first;
      auto* y = team.y(b) + first;
      const auto* added = table + first;
      team.map(count, [&](const auto& at) { at.put(y, at(x) + at(added)); });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    const auto [first, count] = elements_of(team);
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      team.copy(count, team.dy(b) + first, team.dx(b) + first);
    }
  }
  /// Of a team's part.
  template <class Team>
  [[nodiscard]] PERGRAD_HD static part_range elements_of(const Team& team) noexcept {
    const auto features = static_cast<std::ptrdiff_t>(team.in.e1);
    const part_range rows = range_of_part(team, static_cast<std::ptrdiff_t>(team.in.e0));
    return {rows.first * features, rows.count * features};
  }
};

}  // namespace detail

/// On `{positions, features}`; keeps the shape. Parameters: the table `[positions, features]`. PyTorch: `x +
/// self.table[:x.shape[1]]`; first values as those of `nn.Embedding`, N(0, 1).
struct learned_positions : detail::added_table {
  static constexpr const char* name = "learned_positions";
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return in.size(); }
  [[nodiscard]] static constexpr block_list<1> blocks(shape in) noexcept { return {{{"weight", {in.e0, in.e1}}}}; }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(1, in.size(), {source::backprop}));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    detail::initialise_rows(initialiser, {static_cast<double>(in.e1), static_cast<double>(in.e0)}, first, parameters);
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    add(team, team.parameters);
  }
  template <class Team>
  static void forward_behind(const Team& team) {
    add(team, team.parameters + team.first * static_cast<std::ptrdiff_t>(team.in.e1));
  }
};

/// On `{positions, features}`; keeps the shape and has no parameters. An odd number of features ends in a sine.
struct sinusoidal_positions : detail::added_table {
  static constexpr const char* name = "sinusoidal_positions";
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in) noexcept { return in.size(); }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    using scalar = typename Team::scalar;
    constexpr detail::log_of_base of_10000{0x1.26bb1bbb55516p+3, -0x1.f48ad494ea3e9p-51};
    const auto features = static_cast<std::ptrdiff_t>(team.in.e1);
    scalar* table = team.scratch(0);  // made for every tile
    const part_range rows = range_of_part(team, static_cast<std::ptrdiff_t>(team.in.e0));
    detail::each_rotation(team, rows.first + rows.count, features, of_10000,
                          [&](std::ptrdiff_t t, std::ptrdiff_t k, double sine, double cosine) {
                            if (t < rows.first) return;  // another part's; the rotation goes on from there
                            scalar* row = table + t * features;
                            row[2 * k] = static_cast<scalar>(sine);
                            if (2 * k + 1 < features) row[2 * k + 1] = static_cast<scalar>(cosine);
                          });
    add(team, table);
  }
};

}  // namespace pergrad::inline v0_1
