// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gemm/transpose.hpp - matrices turned around, a square of vectors at a time
//
// A square of as many vectors as each has lanes is turned in registers: for s = 1, 2, 4, ... rows i and i + s (bit s of
// i is 0) exchange the lanes of the upper one whose bit s is 1 with those of the lower one whose bit s is 0 (Eklundh
// 1972, "A fast computer method for matrix transposing"). Everything is read and written in whole vectors, however far
// apart the rows lie; element by element, rows that are a multiple of a large power of two apart would push each other
// out of the cache (docs/internals/tricks.md).
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

namespace transpose_detail {

/// Lanes `From` of a and b, counted on from one to the other.
template <std::size_t... From, class Vector>
[[nodiscard]] inline Vector shuffle(Vector a, Vector b) noexcept {
#if PERGRAD_SHUFFLES
  return __builtin_shufflevector(a, b, From...);
#else
  std::size_t lane = 0;
  Vector chosen = a;
  ((chosen[lane++] = From < sizeof...(From) ? a[From % sizeof...(From)] : b[From % sizeof...(From)]), ...);
  return chosen;
#endif
}

/// The lanes of `a` whose bit `Step` is 0, and in the place of the others those of `b` from `Step` lanes below.
template <std::size_t Step, class Vector, std::size_t... Lane>
[[nodiscard]] inline Vector lower(Vector a, Vector b, std::index_sequence<Lane...> /*lanes*/) noexcept {
  return shuffle<((Lane & Step) != 0 ? sizeof...(Lane) + Lane - Step : Lane)...>(a, b);
}
/// The lanes of `b` whose bit `Step` is 1, and in the place of the others those of `a` from `Step` lanes above.
template <std::size_t Step, class Vector, std::size_t... Lane>
[[nodiscard]] inline Vector upper(Vector a, Vector b, std::index_sequence<Lane...> /*lanes*/) noexcept {
  return shuffle<((Lane & Step) != 0 ? sizeof...(Lane) + Lane : Lane + Step)...>(a, b);
}

template <class Scalar>
inline constexpr std::size_t side = vector_lanes<Scalar>;

/// Rows `Low` and `Low + Step`, where bit `Step` of `Low` is 0.
template <class Scalar, std::size_t Step, std::size_t Low>
[[gnu::always_inline]] inline void exchange_pair(vector<Scalar> (&rows)[side<Scalar>]) noexcept {
  constexpr auto lanes = std::make_index_sequence<side<Scalar>>{};
  const vector<Scalar> a = rows[Low];
  const vector<Scalar> b = rows[Low + Step];
  rows[Low] = lower<Step>(a, b, lanes);
  rows[Low + Step] = upper<Step>(a, b, lanes);
}
/// Folds, not loops: g++ -O2 leaves loops as they are, and then the rows lie in memory.
template <class Scalar, std::size_t Step, std::size_t... Pair>
[[gnu::always_inline]] inline void exchange(vector<Scalar> (&rows)[side<Scalar>],
                                            std::index_sequence<Pair...> pairs) noexcept {
  (exchange_pair<Scalar, Step, Pair / Step * 2 * Step + Pair % Step>(rows), ...);
  if constexpr (2 * Step < side<Scalar>) exchange<Scalar, 2 * Step>(rows, pairs);
}
template <class Scalar, class Put, std::size_t... Row>
[[gnu::always_inline]] inline void turn_square(const Scalar* from, index from_step, Scalar* to, index to_step,
                                               index first, const Put& put, std::index_sequence<Row...>) noexcept {
  vector<Scalar> rows[side<Scalar>] = {load(from + static_cast<index>(Row) * from_step)...};
  exchange<Scalar, 1>(rows, std::make_index_sequence<side<Scalar> / 2>{});
  (put(to + static_cast<index>(Row) * to_step, rows[Row], first), ...);
}

/// Calls put(to, row, first) for the rows of the transpose of a square whose first row is number `first`.
template <class Scalar, class Put>
inline void square(const Scalar* from, index from_step, Scalar* to, index to_step, index first,
                   const Put& put) noexcept {
  turn_square(from, from_step, to, to_step, first, put, std::make_index_sequence<side<Scalar>>{});
}

/// `Repeats`: an element may be put twice. Then what a last square has in common with the one before is turned again,
/// unless only so few rows or columns are left that they go element by element.
template <bool Repeats, class Scalar, class PutVector, class PutOne>
inline void transpose(const Scalar* from, index from_step, index rows, index columns, Scalar* to, index to_step,
                      const PutVector& put, const PutOne& put_one) noexcept {
  constexpr auto together = static_cast<index>(side<Scalar>);
  const auto end_of_squares = [](index count) {
    const index rest = count % together;
    return Repeats && count > together && rest > together / 4 ? count : count - rest;
  };
  const index last_row = end_of_squares(rows);
  const index last_column = end_of_squares(columns);
  for (index next = 0; next < last_row; next += together) {
    const index r = std::min(next, last_row - together);
    for (index next_column = 0; next_column < last_column; next_column += together) {
      const index c = std::min(next_column, last_column - together);
      square(from + r * from_step + c, from_step, to + c * to_step + r, to_step, r, put);
    }
    for (index c = last_column; c < columns; ++c) {
      for (index k = r; k < r + together; ++k) put_one(to + c * to_step + k, from[k * from_step + c], k);
    }
  }
  for (index c = 0; c < columns; ++c) {
    for (index k = last_row; k < rows; ++k) put_one(to + c * to_step + k, from[k * from_step + c], k);
  }
}

}  // namespace transpose_detail

/// to[c * to_step + r] = from[r * from_step + c] for r < rows and c < columns. The ranges must not overlap.
template <class Scalar>
[[gnu::noinline]] void transpose(const Scalar* from, index from_step, index rows, index columns, Scalar* to,
                                 index to_step) noexcept {
  transpose_detail::transpose<true>(
      from, from_step, rows, columns, to, to_step, [](Scalar* out, vector<Scalar> row, index) { store(out, row); },
      [](Scalar* out, Scalar value, index) { *out = value; });
}
/// The same with += in the place of =.
template <class Scalar>
[[gnu::noinline]] void transpose_add(const Scalar* from, index from_step, index rows, index columns, Scalar* to,
                                     index to_step) noexcept {
  transpose_detail::transpose<false>(
      from, from_step, rows, columns, to, to_step,
      [](Scalar* out, vector<Scalar> row, index) { store(out, load(out) + row); },
      [](Scalar* out, Scalar value, index) { *out += value; });
}
/// to[c * to_step + r] = from[r * from_step + c] + more[r]
template <class Scalar>
inline void transpose_plus(const Scalar* from, index from_step, index rows, index columns, Scalar* to, index to_step,
                           const Scalar* more) noexcept {
  transpose_detail::transpose<true>(
      from, from_step, rows, columns, to, to_step,
      [more](Scalar* out, vector<Scalar> row, index first) { store(out, row + load(more + first)); },
      [more](Scalar* out, Scalar value, index r) { *out = value + more[r]; });
}

}  // namespace pergrad::inline v0_1::on_host
