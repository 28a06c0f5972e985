// SPDX-License-Identifier: Apache-2.0
// pergrad/interval/rounding.hpp - sums, products, quotients and roots, rounded down and up, also in constant
// expressions
//
// Each function computes to nearest and finds the sign of the error exactly (Dekker 1971, Knuth; Ogita, Rump & Oishi
// 2005): where it is 0 the result is exact, else the neighbour on the other side is the second bound. So both are the
// correctly rounded ones. Close to the ends of the range, where the error may be no double, both neighbours are taken,
// one ulp more. Precondition: to nearest, subnormal numbers kept (detail/float_environment.hpp).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace pergrad::inline v0_1::intervals::inside {

inline constexpr double unbounded = std::numeric_limits<double>::infinity();
inline constexpr double least_subnormal = std::numeric_limits<double>::denorm_min();

/// The next larger double; infinity and NaN stay.
[[nodiscard]] constexpr double next_up(double x) noexcept {
  if (!(x < unbounded)) return x;
  if (x == 0) return least_subnormal;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  return std::bit_cast<double>(x > 0 ? bits + 1 : bits - 1);
}
[[nodiscard]] constexpr double next_down(double x) noexcept { return -next_up(-x); }
[[nodiscard]] constexpr double magnitude(double x) noexcept { return x < 0 ? -x : x; }
[[nodiscard]] constexpr bool is_finite(double x) noexcept { return magnitude(x) < unbounded; }

/// A real number's neighbours: the same double if it is one.
struct directed {
  double down;
  double up;
};
/// `nearest` is off by a number of this sign; a NaN means that it is not known.
[[nodiscard]] constexpr directed with_error(double nearest, double error) noexcept {
  return {error >= 0 ? nearest : next_down(nearest), error <= 0 ? nearest : next_up(nearest)};
}
/// Of a number that is not 0 and has the sign of `nearest` or, if that is 0, `sign`: no bound crosses 0.
[[nodiscard]] constexpr directed widened(double nearest, double sign) noexcept {
  const directed both{next_down(nearest), next_up(nearest)};
  return sign > 0 ? directed{both.down > 0 ? both.down : 0, both.up} : directed{both.down, both.up < 0 ? both.up : 0};
}

/// a b - p for the rounded product p, exactly. Precondition: nothing overflows or becomes subnormal.
[[nodiscard]] constexpr double product_error(double a, double b, double p) noexcept {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  if (!std::is_constant_evaluated()) return __builtin_fma(a, b, -p);
#endif
  // Without such an instruction nothing can be fused, so this is computed as it stands.
  constexpr double splitter = 0x1p27 + 1;
  const double a_high = splitter * a - (splitter * a - a);
  const double b_high = splitter * b - (splitter * b - b);
  const double a_low = a - a_high;
  const double b_low = b - b_high;
  return ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low;
}

// Constant expressions may not overflow, so there it is seen beforehand, on numbers scaled by a power of two.

/// Infinite bounds stay. Precondition: not both infinite with different signs.
[[nodiscard]] constexpr directed sum_of(double a, double b) noexcept {
  if (!is_finite(a)) return {a, a};
  if (!is_finite(b)) return {b, b};
  double s = 0;
  if (std::is_constant_evaluated() && magnitude(a / 2 + b / 2) >= 0x1p1023) {
    s = a > 0 ? unbounded : -unbounded;
  } else {
    s = a + b;
  }
  if (!is_finite(s)) return s > 0 ? directed{next_down(s), s} : directed{s, next_up(s)};
  const double b_share = s - a;
  return with_error(s, (a - (s - b_share)) + (b - b_share));
}

/// 0 times infinity is 0: an infinite bound stands for finite numbers of any size.
[[nodiscard]] constexpr directed product_of(double a, double b) noexcept {
  if (a == 0 || b == 0) return {0, 0};
  const double sign = (a > 0) == (b > 0) ? 1 : -1;
  if (!is_finite(a) || !is_finite(b)) return {sign * unbounded, sign * unbounded};
  double p = 0;
  if (std::is_constant_evaluated() && magnitude(a) > 1 && magnitude(b) > 1 &&
      magnitude(a * 0x1p-512 * (b * 0x1p-512)) >= 1) {
    p = sign * unbounded;
  } else {
    p = a * b;
  }
  if (!is_finite(p)) return p > 0 ? directed{next_down(p), p} : directed{p, next_up(p)};
  if (magnitude(p) < 0x1p-960 || magnitude(a) > 0x1p990 || magnitude(b) > 0x1p990) return widened(p, sign);
  return with_error(p, product_error(a, b, p));
}

/// Precondition: b is not 0. Infinity by infinity may be anything of its sign.
[[nodiscard]] constexpr directed quotient_of(double a, double b) noexcept {
  if (a == 0) return {0, 0};
  const double sign = (a > 0) == (b > 0) ? 1 : -1;
  if (!is_finite(a)) {
    if (is_finite(b)) return {sign * unbounded, sign * unbounded};
    return sign > 0 ? directed{0, unbounded} : directed{-unbounded, 0};
  }
  if (!is_finite(b)) return {0, 0};
  // A subnormal divisor may make the quotient infinite, which constant expressions would refuse to compute.
  if (magnitude(b) < 1 && magnitude(a) > std::numeric_limits<double>::max() * magnitude(b)) {
    return sign > 0 ? directed{std::numeric_limits<double>::max(), unbounded}
                    : directed{-unbounded, -std::numeric_limits<double>::max()};
  }
  const double q = a / b;
  const auto is_inside = [](double x) { return magnitude(x) > 0x1p-450 && magnitude(x) < 0x1p450; };
  if (!is_inside(a) || !is_inside(b) || !is_inside(q)) return widened(q, sign);
  const double p = q * b;
  const double rest = (a - p) - product_error(q, b, p);  // exactly a - q b
  return with_error(q, b > 0 ? rest : -rest);
}

/// Precondition: x >= 0.
[[nodiscard]] constexpr directed root_of(double x) noexcept {
  if (x == 0 || !is_finite(x)) return {x, x};
  double scale = 1;
  while (x < 0x1p-400) x *= 0x1p400, scale *= 0x1p-200;
  while (x > 0x1p400) x *= 0x1p-400, scale *= 0x1p200;
  double s = 0;
  if (std::is_constant_evaluated()) {
    s = std::bit_cast<double>((std::bit_cast<std::uint64_t>(x) >> 1U) + 0x1ff8'0000'0000'0000U);  // to 6 %
    for (int i = 0; i < 5; ++i) s = (s + x / s) / 2;
  } else {
    s = __builtin_sqrt(x);
  }
  const auto rest = [x](double root) {  // of the sign of x - root²
    const double square = root * root;
    return (x - square) - product_error(root, root, square);
  };
  while (rest(s) < 0) s = next_down(s);
  while (rest(next_up(s)) >= 0) s = next_up(s);
  return {s * scale, (rest(s) == 0 ? s : next_up(s)) * scale};
}

}  // namespace pergrad::inline v0_1::intervals::inside
