// SPDX-License-Identifier: Apache-2.0
// pergrad/interval/functions.hpp - enclosures of exp, log, sin, cos, tanh, sigmoid, softplus, erf and real powers
//
// Nothing here asks a libm, whose errors nobody has proven. A value at a number x is computed in intervals from end to
// end: the argument is reduced with constants that are enclosed, a series of enclosed coefficients is summed, and what
// is left of it is added as an interval (Lagrange's form, or a geometric series). So the result encloses the value by
// inclusion alone, whatever rounds. How wide it is: the last two or three operations count, as all before them are
// small beside what they are added to.
//
//   function            series on                        rest, relative    most ulps from end to end, at one number
//   exp                 |r| <= 0.35, degree 17           2^-75             8
//   log                 (m - 1) / (m + 1), 13 terms      2^-65             12
//   sin, cos            |r| <= 0.79, degrees 19 and 18   2^-67             12, for |x| <= 2^20; beyond, [-1, 1]
//   tanh, sigmoid       that of exp                                        20, 12
//   softplus            those of exp and log                               24
//   erf                 30 positive terms, or a fraction 2^-60             120
//
// tests/interval measures these widths; enclosure does not rest on them. A real power is exp(y log x): an ulp of the
// logarithm is |y log x| ulps of the power. Bounds of monotone functions are those of the ends; so enclosures are
// isotone up to the widths above.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <pergrad/interval/interval.hpp>

namespace pergrad::inline v0_1::intervals {

namespace inside {

/// log 2 and pi / 2 in parts: products of the first ones with whole numbers up to 2^13 and 2^20 are exact.
inline constexpr double log2_high = 0x1.62e42fefa2p-1;
inline constexpr interval log2_low{0x1.9ef35793c7673p-41, 0x1.9ef35793c7674p-41};
inline constexpr double half_pi_high = 0x1.921fb544p+0;
inline constexpr double half_pi_middle = 0x1.0b4611a6p-34;
inline constexpr interval half_pi_low{0x1.3198a2e037073p-69, 0x1.3198a2e037074p-69};
inline constexpr interval enclosed_pi{0x1.921fb54442d18p+1, 0x1.921fb54442d19p+1};
inline constexpr interval two_by_root_pi{0x1.20dd750429b6dp+0, 0x1.20dd750429b6ep+0};

/// 1 / n!
inline constexpr std::array<interval, 22> by_factorial = [] {
  std::array<interval, 22> found{};
  interval factorial{1};
  for (std::size_t n = 0; n < found.size(); ++n) {
    if (n > 0) factorial = factorial * interval{static_cast<double>(n)};
    found[n] = interval{1} / factorial;
  }
  return found;
}();

/// The nearest whole number, or one next to it. Precondition: |x| < 2^51.
[[nodiscard]] constexpr double near_whole(double x) noexcept {
  return static_cast<double>(static_cast<std::int64_t>(x + (x < 0 ? -0.5 : 0.5)));
}
/// Values at both ends of a function that does not fall.
template <class AtNumber>
[[nodiscard]] constexpr interval rising(const interval& x, AtNumber at) noexcept {
  if (x.is_empty()) return x;
  const interval low = at(x.lower);
  return x.is_point() ? low : interval{low.lower, at(x.upper).upper};
}
/// x 2^k, |k| <= 2000: exact, or rounded outwards where it is subnormal or too large.
[[nodiscard]] constexpr interval scaled(interval x, int k) noexcept {
  for (; k > 500; k -= 500) x = x * interval{0x1p500};
  for (; k < -500; k += 500) x = x * interval{0x1p-500};
  return x * interval{std::bit_cast<double>(static_cast<std::uint64_t>(1023 + k) << 52U)};
}

/// e^r - 1 = r (1 + r / 2! + ... + r^16 / 17! + rest), |rest| <= e^0.71 |r|^17 / 18!. Precondition: |r| <= 0.71.
[[nodiscard]] constexpr interval exp_minus_one_series(const interval& r) noexcept {
  interval sum = by_factorial[17];
  for (std::size_t n = 16; n >= 1; --n) sum = sum * r + by_factorial[n];
  const double rest = (pow(interval{0.0, r.magnitude()}, 17) * by_factorial[18] * interval{2.04}).upper;
  return r * (sum + interval{-rest, rest});
}
[[nodiscard]] constexpr interval exp_at(double x) noexcept {
  if (x > 710) return {std::numeric_limits<double>::max(), unbounded};
  if (x < -746) return {0, least_subnormal};
  const double k = near_whole(x * 0x1.71547652b82fep+0);
  const interval r = interval{x} - interval{k * log2_high} - interval{k} * log2_low;
  return scaled(interval{1} + exp_minus_one_series(r), static_cast<int>(k));
}
/// log(1 + y) = 2 atanh(f), f = y / (2 + y), as 2 f (1 + f² / 3 + f^4 / 5 + ...). Precondition: -0.3 <= y <= 0.42, so
/// |f| < 0.18. Of the factor, the terms from number 13 on are a geometric series: at most f^26 / 27 / (1 - f²).
[[nodiscard]] constexpr interval log_one_plus_series(const interval& y) noexcept {
  const interval f = y / (interval{2} + y);
  const interval square = pow(f, 2);
  interval sum = interval{0, (pow(square, 13) / interval{26}).upper};
  interval terms{0};
  for (int n = 12; n >= 0; --n) terms = terms * square + interval{1} / interval{static_cast<double>(2 * n + 1)};
  return interval{2} * f * (terms + sum);
}
[[nodiscard]] constexpr interval log_at(double x) noexcept {
  if (x == 0) return {-unbounded, -unbounded};
  if (!is_finite(x)) return {x, x};
  double k = 0;
  if (x < 0x1p-1000) x *= 0x1p100, k = -100;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  k += static_cast<double>(static_cast<std::int64_t>(bits >> 52U) - 1023);
  double m = std::bit_cast<double>((bits & 0x000f'ffff'ffff'ffffU) | 0x3ff0'0000'0000'0000U);
  if (m > 1.41421356) m /= 2, k += 1;
  const interval rest = log_one_plus_series(interval{m} - interval{1});
  return interval{k * log2_high} + (interval{k} * log2_low + rest);
}

struct sine_and_cosine {
  interval sine;
  interval cosine;
};
/// Precondition: |x| <= 2^20.
[[nodiscard]] constexpr sine_and_cosine sine_and_cosine_at(double x) noexcept {
  const double k = near_whole(x * 0x1.45f306dc9c883p-1);
  const interval r =
      interval{x} - interval{k * half_pi_high} - interval{k * half_pi_middle} - interval{k} * half_pi_low;
  const interval square = pow(r, 2);
  // Alternating, and falling as r² < 1: what is left has less than the first term that is left out.
  const interval rest{-pow(square, 10).upper, pow(square, 10).upper};
  interval odd = by_factorial[19];
  interval even = by_factorial[18];
  for (std::size_t n = 18; n >= 2; n -= 2) {
    odd = by_factorial[n - 1] - square * odd;
    even = by_factorial[n - 2] - square * even;
  }
  const interval sine = r * (odd + rest * by_factorial[21]);
  const interval cosine = even + rest * by_factorial[20];
  switch (static_cast<std::int64_t>(k) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}
/// sin (shift = 1/2) or cos (0) of all numbers of x: its peaks, +1 and -1 in turn, lie where x / pi - shift is whole.
template <class At>
[[nodiscard]] constexpr interval wave(const interval& x, double shift, At at) noexcept {
  constexpr interval whole{-1, 1};
  if (x.is_empty()) return x;
  if (x.magnitude() > 0x1p20) return whole;
  const double first = (interval{x.lower} / enclosed_pi - interval{shift}).lower;
  const double last = (interval{x.upper} / enclosed_pi - interval{shift}).upper;
  auto peak = static_cast<std::int64_t>(first);  // towards 0
  if (static_cast<double>(peak) < first) ++peak;
  interval found = at(x.lower);
  if (!x.is_point()) found = hull(found, at(x.upper));
  for (int i = 0; i < 2 && static_cast<double>(peak) <= last; ++i, ++peak) {
    found = hull(found, interval{peak % 2 == 0 ? 1.0 : -1.0});
  }
  return intersection(found, whole);
}

[[nodiscard]] constexpr interval tanh_at(double x) noexcept {
  if (x < 0) return -tanh_at(-x);
  if (x > 20) return {next_down(1), 1};
  if (x > 0.35) return interval{1} - interval{2} / (exp_at(2 * x) + interval{1});
  const interval grown = exp_minus_one_series(2 * x);
  return intersection(grown / (grown + interval{2}), {0, 1});
}
[[nodiscard]] constexpr interval sigmoid_at(double x) noexcept {
  if (x > 0) return intersection(interval{1} / (interval{1} + exp_at(-x)), {0, 1});
  const interval grown = exp_at(x);
  return grown / (interval{1} + grown);
}
[[nodiscard]] constexpr interval softplus_at(double x) noexcept {
  if (x > 0) return is_finite(x) ? interval{x} + softplus_at(-x) : interval{x};
  const interval grown = exp_at(x);
  if (grown.upper <= 0.41) return log_one_plus_series(grown);
  const interval sum = interval{1} + grown;
  return {log_at(sum.lower).lower, log_at(sum.upper).upper};
}
/// Up to 2: 2 / sqrt(pi) e^(-x²) x (1 + 2 x² / 3 + (2 x²)² / (3 5) + ...), where all terms are positive (Abramowitz &
/// Stegun 7.1.6). Once 2 x² / (2 n + 1) <= 1/2, the terms from number n on are at most twice that one. Beyond 2:
/// 1 - e^(-x²) / sqrt(pi) / t_0, t_n = x + (n + 1) / 2 / t_(n + 1) (7.1.14), whose tails lie in [x, x + (n + 1) / 2 /
/// x]. 1 - erf(6) < 2^-55.
[[nodiscard]] constexpr interval erf_at(double x) noexcept {
  if (x < 0) return -erf_at(-x);
  if (x > 6) return {next_down(1), 1};
  const interval square = pow(interval{x}, 2);
  const interval bell = two_by_root_pi * interval{exp_at(-square.upper).lower, exp_at(-square.lower).upper};
  if (x > 2) {
    interval tail{x, (interval{x} + interval{30} / interval{x}).upper};
    for (int n = 59; n > 0; --n) tail = interval{x} + interval{0.5 * n} / tail;
    return interval{1} - bell / (interval{2} * tail);
  }
  const interval twice = interval{2} * square;
  interval term{1};
  interval sum{1};
  for (int n = 1;; ++n) {
    const auto odd = static_cast<double>(2 * n + 1);
    term = term * (twice / interval{odd});
    if (4 * twice.upper < odd && term.upper < 0x1p-60 * sum.lower) break;
    sum = sum + term;
  }
  sum = sum + interval{0, 2 * term.upper};
  return bell * (interval{x} * sum);
}

}  // namespace inside

[[nodiscard]] constexpr interval exp(const interval& x) noexcept { return inside::rising(x, inside::exp_at); }
/// Of the positive numbers in x.
[[nodiscard]] constexpr interval log(const interval& x) noexcept {
  if (x.is_empty() || x.upper <= 0) return interval::nothing();
  return inside::rising(interval{x.lower > 0 ? x.lower : 0, x.upper}, inside::log_at);
}
[[nodiscard]] constexpr interval sin(const interval& x) noexcept {
  return inside::wave(x, 0.5, [](double at) { return inside::sine_and_cosine_at(at).sine; });
}
[[nodiscard]] constexpr interval cos(const interval& x) noexcept {
  return inside::wave(x, 0, [](double at) { return inside::sine_and_cosine_at(at).cosine; });
}
[[nodiscard]] constexpr interval tanh(const interval& x) noexcept { return inside::rising(x, inside::tanh_at); }
/// 1 / (1 + e^-x).
[[nodiscard]] constexpr interval sigmoid(const interval& x) noexcept { return inside::rising(x, inside::sigmoid_at); }
/// log(1 + e^x).
[[nodiscard]] constexpr interval softplus(const interval& x) noexcept { return inside::rising(x, inside::softplus_at); }
[[nodiscard]] constexpr interval erf(const interval& x) noexcept { return inside::rising(x, inside::erf_at); }

namespace inside {
[[nodiscard]] constexpr bool is_whole(double y) noexcept { return magnitude(y) >= 0x1p52 || near_whole(y) == y; }
[[nodiscard]] constexpr bool is_even(double y) noexcept { return magnitude(y) >= 0x1p53 || is_whole(y / 2); }
}  // namespace inside

/// x^y of the numbers of an interval for which it is defined: x >= 0 where y is not whole. Whole exponents below 2^20,
/// and halves of them, at their own precision.
[[nodiscard]] constexpr interval pow(const interval& x, double y) noexcept {
  if (inside::magnitude(y) < 0x1p20 && inside::is_whole(y)) return pow(x, static_cast<int>(y));
  if (inside::magnitude(y) < 0x1p20 && inside::is_whole(2 * y)) return pow(sqrt(x), static_cast<int>(2 * y));
  if (x.lower < 0 && inside::is_whole(y)) {
    if (inside::is_even(y)) return pow(abs(x), y);
    const interval below = -pow(interval{x.upper < 0 ? -x.upper : 0, -x.lower}, y);
    return x.upper < 0 ? below : hull(below, pow(interval{0, x.upper}, y));
  }
  const interval found = exp(interval{y} * log(x));
  return y > 0 && x.contains(0) ? hull(found, interval{0}) : found;
}

}  // namespace pergrad::inline v0_1::intervals
