// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/parallel.hpp - several branches on one input, their outputs side by side
//
// y = [B1(x), B2(x), ...]: features of vectors and of sequences, channels of images. No parameters of its own; the
// input's gradient is the sum of the branches' gradients.
#pragma once

#include <cstddef>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Two inputs side by side. In PyTorch's order each is a number of rows, and rows of the output are one of each: a
/// sequence's rows are its positions if it is joined `ByPosition`, anything else is one row.
template <bool ByPosition>
struct concatenation {
  static constexpr bool on_tiles = true;
  static constexpr bool forgets_values = true;
  static constexpr bool on_device = true;
  static constexpr bool joins_positions = true;

  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept {
    return count_parts(ByPosition && in.rank() == 2 ? in.e0 : in.size(), in.size());
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const rows_of rows{team.in, team.in2};
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      copy_rows(team, rows.count, rows.first, team.x(b), rows.first, team.y(b), rows.both());
      copy_rows(team, rows.count, rows.second, team.x2(b), rows.second, team.y(b) + rows.first, rows.both());
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    const rows_of rows{team.in, team.in2};
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      if (team.wants_dx) copy_rows(team, rows.count, rows.first, team.dy(b), rows.both(), team.dx(b), rows.first);
      if (team.wants_dx2) {
        copy_rows(team, rows.count, rows.second, team.dy(b) + rows.first, rows.both(), team.dx2(b), rows.second);
      }
    }
  }

 private:
  template <class Team>
  PERGRAD_HD static void copy_rows(const Team& team, std::ptrdiff_t rows, std::ptrdiff_t width,
                                   const typename Team::scalar* from, std::ptrdiff_t from_step,
                                   typename Team::scalar* to, std::ptrdiff_t to_step) {
    if (rows == 1) {
      const part_range own = range_of_part(team, width);
      return team.copy(own.count, from + own.first, to + own.first);
    }
    const part_range own = range_of_part(team, rows);
    from += own.first * from_step;
    to += own.first * to_step;
    team.map(own.count, width,
             [&](std::ptrdiff_t r, const auto& at) { at.put(to + r * to_step, at(from + r * from_step)); });
  }
  struct rows_of {
    PERGRAD_HD constexpr rows_of(shape in, shape in2) noexcept
        : count{ByPosition && in.rank() == 2 ? static_cast<std::ptrdiff_t>(in.e0) : 1},
          first{static_cast<std::ptrdiff_t>(in.size()) / count},
          second{static_cast<std::ptrdiff_t>(in2.size()) / count} {}
    std::ptrdiff_t count;
    std::ptrdiff_t first;
    std::ptrdiff_t second;
    [[nodiscard]] PERGRAD_HD constexpr std::ptrdiff_t both() const noexcept { return first + second; }
  };
};

/// Along features, `{features}` and `{positions, features}`, or along channels, images and volumes.
struct concatenate : concatenation<true> {
  static constexpr const char* name = "parallel";
  static constexpr bool by_position = true;

  [[nodiscard]] static constexpr shape output_shape(shape first, shape second) noexcept {
    shape out = first;
    (first.rank() == 2 ? out.e1 : out.e0) += first.rank() == 2 ? second.e1 : second.e0;
    return out;
  }
  [[nodiscard]] static constexpr mistake check(shape first, shape second) noexcept {
    const bool fits = first.rank() == second.rank() && first.varying_axis() == second.varying_axis() &&
                      first.varying_axis() != 2 &&
                      (first.rank() == 1 || (first.rank() == 2 && first.e0 == second.e0) ||
                       (first.rank() > 2 && first.e1 == second.e1 && first.e2 == second.e2 && first.e3 == second.e3));
    return fits ? mistake::none : mistake::branches_do_not_fit;
  }
};

/// Along the first axis, whatever the rank.
struct concatenate_channels : concatenation<false>, keeps_every_length {
  static constexpr const char* name = "parallel_channels";
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape first, shape second) noexcept {
    shape out = first;
    out.e0 += second.e0;
    return out;
  }
  [[nodiscard]] static constexpr mistake check(shape first, shape second) noexcept {
    const bool fits = first.varying_axis() == second.varying_axis() && first.e1 == second.e1 && first.e2 == second.e2 &&
                      first.e3 == second.e3;
    return fits ? mistake::none : mistake::branches_do_not_fit;
  }
};

template <class Join, class First, class... Rest>
struct side_by_side {
  using type = First;
};
template <class Join, class First, class Second, class... Rest>
struct side_by_side<Join, First, Second, Rest...> : side_by_side<Join, merge<Join, First, Second>, Rest...> {};

}  // namespace detail

/// `parallel<sequential<...>, sequential<...>, ...>`: the branches' outputs joined along features (`{features}`,
/// `{positions, features}`) or channels (`{channels, height, width}`, `{channels, depth, height, width}`). A shape of
/// rank 2 counts as `{positions, features}`: branches that end in `{channels, positions}` are for `parallel_channels`.
/// An empty `sequential<>` is the input itself. PyTorch: `torch.cat([a(x), b(x)], -1)`, of images and volumes `1`.
/// Parameters: the branches', in order.
template <class First, class... More>
struct parallel {
  using unfolds_to = typename detail::side_by_side<detail::concatenate, First, More...>::type;
  template <class Names>
  static void name_parts(Names& names) {
    names.template branches<First, More...>();
  }
};

/// The same, joined along the first axis whatever the rank: the channels of `{channels, positions}`, as `conv1d` and
/// its pools put them out, of `{channels, height, width}` and of `{channels, depth, height, width}`. PyTorch:
/// `torch.cat([a(x), b(x)], 1)`. Branches must leave as many positions of every sample, however short it is.
template <class First, class... More>
struct parallel_channels {
  using unfolds_to = typename detail::side_by_side<detail::concatenate_channels, First, More...>::type;
  template <class Names>
  static void name_parts(Names& names) {
    names.template branches<First, More...>();
  }
};

}  // namespace pergrad::inline v0_1
