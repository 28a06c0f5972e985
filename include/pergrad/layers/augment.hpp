// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/augment.hpp - a random change of each record in training: y = A x, A drawn anew in each step; dx = A^T
// dy
//
// A is a function of (run's key, step, record, layer), as dropout's mask is: within a step a record's gradient is that
// of one fixed function, whatever tile, chunk or thread it is in, so clipping bounds what the record can do. A record
// is changed once a step, and costs nothing more. In evaluation, and without randomness, y = x.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <class Change>
concept changes_records = requires(const shape& in, std::span<const std::uint32_t> words, const float* x, float* y) {
  Change::apply(in, words, x, y);
  Change::adjoint(in, words, x, y);
};

}  // namespace detail

/// `augment<Change>` on any shape that the change takes, usually the first layer. `Change` is a stateless struct:
///
///   static constexpr std::size_t words                   random words a record needs, at most 256; 16 unless it says
///   so static constexpr bool accepts(shape in)              optional template <class S> static void apply(const shape&
///   in, std::span<const std::uint32_t> words, const S* x, S* y) template <class S> static void adjoint(const shape&
///   in, std::span<const std::uint32_t> words, const S* dy, S* dx)
///
/// `apply` writes all of y from x, which do not overlap, in PyTorch's order; `words` are uniform. It looks at nothing
/// else, and in training at no other record. `adjoint` is its derivative, transposed, for layers in front that are
/// trained.
template <class Change>
struct augment {
  static constexpr const char* name = "augment";
  static constexpr bool on_tiles = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr bool accepts(shape in) noexcept {
    if constexpr (requires { Change::accepts(in); }) return Change::accepts(in);
    return true;
  }

  [[nodiscard]] static constexpr detail::mistake check(shape /*in*/) noexcept {
    const bool is_one = detail::changes_records<Change> && words > 0 && words <= 256;
    return is_one ? detail::mistake::none : detail::mistake::option_not_offered;
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      one(tile, b, tile.x(b), tile.y(b), [](const auto&... all) { Change::apply(all...); });
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      one(tile, b, tile.dy(b), tile.dx(b), [](const auto&... all) { Change::adjoint(all...); });
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

  template <class Tile, class From, class To, class Function>
  static void one(const Tile& tile, std::ptrdiff_t sample, const From* from, To* to, const Function& change) {
    if (!tile.is_random()) {
      std::copy_n(from, tile.in.size(), to);
      return;
    }
    std::array<std::uint32_t, words> bits;
    tile.random_bits(sample, 0, bits);
    change(tile.in, std::span<const std::uint32_t>{bits}, from, to);
  }
};

/// `augment<random_flip>`: every second record is mirrored along its last axis. torchvision: `RandomHorizontalFlip()`.
struct random_flip {
  [[nodiscard]] static constexpr bool accepts(shape in) noexcept { return in.rank() >= 2 && in.ids == 0; }
  template <class Scalar>
  static void apply(const shape& in, std::span<const std::uint32_t> words, const Scalar* x, Scalar* y) {
    const std::size_t width = in[in.rank() - 1];
    for (std::size_t first = 0; first < in.size(); first += width) {
      if (words[0] % 2 == 0) {
        std::copy_n(x + first, width, y + first);
      } else {
        std::reverse_copy(x + first, x + first + width, y + first);
      }
    }
  }
  template <class Scalar>
  static void adjoint(const shape& in, std::span<const std::uint32_t> words, const Scalar* dy, Scalar* dx) {
    apply(in, words, dy, dx);
  }
};

/// `augment<random_shift<4>>` on `{channels, height, width}`: each image moves by -4 to 4 rows and columns, zeros come
/// in. torchvision: `RandomCrop(size, padding=4)`.
template <std::size_t Pixels>
struct random_shift {
  [[nodiscard]] static constexpr bool accepts(shape in) noexcept { return in.rank() == 3 && in.ids == 0; }
  template <class Scalar>
  static void apply(const shape& in, std::span<const std::uint32_t> words, const Scalar* x, Scalar* y) {
    move(in, step(words[0]), step(words[1]), x, y);
  }
  template <class Scalar>
  static void adjoint(const shape& in, std::span<const std::uint32_t> words, const Scalar* dy, Scalar* dx) {
    move(in, -step(words[0]), -step(words[1]), dy, dx);
  }

 private:
  [[nodiscard]] static std::ptrdiff_t step(std::uint32_t word) noexcept {
    return static_cast<std::ptrdiff_t>((std::uint64_t{word} * (2 * Pixels + 1)) >> 32U) -
           static_cast<std::ptrdiff_t>(Pixels);
  }
  template <class Scalar>
  static void move(const shape& in, std::ptrdiff_t down, std::ptrdiff_t right, const Scalar* x, Scalar* y) {
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
