// SPDX-License-Identifier: Apache-2.0
// pergrad/host/norms/dot_block.hpp - dot products of a few vectors with a few others, in double, each number read once
// for all, and the sum of many such blocks (docs/internals/tricks.md)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <pergrad/graph/layout.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// Vectors on each side: so many that all sums stay in registers.
inline constexpr std::size_t dot_block_side = vector_registers == 32 ? 4 : 2;

/// a_i . b_j for all i and j, added up over as many stretches as the vectors have. Products of floats are exact in
/// double, so only the additions round.
template <class Scalar>
class dot_block {
 public:
  static constexpr std::size_t side = dot_block_side;

  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): cleared in whole vectors
  dot_block() noexcept { clear(std::make_index_sequence<side * side>{}); }

  /// Adds the products of `count` elements, `step` apart, of each of `side` vectors with each of `side` others.
  void add(const Scalar* const* a, const Scalar* const* b, index count, index step = 1) noexcept {
    const index whole = step == 1 ? count - count % width : 0;
    add_vectors(a, b, whole, std::make_index_sequence<side * side>{}, std::make_index_sequence<side>{});
    for (index n = whole; n < count; ++n) {
      for (std::size_t i = 0; i < side; ++i) {
        for (std::size_t j = 0; j < side; ++j) {
          double& sum = sums_[i * side + j][(n - whole) % width];
          sum = multiply_add(static_cast<double>(a[i][n * step]), static_cast<double>(b[j][n * step]), sum);
        }
      }
    }
  }
  /// a_i . b_j
  [[nodiscard]] double of(std::size_t i, std::size_t j) const noexcept {
    double total = 0;
    for (std::size_t lane = 0; lane < vector_lanes<double>; ++lane) total += sums_[i * side + j][lane];
    return total;
  }

 private:
  static constexpr auto width = static_cast<index>(vector_lanes<double>);

  [[nodiscard]] static vector<double> wide(const Scalar* from) noexcept { return widen(load_narrow(from)); }
  template <std::size_t... Pair, std::size_t... Vector>
  void add_vectors(const Scalar* const* a, const Scalar* const* b, index count, std::index_sequence<Pair...>,
                   std::index_sequence<Vector...>) noexcept {
    vector<double> sums[side * side] = {load(sums_[Pair])...};
    for (index n = 0; n < count; n += width) {
      const vector<double> right[side] = {wide(b[Vector] + n)...};
      vector<double> left{};
      ((left = Pair % side == 0 ? wide(a[Pair / side] + n) : left,
        sums[Pair] = multiply_add(left, right[Pair % side], sums[Pair])),
       ...);
    }
    (store(sums_[Pair], sums[Pair]), ...);
  }

  template <std::size_t... Pair>
  void clear(std::index_sequence<Pair...>) noexcept {
    (store(sums_[Pair], vector<double>{}), ...);
  }

  // Not vectors: nvcc's compiler fails on constants that hold some, and a default constructor is one for it.
  alignas(vector_bytes) double sums_[side * side][vector_lanes<double>];
};

/// Adds up numbers two by two, their sums two by two, and so on, so that a number meets few additions.
class pairwise_sum {
 public:
  void add(double value) noexcept {
    for (std::uint64_t before = count_++; before % 2 != 0; before /= 2) value += parts_[--depth_];
    parts_[depth_++] = value;
  }
  [[nodiscard]] double total() const noexcept {
    double sum = 0;
    for (std::size_t part = depth_; part > 0; --part) sum += parts_[part - 1];
    return sum;
  }
  /// The most that a number meets.
  [[nodiscard]] index additions() const noexcept { return static_cast<index>(std::bit_width(count_)); }

 private:
  double parts_[64]{};  ///< of 2^n numbers each, n falling
  std::size_t depth_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace pergrad::inline v0_1::on_host
