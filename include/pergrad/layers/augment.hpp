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

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

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
/// trained. On a device one thread runs them for a record.
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

  [[nodiscard]] static constexpr detail::mistake check(shape /*in*/) noexcept {
    const bool is_one = detail::changes_records<Change> && words > 0 && words <= 256;
    return is_one ? detail::mistake::none : detail::mistake::option_not_offered;
  }
  /// Of a record's random words: a scalar has room for one.
  [[nodiscard]] static constexpr std::size_t scratch_count(shape /*in*/) noexcept { return words; }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const auto* x = team.x(b);
      auto* y = team.y(b);
      one(team, b, x, y, [&](const std::uint32_t* bits) { Change::apply(team.in, bits, x, y); });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      const auto* dy = team.dy(b);
      auto* dx = team.dx(b);
      one(team, b, dy, dx, [&](const std::uint32_t* bits) { Change::adjoint(team.in, bits, dy, dx); });
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

  template <class Team, class From, class To, class Function>
  PERGRAD_HD static void one(const Team& team, std::ptrdiff_t sample, const From* from, To* to,
                             const Function& change) {
    if (!team.is_random()) return team.copy(static_cast<std::ptrdiff_t>(team.in.size()), from, to);
    auto* const bits = static_cast<std::uint32_t*>(static_cast<void*>(team.scratch(sample)));
    team.draw(sample, 0, static_cast<std::ptrdiff_t>(words),
              [&](std::ptrdiff_t i, std::uint32_t word) { bits[i] = word; });
    team.each(1, [&](std::ptrdiff_t /*all of it*/) { change(bits); });
  }
};

/// `augment<random_flip>`: every second record is mirrored along its last axis. torchvision: `RandomHorizontalFlip()`.
struct random_flip {
  static constexpr bool on_device = true;
  [[nodiscard]] static constexpr bool accepts(shape in) noexcept { return in.rank() >= 2 && in.ids == 0; }
  template <class Scalar>
  PERGRAD_HD static void apply(const shape& in, const std::uint32_t* words, const Scalar* x, Scalar* y) {
    const std::size_t width = in[in.rank() - 1];
    for (std::size_t first = 0; first < in.size(); first += width) {
      for (std::size_t i = 0; i < width; ++i) y[first + i] = x[first + (words[0] % 2 == 0 ? i : width - 1 - i)];
    }
  }
  template <class Scalar>
  PERGRAD_HD static void adjoint(const shape& in, const std::uint32_t* words, const Scalar* dy, Scalar* dx) {
    apply(in, words, dy, dx);
  }
};

/// `augment<random_shift<4>>` on `{channels, height, width}`: each image moves by -4 to 4 rows and columns, zeros come
/// in. torchvision: `RandomCrop(size, padding=4)`.
template <std::size_t Pixels>
struct random_shift {
  static constexpr bool on_device = true;
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{Pixels}; }
  [[nodiscard]] static constexpr bool accepts(shape in) noexcept { return in.rank() == 3 && in.ids == 0; }
  template <class Scalar>
  PERGRAD_HD static void apply(const shape& in, const std::uint32_t* words, const Scalar* x, Scalar* y) {
    move(in, step(words[0]), step(words[1]), x, y);
  }
  template <class Scalar>
  PERGRAD_HD static void adjoint(const shape& in, const std::uint32_t* words, const Scalar* dy, Scalar* dx) {
    move(in, -step(words[0]), -step(words[1]), dy, dx);
  }

 private:
  [[nodiscard]] PERGRAD_HD static std::ptrdiff_t step(std::uint32_t word) noexcept {
    return static_cast<std::ptrdiff_t>((std::uint64_t{word} * (2 * Pixels + 1)) >> 32U) -
           static_cast<std::ptrdiff_t>(Pixels);
  }
  template <class Scalar>
  PERGRAD_HD static void move(const shape& in, std::ptrdiff_t down, std::ptrdiff_t right, const Scalar* x, Scalar* y) {
    const auto height = static_cast<std::ptrdiff_t>(in.e1);
    const auto width = static_cast<std::ptrdiff_t>(in.e2);
    for (std::size_t channel = 0; channel < in.e0; ++channel, x += height * width, y += height * width) {
      for (std::ptrdiff_t row = 0; row < height; ++row) {
        for (std::ptrdiff_t column = 0; column < width; ++column) {
          const std::ptrdiff_t from_row = row - down;
          const std::ptrdiff_t from_column = column - right;
          const bool inside = from_row >= 0 && from_row < height && from_column >= 0 && from_column < width;
          y[row * width + column] = inside ? x[from_row * width + from_column] : Scalar{0};
        }
      }
    }
  }
};

}  // namespace pergrad::inline v0_1
