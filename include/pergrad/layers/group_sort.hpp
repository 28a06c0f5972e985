// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/group_sort.hpp - GroupSort: the values of each group of features in ascending order
//
// Anil, Lucas & Grosse 2019, arXiv:1811.05381; MaxMin is groups of two. y is x in another order, so ‖y‖ = ‖x‖, and dx
// is dy taken back: what a certificate bounds grows in neither direction, and no slope is below 1 as those of tanh are.
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

/// `group_sort<>`, `group_sort<Size>` with 2 or more: sorts each `Size` consecutive features of a position, or channels
/// of a pixel, which they must divide. On `{features}`, `{positions, features}` of any length each, and images and
/// volumes; keeps the shape. No parameters. Of equal values the first is taken to be the smaller one; a NaN is the
/// largest. Work: `Size` comparisons a value.
template <std::size_t Size = 2>
struct group_sort {
  static constexpr const char* name = "group_sort";
  static constexpr bool by_position = true;
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;

  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{Size}; }
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (Size < 2) return detail::mistake::option_not_offered;
    if (in.varying_axis() == 2) return detail::mistake::needs_a_sequence;  // {channels, positions}
    return (in.rank() == 2 ? in.e1 : in.e0) % Size == 0 ? detail::mistake::none : detail::mistake::groups_do_not_divide;
  }

  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept { return count_parts(in.size()); }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const auto* x = team.x(b);
      auto* y = team.y(b);
      for_each_value(team, x, [=](std::ptrdiff_t from, std::ptrdiff_t to) { y[to] = x[from]; });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      const auto* dy = team.dy(b);
      auto* dx = team.dx(b);
      for_each_value(team, team.x(b), [=](std::ptrdiff_t from, std::ptrdiff_t to) { dx[from] = dy[to]; });
    }
  }

 private:
  /// f(from, to): where a value lies, and where it lies when its group is sorted. An order of all values, NaN included,
  /// so that every place is taken once.
  template <class Team, class Scalar, class Function>
  PERGRAD_HD static void for_each_value(const Team& team, const Scalar* x, const Function& f) {
    constexpr auto size = static_cast<std::ptrdiff_t>(Size);
    const auto all = static_cast<std::ptrdiff_t>(team.in.size());
    const std::ptrdiff_t step = team.in.rank() < 3 ? 1 : all / static_cast<std::ptrdiff_t>(team.in.e0);
    const part_range own = range_of_part(team, all);
    team.each(own.count, [=](std::ptrdiff_t of_part) {
      const std::ptrdiff_t i = own.first + of_part;
      const std::ptrdiff_t member = i / step % size;
      const std::ptrdiff_t first = i - member * step;
      std::ptrdiff_t rank = 0;
      for (std::ptrdiff_t k = 0; k < size; ++k) {
        const Scalar other = x[first + k * step];
        if (k < member ? !is_before(x[i], other) : is_before(other, x[i])) ++rank;
      }
      f(i, first + rank * step);
    });
  }
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static constexpr bool is_before(Scalar a, Scalar b) noexcept {
    return a < b || (b != b && a == a);
  }
};

}  // namespace pergrad::inline v0_1
