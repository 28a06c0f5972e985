// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/gaussian_mass.hpp - masses of intervals under a Gaussian, with what they err by.
//
// Narrow: the Taylor series of phi about the middle c, integrated; with v half the width and
// v, |c| v <= 1/16, what follows its fifth term is below 6e-15 of the sum (Cauchy's estimate of exp(|c| v t + v^2
// t^2/2), which majorises the series, on |t| = 30). Others: differences of erfc that keep at least a twentieth of the
// larger one; erfc, exp, log, expm1 and log1p are taken to be right to 8 units of roundoff. `interval` has the sum of
// all.
#pragma once

#include <cmath>

#include <pergrad/privacy/pld/fourier.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// Mass of an interval under the standard Gaussian, right to the factor 1 +- error.
struct interval_mass {
  double mass;
  double error;
};

inline constexpr double sqrt_half = 0.70710678118654752440;

/// Mass between `left` and `right`, which may be infinite; both are within (|end| + 2 m) 8 u of the ends that are
/// meant, and `width` is within a factor 1 + u of what is meant. |end| <= 38 where finite, or the nearer end is.
template <class = void>
[[nodiscard]] interval_mass interval(double left, double right, double width, double m) noexcept {
  constexpr double u = unit_roundoff;
  if (!(width > 0) || right == -infinity || left == infinity) return {0, 0};
  const double middle = left + width / 2;
  const double c = std::abs(middle);
  if (width <= 0.125 && c * width <= 0.125) {
    const double v2 = width * width / 4;
    const double c2 = c * c;
    const double he2 = c2 - 1;
    const double he4 = (c2 - 6) * c2 + 3;
    const double he6 = ((c2 - 15) * c2 + 45) * c2 - 15;
    const double he8 = (((c2 - 28) * c2 + 210) * c2 - 420) * c2 + 105;
    const double series = 1 + v2 * (he2 / 6 + v2 * (he4 / 120 + v2 * (he6 / 5040 + v2 * (he8 / 362880))));
    constexpr double density = 0.39894228040143267794;
    return {width * density * std::exp(-c2 / 2) * series, u * (8 * c2 + 9 * c * (c + 2 * m + 1) + 128)};
  }
  const auto tail = [](double x) { return std::erfc(x * sqrt_half) / 2; };
  double mass = 0;
  double nearer = 0;
  if (left >= 0) {
    nearer = left;
    mass = tail(left) - tail(right);
  } else if (right <= 0) {
    nearer = -right;
    mass = tail(-right) - tail(-left);
  } else {
    mass = 1 - tail(-left) - tail(right);
  }
  return {mass, 24 * u * (4 * nearer * nearer + 24 + 9 * (nearer + 1) * (nearer + 2 * m))};
}

}  // namespace pergrad::inline v0_1::detail
