// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/sensitivity.hpp - what one record can do to a sum on the release's grid
//
// D, in steps of the grid, bounds ‖Q(S) - Q(S')‖ for all neighbours (release.hpp says what Q is). Let c_b be what
// record b adds, as numbers that were computed from it alone, ‖c_b‖ <= C by the proof in clip.hpp; S = sum c_b;
// neighbours differ in one record, or in two by exchange.
//
// 1. Floating point. F sums up to `capacity` records, |F - sum c_b| <= e sum |c_b| in every element, where
//    e = (1 + u)^depth - 1 for `depth` additions on the longest way of an addend to the sum. So ‖F - sum c_b‖ <=
//    e capacity C, and F and F' err by so much each, whichever way they were added up: 2 e capacity C. Sums are formed
//    in units of a power of two at C, so they neither overflow nor lose bits to subnormal numbers (2^-100 covers what
//    they may). Only the product of e and the number of records counts: fewer records may have a longer way.
// 2. Rounding F moves an element by at most 1/2: sqrt(d) between neighbours.
// 3. Integers. round(c_b / g) is within sqrt(d) / 2 of c_b / g, whatever the other records are. Nothing else happens:
//    the sum of integers is exact in any order, on any number of threads.
// 4. Where records beyond the capacity are added up as integers behind F, taking one record away moves another one from
//    I to F: sqrt(d) / 2 more.
// 5. Lanes. A sum may be made of sums F_l, each of at most `capacity` records that have these numbers, each rounded by
//    itself; Q(S) = sum_l round(F_l / g) + I. Where one record is replaced, all others keep their numbers and so their
//    lanes: what holds of F and I holds of its lane alone, and the other lanes have the same bits. No F_l is anywhere
//    near the ends of the grid, 2^50, so nothing is clamped before all are added up. Where records are added or removed
//    there are no lanes: all records behind get other numbers, so that lanes round anew in steps that do not draw the
//    record, which no sampler makes cheaper.
//
// Clamping Q(S) to +-2^50 brings no two of them further apart. Together, with m records exchanged (1 or 2):
//     D = m C / g + sqrt(d) m / 2                                         integers only
//     D = m C / g + 2 e capacity C / g + sqrt(d) (m + 3) / 2             F and I
// The grid is sqrt(d) g <= 2^-11 C, from C and d alone; so the terms of rounding are at most 2^-9 of the first.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// The grid of a sum: public numbers, known before anything is drawn.
struct release_grid {
  double bound = 0;          ///< C: the most that one record adds, in L2
  int unit = 0;              ///< sums are formed in units of 2^unit, C < 2^unit <= 2 C
  int steps = 0;             ///< a unit has 2^steps steps of the grid: g = 2^(unit - steps)
  std::size_t elements = 0;  ///< d

  /// Throws std::invalid_argument unless `bound` is finite and positive.
  [[nodiscard]] static release_grid of(double bound, std::size_t elements) {
    if (!(bound > 0 && bound <= detail::largest_double)) {
      detail::throw_invalid_argument(
          {"pergrad: release: the bound of a record must be finite and positive, got ", bound});
    }
    release_grid grid{.bound = bound, .elements = elements};
    static_cast<void>(std::frexp(bound, &grid.unit));
    int root = 0;  // 2^root >= sqrt(d)
    while (std::ldexp(1.0, 2 * root) < static_cast<double>(elements)) ++root;
    grid.steps = root + 12;
    return grid;
  }
  friend bool operator==(const release_grid&, const release_grid&) noexcept = default;
};

/// How many records a sum may add up in floating point: public numbers, too.
struct summation {
  std::size_t capacity = 0;  ///< records; those beyond are added up as integers, and with 0 all are
  double error = 0;          ///< e of the head of this file

  /// Additions on the longest way of an addend to a sum. A longer one is for fewer records, see `allows`.
  static constexpr std::size_t most_additions = 60;
  /// Of an executor that adds up integers, whatever a sum has.
  static constexpr std::size_t no_way = std::size_t{1} << 30U;
  /// The largest share of C that adding up in floating point may cost: beyond it, integers.
  static constexpr double most_share = 0.0185;

  /// Of up to `capacity` records in a type that rounds by `unit_roundoff` of a sum.
  [[nodiscard]] static summation of(std::size_t capacity, double unit_roundoff) noexcept {
    const detail::float_environment proven;
    const double one = static_cast<double>(most_additions) * unit_roundoff;
    const summation floating{capacity, one / (1 - one)};
    return floating.share() <= most_share ? floating : summation{};
  }
  template <class Scalar>
  [[nodiscard]] static summation of(std::size_t capacity) noexcept {
    return of(capacity, static_cast<double>(std::numeric_limits<Scalar>::epsilon()) / 2);
  }
  /// May the sum have so many records, if the longest way of an addend has so many additions? e' records <= e capacity
  /// for the e' of a longer way, which is less than u additions (1 + 2^-10), as u is at most 2^-24 and there are at
  /// most 2^12 of them.
  [[nodiscard]] constexpr bool allows(std::size_t records, std::size_t additions) const noexcept {
    if (records > capacity || additions <= most_additions) return records <= capacity;
    return additions <= 4096 && 1024 * additions * records <= 1023 * most_additions * capacity;
  }
  /// What adding up in floating point adds to the sensitivity, as a share of C.
  [[nodiscard]] double share() const noexcept { return 2 * error * static_cast<double>(capacity); }
};

/// D of the head of this file, in steps of the grid, rounded up: for neighbours that differ in `exchanged` records, 1
/// or 2.
[[nodiscard]] inline double sensitivity_in_steps(const release_grid& grid, const summation& added,
                                                 int exchanged) noexcept {
  const detail::float_environment proven;
  const double bound = std::ldexp(grid.bound, grid.steps - grid.unit);
  const double root = std::sqrt(static_cast<double>(grid.elements));
  double sensitivity = exchanged * (bound + root / 2);
  if (added.capacity > 0) sensitivity += added.share() * bound + 1.5 * root;
  return sensitivity * (1 + 0x1p-40);
}

}  // namespace pergrad::inline v0_1
