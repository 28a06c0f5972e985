// SPDX-License-Identifier: Apache-2.0
// pergrad/host/dot_block.hpp - dot products of a few vectors with a few others, in double, each number read once for
// all
#pragma once

#include <cstddef>
#include <utility>

#include <pergrad/detail/elements.hpp>
#include <pergrad/detail/layout.hpp>
#include <pergrad/detail/vector.hpp>
#include <pergrad/host/transpose.hpp>

namespace pergrad::inline v0_1::on_host {

/// Vectors on each side: so many that all sums stay in registers.
inline constexpr std::size_t dot_block_side = vector_registers == 32 ? 4 : 2;

/// <a_i, b_j> for all i and j, added up over as many stretches as the vectors have. Products of floats are exact in
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
          sums_[i * side + j][(n - whole) % width] +=
              static_cast<double>(a[i][n * step]) * static_cast<double>(b[j][n * step]);
        }
      }
    }
  }
  /// <a_i, b_j>
  [[nodiscard]] double of(std::size_t i, std::size_t j) const noexcept {
    double total = 0;
    for (std::size_t lane = 0; lane < vector_lanes<double>; ++lane) total += sums_[i * side + j][lane];
    return total;
  }
  /// All of them, <a_i, b_j> at i * side + j.
  void sums(double (&to)[side * side]) const noexcept {
    for (std::size_t first = 0; first < side * side; first += vector_lanes<double>) {
      store(to + first, sums_of_rows<double>(sums_[first], width));
    }
  }
  /// `total` and, added to the sum of its lanes, the sum of weights[i * pitch + j] <a_i, b_j>.
  [[nodiscard]] vector<double> add_weighted(const double* weights, index pitch, vector<double> total) const noexcept {
    return add_weighted(weights, pitch, total, std::make_index_sequence<side * side>{});
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
      ((left = Pair % side == 0 ? wide(a[Pair / side] + n) : left, sums[Pair] += left * right[Pair % side]), ...);
    }
    (store(sums_[Pair], sums[Pair]), ...);
  }

  template <std::size_t... Pair>
  void clear(std::index_sequence<Pair...>) noexcept {
    (store(sums_[Pair], vector<double>{}), ...);
  }
  template <std::size_t... Pair>
  [[nodiscard, gnu::always_inline]] vector<double> add_weighted(const double* weights, index pitch,
                                                                vector<double> total,
                                                                std::index_sequence<Pair...>) const noexcept {
    ((total +=
      splat(weights[static_cast<index>(Pair / side) * pitch + static_cast<index>(Pair % side)]) * load(sums_[Pair])),
     ...);
    return total;
  }

  // Not vectors: nvcc's compiler fails on constants that hold some, and a default constructor is one for it.
  alignas(vector_bytes) double sums_[side * side][vector_lanes<double>];
};

}  // namespace pergrad::inline v0_1::on_host
