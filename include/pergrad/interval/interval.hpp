// SPDX-License-Identifier: Apache-2.0
// pergrad/interval/interval.hpp - intervals of real numbers: every operation encloses all values that it can have
//
// For x in X and y in Y, x o y lies in X o Y (Moore 1966): bounds are rounded outwards (rounding.hpp), by less than an
// ulp, so what is proven of a result holds for the real numbers. Operations are isotone: larger operands have larger
// results. A bound may be infinite. What is undefined is left out: a quotient encloses a / b for all b but 0, a root
// those of numbers from 0 on; where nothing is left, the result is empty, lower > upper.
#pragma once

#include <algorithm>
#include <limits>

#include <pergrad/interval/rounding.hpp>

namespace pergrad::inline v0_1 {

/// Intervals and functions of them, which are found by their arguments: `exp(x)`.
namespace intervals {

/// All real numbers from `lower` to `upper`.
struct interval {
  double lower = 0;
  double upper = 0;

  constexpr interval() noexcept = default;
  /// One number.
  constexpr interval(double number) noexcept : lower{number}, upper{number} {}  // NOLINT(google-explicit-constructor)
  constexpr interval(double from, double to) noexcept : lower{from}, upper{to} {}
  constexpr explicit interval(inside::directed number) noexcept : lower{number.down}, upper{number.up} {}

  [[nodiscard]] static constexpr interval everything() noexcept { return {-inside::unbounded, inside::unbounded}; }
  [[nodiscard]] static constexpr interval nothing() noexcept { return {inside::unbounded, -inside::unbounded}; }

  [[nodiscard]] constexpr bool is_empty() const noexcept { return !(lower <= upper); }
  [[nodiscard]] constexpr bool is_finite() const noexcept {
    return lower > -inside::unbounded && upper < inside::unbounded && !is_empty();
  }
  [[nodiscard]] constexpr bool is_point() const noexcept { return lower == upper; }
  [[nodiscard]] constexpr bool contains(double x) const noexcept { return lower <= x && x <= upper; }
  [[nodiscard]] constexpr bool contains(const interval& other) const noexcept {
    return other.is_empty() || (lower <= other.lower && other.upper <= upper);
  }
  /// upper - lower, rounded up.
  [[nodiscard]] constexpr double width() const noexcept { return is_empty() ? 0 : inside::sum_of(upper, -lower).up; }
  /// The largest |x| of all.
  [[nodiscard]] constexpr double magnitude() const noexcept { return is_empty() ? 0 : std::max(-lower, upper); }
  /// A number in the middle, or near it. Precondition: finite.
  [[nodiscard]] constexpr double middle() const noexcept { return std::clamp(lower / 2 + upper / 2, lower, upper); }

  friend constexpr bool operator==(const interval&, const interval&) noexcept = default;
};

namespace inside {
[[nodiscard]] constexpr interval of_corners(directed a, directed b, directed c, directed d) noexcept {
  return {std::min(std::min(a.down, b.down), std::min(c.down, d.down)),
          std::max(std::max(a.up, b.up), std::max(c.up, d.up))};
}
}  // namespace inside

/// The smallest interval with all of both.
[[nodiscard]] constexpr interval hull(const interval& x, const interval& y) noexcept {
  if (x.is_empty()) return y;
  if (y.is_empty()) return x;
  return {std::min(x.lower, y.lower), std::max(x.upper, y.upper)};
}
/// What both have in common.
[[nodiscard]] constexpr interval intersection(const interval& x, const interval& y) noexcept {
  if (x.is_empty() || y.is_empty()) return interval::nothing();
  const interval both{std::max(x.lower, y.lower), std::min(x.upper, y.upper)};
  return both.is_empty() ? interval::nothing() : both;
}

[[nodiscard]] constexpr interval operator-(const interval& x) noexcept { return {-x.upper, -x.lower}; }
[[nodiscard]] constexpr interval operator+(const interval& x, const interval& y) noexcept {
  if (x.is_empty() || y.is_empty()) return interval::nothing();
  return {inside::sum_of(x.lower, y.lower).down, inside::sum_of(x.upper, y.upper).up};
}
[[nodiscard]] constexpr interval operator-(const interval& x, const interval& y) noexcept { return x + -y; }
[[nodiscard]] constexpr interval operator*(const interval& x, const interval& y) noexcept {
  using inside::product_of;
  if (x.is_empty() || y.is_empty()) return interval::nothing();
  if (x.is_point() && y.is_point()) return interval{product_of(x.lower, y.lower)};
  if (x.lower >= 0 && y.lower >= 0) return {product_of(x.lower, y.lower).down, product_of(x.upper, y.upper).up};
  return inside::of_corners(product_of(x.lower, y.lower), product_of(x.lower, y.upper), product_of(x.upper, y.lower),
                            product_of(x.upper, y.upper));
}
[[nodiscard]] constexpr interval operator/(const interval& x, const interval& y) noexcept {
  using inside::quotient_of;
  if (x.is_empty() || y.is_empty() || y == interval{0}) return interval::nothing();
  if (y.lower < 0 && y.upper > 0) return x == interval{0} ? interval{0} : interval::everything();
  if (y.lower == 0 || y.upper == 0) {
    // One side of a pole: quotients by the other bound, and infinity.
    const double other = y.lower == 0 ? y.upper : y.lower;
    const bool is_negative = y.upper == 0;
    const inside::directed a = quotient_of(x.lower, other);
    const inside::directed b = quotient_of(x.upper, other);
    interval found{std::min(a.down, b.down), std::max(a.up, b.up)};
    if (is_negative ? x.lower < 0 : x.upper > 0) found.upper = inside::unbounded;
    if (is_negative ? x.upper > 0 : x.lower < 0) found.lower = -inside::unbounded;
    return found;
  }
  return inside::of_corners(quotient_of(x.lower, y.lower), quotient_of(x.lower, y.upper), quotient_of(x.upper, y.lower),
                            quotient_of(x.upper, y.upper));
}

[[nodiscard]] constexpr interval sqrt(const interval& x) noexcept {
  if (x.is_empty() || x.upper < 0) return interval::nothing();
  return {inside::root_of(std::max(x.lower, 0.0)).down, inside::root_of(x.upper).up};
}
[[nodiscard]] constexpr interval abs(const interval& x) noexcept {
  if (x.is_empty() || x.lower >= 0) return x;
  return x.upper <= 0 ? -x : interval{0, std::max(-x.lower, x.upper)};
}
[[nodiscard]] constexpr interval min(const interval& x, const interval& y) noexcept {
  if (x.is_empty() || y.is_empty()) return interval::nothing();
  return {std::min(x.lower, y.lower), std::min(x.upper, y.upper)};
}
[[nodiscard]] constexpr interval max(const interval& x, const interval& y) noexcept { return -min(-x, -y); }

namespace inside {
/// x^n of a number, by squaring; every product is enclosed.
[[nodiscard]] constexpr interval power_of(double x, unsigned n) noexcept {
  interval found{1};
  for (interval square{x}; n != 0; n /= 2, square = square * square) {
    if (n % 2 != 0) found = found * square;
    if (n == 1) break;
  }
  return found;
}
}  // namespace inside

/// x^n: of an even n no value is below 0, whatever the sign of x.
[[nodiscard]] constexpr interval pow(const interval& x, int n) noexcept {
  if (x.is_empty()) return x;
  if (n < 0) return interval{1} / pow(x, -n);
  if (n == 0) return 1;
  const auto times = static_cast<unsigned>(n);
  if (n % 2 != 0 || x.lower >= 0) {
    return {inside::power_of(x.lower, times).lower, inside::power_of(x.upper, times).upper};
  }
  const interval positive = abs(x);
  return {inside::power_of(positive.lower, times).lower, inside::power_of(positive.upper, times).upper};
}

}  // namespace intervals

using intervals::interval;

}  // namespace pergrad::inline v0_1
