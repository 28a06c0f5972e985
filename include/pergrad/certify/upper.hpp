// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/upper.hpp - numbers from 0 on of which only an upper bound is known: every operation rounds up
//
// A double's operation to nearest is off by less than one step, so the next larger double is a bound. Infinity says
// that nothing is known; a NaN counts as infinity, and 0 times infinity is infinity: what is not finite may be NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <pergrad/interval/rounding.hpp>

namespace pergrad::inline v0_1::certified {

class upper {
 public:
  constexpr upper() noexcept = default;
  /// A bound that is known.
  constexpr upper(double bound) noexcept  // NOLINT(google-explicit-constructor): a double is one
      : value_{bound >= 0 ? bound : intervals::inside::unbounded} {}
  /// A number below 2^53.
  constexpr upper(std::size_t count) noexcept  // NOLINT(google-explicit-constructor)
      : value_{static_cast<double>(count)} {}
  constexpr upper(int count) noexcept : upper{static_cast<double>(count)} {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] constexpr double value() const noexcept { return value_; }
  [[nodiscard]] constexpr bool is_finite() const noexcept { return value_ < intervals::inside::unbounded; }

  friend constexpr upper operator+(upper a, upper b) noexcept { return rounded(a.value_ + b.value_); }
  friend constexpr upper operator*(upper a, upper b) noexcept {
    if (!a.is_finite() || !b.is_finite()) return intervals::inside::unbounded;
    return a.value_ == 0 || b.value_ == 0 ? upper{} : rounded(a.value_ * b.value_);
  }
  /// Precondition: `exact` is above 0, and exact.
  friend constexpr upper operator/(upper a, double exact) noexcept { return rounded(a.value_ / exact); }
  constexpr upper& operator+=(upper other) noexcept { return *this = *this + other; }
  constexpr upper& operator*=(upper other) noexcept { return *this = *this * other; }
  friend constexpr bool operator<(upper a, upper b) noexcept { return a.value_ < b.value_; }

  friend upper sqrt(upper a) noexcept { return a.value_ == 0 ? a : rounded(std::sqrt(a.value_)); }

 private:
  static constexpr upper rounded(double nearest) noexcept { return intervals::inside::next_up(nearest); }
  double value_ = 0;
};

[[nodiscard]] inline upper root_of(std::size_t count) noexcept { return sqrt(upper{count}); }
/// sqrt(a² + b²)
[[nodiscard]] inline upper length_of(upper a, upper b) noexcept { return sqrt(a * a + b * b); }

/// How a scalar's operations round: u, half of what 1 is away from the next larger number.
struct roundoff {
  double unit = 0x1p-24;

  /// gamma_n = n u / (1 - n u): what n roundings in a row, or a sum of n products in any order, fused or not, can be
  /// off by, relative to the sum of magnitudes (Higham 2002, chapter 3). Infinite for n u of 1/2 and more.
  [[nodiscard]] constexpr upper gamma(std::size_t n) const noexcept {
    const upper all = upper{n} * unit;
    return all.value() < 0.5 ? all * (upper{1.0} + upper{2.0} * all) : upper{intervals::inside::unbounded};
  }
  /// 1 + gamma_n.
  [[nodiscard]] constexpr upper growth(std::size_t n) const noexcept { return upper{1.0} + gamma(n); }
};

}  // namespace pergrad::inline v0_1::certified
