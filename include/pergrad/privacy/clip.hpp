// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/clip.hpp - clip factors that round down: what is added to a sum never has a norm above C
//
// w = min(1, C / ‖g‖) (Abadi et al. 2016, arXiv:1607.00133), with ‖g‖ replaced by an upper bound N of the norm of the
// numbers that are really added, and w rounded towards zero:
//   N = sqrt(squared + error) (1 + n u) + sqrt(slack)     squared: double sums of squares, n terms; error: cancellation
//   in Gram
//                                                         sums; slack: what the sum's own rounding can add to a
//                                                         sample's share
//   w = C' / N (1 - 8 u_S),  C' = C - (2 sqrt(n) + spread) d     u_S: epsilon of the scalar; d: its smallest
//   subnormal
// Squares of floats are added up in float first, those of a gradient sixteen at a time on the host
// (host/gemm/epilogue.hpp) and up to 64 on a device (cuda/kernels/gemm.hpp), those of a factor four at a time: by no
// more than eight roundings of each, so that `squared` may fall short by a factor of 1 + 2^-21 and N by 1 + 2^-22 = 1 +
// 2 u_S. Rounding w g_i errs by at most u_S |w g_i| + d / 2. Where the sum is X^T diag(w) Delta, it is w delta_j that
// errs by u_S |w delta_j|
// + d / 2, and then x_i carries that d / 2 along however large it is: spread = sum_t ‖x_t‖ sqrt(p). So the norm of what
// is added is at most w N (1 + 2 u_S) (1 + u_S)² + (2 sqrt(n) + spread) d <= C.
// w delta_j may be larger than w g_i, as x may be small: where it would be beyond the largest number, w is 0 (`delta`).
//
// A sum that will be released is formed in units of 2^unit (privacy/release.hpp): then all of this holds for C / 2^unit
// in the place of C, and a weight is at most 2^-unit. Squares of doubles may vanish below 2^-1074 each, n of them, or
// T² where a norm is a sum over pairs of T positions: N may fall short by T 2^-537, which is nothing beside a bound of
// 1e-30 or a stability of 1e-100.
#pragma once

#include <cmath>
#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/limits.hpp>
#include <pergrad/detail/no_fast_math.hpp>

namespace pergrad::inline v0_1 {

/// What is known of a squared norm; see the head of this file.
struct norm_bound {
  double squared = 0;
  double error = 0;
  double slack = 0;
  double spread = 0;
  double delta = 0;  ///< no delta that a weight may meet before x is larger

  PERGRAD_HD constexpr norm_bound& operator+=(const norm_bound& other) noexcept {
    squared += other.squared;
    error += other.error;
    slack += other.slack;
    spread += other.spread;
    delta += other.delta;
    return *this;
  }
  [[nodiscard]] PERGRAD_HD friend norm_bound operator+(norm_bound a, const norm_bound& b) noexcept { return a += b; }
};

/// A squared norm that was found in double as a sum of terms of both signs, whose sizes add up to `magnitude`: 0 where
/// it was rounded below; infinite where terms overflowed on their way, whatever sign they had, and where a sum of
/// Scalars may, however they cancel.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline double squared_of_terms(double total, double magnitude) noexcept {
  const bool is_finite = total >= -limits::largest<double> && total <= limits::largest<double>;  // not of NaN
  if (!(is_finite && magnitude <= static_cast<double>(limits::largest<Scalar>))) return __builtin_huge_val();
  return total > 0 ? total : 0;
}

/// An upper bound of the norm of what is added for a gradient of `count` parameters; infinite or NaN if it is not
/// finite.
[[nodiscard]] PERGRAD_HD inline double norm_upper_bound(norm_bound known, std::size_t count) noexcept {
  constexpr double unit = limits::epsilon<double>;
  const double lost = static_cast<double>(count) * limits::least_subnormal<double>;
  return std::sqrt(known.squared + known.error + lost) * (1 + static_cast<double>(count + 4) * unit) +
         std::sqrt(known.slack);
}

/// Does a gradient with this norm count as finite? Beyond the largest Scalar it does not: by some methods its norm is
/// known while it could never be written down, by others it overflows, and all must leave it out alike.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline bool is_finite_norm(double norm) noexcept {
  constexpr auto largest = static_cast<double>(limits::largest<Scalar>);
  return norm <= largest;
}

/// `value` as a Scalar, rounded towards zero. Precondition: value >= 0.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar rounded_down(double value) noexcept {
  const auto rounded = static_cast<Scalar>(value);
  return static_cast<double>(rounded) > value ? std::nextafter(rounded, Scalar{0}) : rounded;
}

namespace detail {

/// C' of the head of this file: what of `bound` is left for a gradient beside the smallest numbers' rounding.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline double clip_room(norm_bound known, std::size_t count, double bound) noexcept {
  constexpr auto subnormal = static_cast<double>(limits::least_subnormal<Scalar>);
  return bound - (2 * std::sqrt(static_cast<double>(count)) + known.spread) * subnormal;
}
/// room / divisor with room for two roundings, rounded towards zero; 0 where there is no room.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar safe_quotient(double room, double divisor) noexcept {
  constexpr auto unit = static_cast<double>(limits::epsilon<Scalar>);
  constexpr auto largest = static_cast<double>(limits::largest<Scalar>);
  if (!(room > 0)) return 0;
  const double quotient = room / divisor * (1 - 8 * unit);
  return rounded_down<Scalar>(quotient < largest ? quotient : largest);
}
/// The factor, or 0 where a delta times it may be too large for a Scalar.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar factor_that_fits(norm_bound known, Scalar factor) noexcept {
  constexpr auto largest = static_cast<double>(limits::largest<Scalar>);
  return static_cast<double>(factor) * known.delta * (1 + 0x1p-20) <= largest ? factor : Scalar{0};
}

/// room / (‖g‖ + more(‖g‖)), or 1, in units of 2^unit, if that is what is asked for and no more than there is room for.
template <class Scalar, class More>
[[nodiscard]] PERGRAD_HD inline Scalar factor_of(norm_bound known, std::size_t count, double bound, int unit,
                                                 bool may_be_one, const More& more) noexcept {
  const double norm = norm_upper_bound(known, count);
  if (!is_finite_norm<Scalar>(norm)) return 0;
  constexpr auto roundoff = static_cast<double>(limits::epsilon<Scalar>);
  const double one = std::ldexp(1.0, -unit);
  const double room = clip_room<Scalar>(known, count, bound * one);
  return factor_that_fits(known, may_be_one && norm * one <= room * (1 - 4 * roundoff)
                                     ? static_cast<Scalar>(one)
                                     : safe_quotient<Scalar>(room, norm + more(norm)));
}

}  // namespace detail

/// The largest safe factor w with ‖w g‖ <= bound / 2^unit, at most 2^-unit; exactly 0 for a gradient that is not
/// finite, or that cannot be weighed without numbers that are not.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar clip_factor(norm_bound known, std::size_t count, double bound,
                                                   int unit = 0) noexcept {
  return detail::factor_of<Scalar>(known, count, bound, unit, true, [](double /*norm*/) { return 0.0; });
}

/// An upper bound of the norm of what `clip_factor` makes of a gradient, in the numbers that are added: by the proof
/// above, with a weight of at most 1 as well as of at most C / N.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline double clipped_norm_bound(norm_bound known, std::size_t count, double bound,
                                                          int unit) noexcept {
  const double norm = norm_upper_bound(known, count);
  if (!is_finite_norm<Scalar>(norm)) return 0;
  constexpr auto roundoff = static_cast<double>(limits::epsilon<Scalar>);
  const double lost = bound - std::ldexp(detail::clip_room<Scalar>(known, count, std::ldexp(bound, -unit)), unit);
  const double most = norm * (1 + 8 * roundoff) + lost * (1 + 0x1p-40) + bound * 0x1p-40;
  return most < bound ? most : bound;
}

/// Automatic clipping's factor bound / (‖g‖ + stability) / 2^unit, which never exceeds the clip factor's bound (Bu et
/// al. 2022, arXiv:2206.07136).
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar normalise_factor(norm_bound known, std::size_t count, double bound,
                                                        double stability, int unit = 0) noexcept {
  return detail::factor_of<Scalar>(known, count, bound, unit, false, [=](double /*norm*/) { return stability; });
}

/// Per-sample adaptive clipping's factor bound / (‖g‖ + r / (‖g‖ + r)) / 2^unit (Xia et al. 2023, arXiv:2212.00328): as
/// automatic clipping's for large gradients, while small ones, which often point elsewhere than the mean, keep a weight
/// of at most about bound where that has bound / r. What is added to the norm is never negative, so the clip factor's
/// proof is this one's; it rounds three times more, 1.5 units of the 8. The divisor is nowhere below
/// min(1, 2 sqrt(r) - r), beside which squares that vanish are nothing.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar per_sample_adaptive_factor(norm_bound known, std::size_t count, double bound,
                                                                  double r, int unit = 0) noexcept {
  return detail::factor_of<Scalar>(known, count, bound, unit, false, [=](double norm) { return r / (norm + r); });
}

}  // namespace pergrad::inline v0_1
