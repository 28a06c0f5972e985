// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/slices.hpp - a part of the input, one behind the other as it lies there; what is left out has gradient
// 0
//
//     slice           y_i = x_(First + i),  i < Count, of the features
//     take_positions  y_t = x_(First + t),  t < Count, of the positions
//     select_last     y = x_(n-1),  with n the sample's own length
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Are there `count` of `all` from `first` on? Of a template's argument 0 nvcc says that it need not be compared.
[[nodiscard]] constexpr bool has_range(std::size_t all, std::size_t first, std::size_t count) noexcept {
  return count <= all && first <= all - count;
}

/// Copies the output's size of values from `Layer::begin_of(team, sample)` on; a negative one stands for zeros.
template <class Layer>
struct part_of_input {
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;

  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept { return count_parts(in.size()); }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const auto [first, count] = range_of_part(team, static_cast<std::ptrdiff_t>(team.out.size()));
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const std::ptrdiff_t begin = Layer::begin_of(team, b);
      if (begin < 0) {
        team.fill(count, team.y(b) + first, 0);
      } else {
        team.copy(count, team.x(b) + begin + first, team.y(b) + first);
      }
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    const auto [first, count] = range_of_part(team, static_cast<std::ptrdiff_t>(team.in.size()));
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      const std::ptrdiff_t begin = Layer::begin_of(team, b);
      const std::ptrdiff_t end = begin + static_cast<std::ptrdiff_t>(team.out.size());
      const std::ptrdiff_t from = first < begin ? begin : first;
      const std::ptrdiff_t to = end < first + count ? end : first + count;
      team.fill(count, team.dx(b) + first, 0);
      if (begin >= 0 && from < to) team.copy(to - from, team.dy(b) + (from - begin), team.dx(b) + from);
    }
  }
};

}  // namespace detail

/// `slice<First, Count>` on `{features}`: `{Count}`. In the branches of `parallel`, `with_state` or `merge` it takes
/// records apart that hold several things. PyTorch: `x[:, First:First+Count]`.
template <std::size_t First, std::size_t Count>
struct slice : detail::part_of_input<slice<First, Count>> {
  static constexpr const char* name = "slice";
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{First}; }
  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return {Count}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (Count == 0) return detail::mistake::zero_is_no_size;
    const bool fits = in.rank() == 1 && detail::has_range(in.e0, First, Count);
    return fits ? detail::mistake::none : detail::mistake::rejects_input;
  }
  [[nodiscard]] PERGRAD_HD static std::ptrdiff_t begin_of(const auto& /*team*/, std::ptrdiff_t /*sample*/) noexcept {
    return static_cast<std::ptrdiff_t>(First);
  }
};

/// `take_positions<First, Count>` on `{positions, features}`: `{Count, features}`. PyTorch: `x[:, First:First+Count]`.
/// Of samples with lengths of their own only the first positions can be taken (First = 0), because others might not be
/// there.
template <std::size_t First, std::size_t Count>
struct take_positions : detail::part_of_input<take_positions<First, Count>> {
  static constexpr const char* name = "take_positions";
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{First}; }
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    shape out{Count, in.e1};
    if (First == 0) out.set_varying_axis(in.varying_axis());
    return out;
  }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept
      requires(First == 0) {
    return length < Count ? length : Count;
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (Count == 0) return detail::mistake::zero_is_no_size;
    if (in.rank() != 2 || in.varying_axis() == 2) return detail::mistake::needs_a_sequence;
    return detail::has_range(in.e0, First, Count) ? detail::mistake::none : detail::mistake::rejects_input;
  }
  [[nodiscard]] PERGRAD_HD static std::ptrdiff_t begin_of(const auto& team, std::ptrdiff_t /*sample*/) noexcept {
    return static_cast<std::ptrdiff_t>(First * team.in.e1);
  }
};

/// `{positions, features}` to `{features}`: the last position that is there, zeros if none is (a convolution may leave
/// none of a short sample). PyTorch: `x[:, -1]`.
struct select_last : detail::part_of_input<select_last> {
  static constexpr const char* name = "select_last";
  static constexpr bool knows_lengths = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e1}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 && in.varying_axis() != 2 ? detail::mistake::none : detail::mistake::needs_a_sequence;
  }
  [[nodiscard]] PERGRAD_HD static std::ptrdiff_t begin_of(const auto& team, std::ptrdiff_t sample) noexcept {
    return (team.length(sample) - 1) * static_cast<std::ptrdiff_t>(team.in.e1);
  }
};

}  // namespace pergrad::inline v0_1
