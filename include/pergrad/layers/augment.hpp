// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/augment.hpp - a random change of each record in training: y = A x, A drawn anew in each step; dx = A^T
// dy
//
// A is a function of (run's key, step, record, layer), as dropout's mask is: within a step a record's gradient is that
// of one fixed function, whatever tile, chunk or thread it is in, so clipping bounds what the record can do. A record
// is changed once a step, and costs nothing more. In evaluation, and without randomness, y = x.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

/// A change that says what becomes of one row of the last axis: `apply_row(in, words, row, x, y)` writes that row of y,
/// of all of x, `adjoint_row(in, words, row, dy, dx)` one of dx. Threads of a device share a record's rows.
template <class Change>
struct change_of_rows {
  [[nodiscard]] PERGRAD_HD static constexpr std::size_t row_count(const shape& in) noexcept {
    return in.size() / in[in.rank() - 1];
  }
  template <class Scalar>
  PERGRAD_HD static void apply(const shape& in, const std::uint32_t* words, const Scalar* x, Scalar* y) {
    for (std::size_t row = 0; row < row_count(in); ++row) Change::apply_row(in, words, row, x, y);
  }
  template <class Scalar>
  PERGRAD_HD static void adjoint(const shape& in, const std::uint32_t* words, const Scalar* dy, Scalar* dx) {
    for (std::size_t row = 0; row < row_count(in); ++row) Change::adjoint_row(in, words, row, dy, dx);
  }
};

namespace detail {

template <class Change>
concept changes_records = requires(const shape& in, const std::uint32_t* words, const float* x, float* y) {
  Change::apply(in, words, x, y);
  Change::adjoint(in, words, x, y);
};

}  // namespace detail

/// `augment<Change>` on any shape that the change takes, usually the first layer. `Change` is a stateless struct:
///
/// * `static constexpr std::size_t words`: random words a record needs, at most 256; 16 unless it says so
/// * `static constexpr bool accepts(shape in)`: optional
/// * `static constexpr bool on_device`: optional: both functions are marked PERGRAD_HD
/// * `static constexpr auto settings()`: optional: its numbers, by which files tell networks apart, as `std::array`
/// * `apply(in, words, x, y)` and `adjoint(in, words, dy, dx)`, static templates over the scalar: `const shape& in,
/// const
///   std::uint32_t* words, const S* x, S* y`
///
/// `apply` writes all of y from x, which do not overlap, in PyTorch's order; `words` are uniform. It looks at nothing
/// else, and in training at no other record. `adjoint` is its derivative, transposed, for layers in front that are
/// trained. On a device one thread runs them for a record, unless the change is a
/// `change_of_rows<Change>`.
template <class Change>
struct augment {
  static constexpr const char* name = "augment";
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = requires { requires Change::on_device; };
  [[nodiscard]] static constexpr auto settings() noexcept requires requires { Change::settings(); }
  { return Change::settings(); }
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr bool accepts(shape in) noexcept {
    if constexpr (requires { Change::accepts(in); }) return Change::accepts(in);
    return true;
  }

  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (in.varying_axis() != 0) return detail::mistake::lengths_are_lost;  // a change may move what is there
    const bool is_one = detail::changes_records<Change> && words > 0 && words <= 256;
    return is_one ? detail::mistake::none : detail::mistake::option_not_offered;
  }
  /// Of a record's random words: a scalar has room for one. Each part draws them.
  [[nodiscard]] static constexpr std::size_t scratch_count(shape /*in*/) noexcept { return words; }
  [[nodiscard]] static constexpr std::size_t part_scratch_count(shape /*in*/) noexcept { return words; }
  [[nodiscard]] PERGRAD_HD static constexpr std::size_t part_count(shape in) noexcept {
    return count_parts(row_count(in), in.size());
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const auto* x = team.x(b);
      auto* y = team.y(b);
      change_rows(team, b, x, y, [&](const std::uint32_t* bits, [[maybe_unused]] std::size_t row) {
        if constexpr (by_rows) {
          Change::apply_row(team.in, bits, row, x, y);
        } else {
          Change::apply(team.in, bits, x, y);
        }
      });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      const auto* dy = team.dy(b);
      auto* dx = team.dx(b);
      change_rows(team, b, dy, dx, [&](const std::uint32_t* bits, [[maybe_unused]] std::size_t row) {
        if constexpr (by_rows) {
          Change::adjoint_row(team.in, bits, row, dy, dx);
        } else {
          Change::adjoint(team.in, bits, dy, dx);
        }
      });
    }
  }

 private:
  static constexpr std::size_t words = [] {
    if constexpr (requires { Change::words; }) {
      return std::size_t{Change::words};
    } else {
      return std::size_t{16};
    }
  }();

  static constexpr bool by_rows = std::is_base_of_v<change_of_rows<Change>, Change>;
  /// Of a change that takes a record whole, one.
  [[nodiscard]] PERGRAD_HD static constexpr std::size_t row_count(shape in) noexcept {
    if constexpr (by_rows) {
      return Change::row_count(in);
    } else {
      return 1;
    }
  }

  template <class Team, class From, class To, class Function>
  PERGRAD_HD static void change_rows(const Team& team, std::ptrdiff_t sample, const From* from, To* to,
                                     const Function& change) {
    const auto all = static_cast<std::ptrdiff_t>(row_count(team.in));
    const part_range own = range_of_part(team, all);
    if (!team.is_random()) {
      const std::ptrdiff_t width = static_cast<std::ptrdiff_t>(team.in.size()) / all;
      return team.copy(own.count * width, from + own.first * width, to + own.first * width);
    }
    const std::ptrdiff_t part = range_of_part(team, static_cast<std::ptrdiff_t>(part_count(team.in))).first;
    auto* const bits = static_cast<std::uint32_t*>(
        static_cast<void*>(team.scratch(sample) + part * static_cast<std::ptrdiff_t>(words)));
    team.draw(sample, 0, static_cast<std::ptrdiff_t>(words),
              [&](std::ptrdiff_t i, std::uint32_t word) { bits[i] = word; });
    team.each(own.count, [&](std::ptrdiff_t i) { change(bits, static_cast<std::size_t>(own.first + i)); });
  }
};

/// `augment<random_flip>`: every second record is mirrored along its last axis. torchvision: `RandomHorizontalFlip()`.
struct random_flip : change_of_rows<random_flip> {
  static constexpr bool on_device = true;
  [[nodiscard]] static constexpr bool accepts(shape in) noexcept { return in.rank() >= 2 && in.ids == 0; }
  template <class Scalar>
  PERGRAD_HD static void apply_row(const shape& in, const std::uint32_t* words, std::size_t row, const Scalar* x,
                                   Scalar* y) {
    const std::size_t width = in[in.rank() - 1];
    x += row * width;
    y += row * width;
    for (std::size_t i = 0; i < width; ++i) y[i] = x[words[0] % 2 == 0 ? i : width - 1 - i];
  }
  template <class Scalar>
  PERGRAD_HD static void adjoint_row(const shape& in, const std::uint32_t* words, std::size_t row, const Scalar* dy,
                                     Scalar* dx) {
    apply_row(in, words, row, dy, dx);
  }
};

/// `augment<random_shift<4>>` on `{channels, height, width}`: each image moves by -4 to 4 rows and columns, zeros come
/// in. torchvision: `RandomCrop(size, padding=4)`.
template <std::size_t Pixels>
struct random_shift : change_of_rows<random_shift<Pixels>> {
  static constexpr bool on_device = true;
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{Pixels}; }
  [[nodiscard]] static constexpr bool accepts(shape in) noexcept { return in.rank() == 3 && in.ids == 0; }
  template <class Scalar>
  PERGRAD_HD static void apply_row(const shape& in, const std::uint32_t* words, std::size_t row, const Scalar* x,
                                   Scalar* y) {
    move_row(in, step(words[0]), step(words[1]), static_cast<std::ptrdiff_t>(row), x, y);
  }
  template <class Scalar>
  PERGRAD_HD static void adjoint_row(const shape& in, const std::uint32_t* words, std::size_t row, const Scalar* dy,
                                     Scalar* dx) {
    move_row(in, -step(words[0]), -step(words[1]), static_cast<std::ptrdiff_t>(row), dy, dx);
  }

 private:
  [[nodiscard]] PERGRAD_HD static std::ptrdiff_t step(std::uint32_t word) noexcept {
    return static_cast<std::ptrdiff_t>((std::uint64_t{word} * (2 * Pixels + 1)) >> 32U) -
           static_cast<std::ptrdiff_t>(Pixels);
  }
  /// `row`: of all channels.
  template <class Scalar>
  PERGRAD_HD static void move_row(const shape& in, std::ptrdiff_t down, std::ptrdiff_t right, std::ptrdiff_t row,
                                  const Scalar* x, Scalar* y) {
    const auto height = static_cast<std::ptrdiff_t>(in.e1);
    const auto width = static_cast<std::ptrdiff_t>(in.e2);
    const std::ptrdiff_t from_row = row % height - down;
    const bool is_there = from_row >= 0 && from_row < height;
    x += (row - down) * width;
    y += row * width;
    for (std::ptrdiff_t column = 0; column < width; ++column) {
      const std::ptrdiff_t from = column - right;
      y[column] = is_there && from >= 0 && from < width ? x[from] : Scalar{0};
    }
  }
};

}  // namespace pergrad::inline v0_1
