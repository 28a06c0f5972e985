// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/gaussian_mass.hpp - masses of intervals under a Gaussian, and the hockey stick of one in closed
// form, with what they err by.
//
// Narrow: the Taylor series of phi about the middle c, integrated; with v half the width and
// v, |c| v <= 1/16, what follows its fifth term is below 6e-15 of the sum (Cauchy's estimate of exp(|c| v t + v^2
// t^2/2), which majorises the series, on |t| = 30). Others: differences of erfc that keep at least a twentieth of the
// larger one; erfc, exp, log, expm1 and log1p are taken to be right to 8 units of roundoff. `interval` has the sum of
// all.
//
// The stick. Balle & Wang 2018 (arXiv:1805.06530), theorem 8: with mu = sensitivity / deviation, t = eps/mu - mu/2 and
// x = t + mu,
//     delta(eps) = Phi(-t) - e^eps Phi(-x) = Phi(-t) - phi(t) R(x),        R = Mills' ratio, as e^eps phi(x) = phi(t).
// The second form has no e^eps. t errs by 3 u (eps/mu + mu), which changes either term by a factor of that times
// |t| + 1 and less than that plus 1, and both terms by their functions' rounding: `error` bounds the sum.
#pragma once

#include <algorithm>
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

struct stick_with_error {
  double value;
  double error;
};

/// Precondition: mu > 0 and eps >= 0 are finite.
[[nodiscard]] inline stick_with_error gaussian_stick(double mu, double eps) noexcept {
  constexpr double sqrt_half_pi = 1.25331413731550025121;
  const double t = eps / mu - mu / 2;
  if (t > 40) return {0, 1e-300};  // Phi(-40) is below
  const double x = eps / mu + mu / 2;
  const double tail = std::erfc(t * sqrt_half) / 2;
  // The asymptotic series of R alternates, so the first term that is left out, 10395 / x^12, bounds the rest.
  const double x2 = x * x;
  const double mills = x < 25 ? sqrt_half_pi * std::exp(x2 / 2) * std::erfc(x * sqrt_half)
                              : (1 - (1 - (3 - (15 - (105 - 945 / x2) / x2) / x2) / x2) / x2) / x;
  const double rest = std::exp(-t * t / 2) / (2 * sqrt_half_pi) * mills;
  const double moved = 3 * (eps / mu + mu) * (std::abs(t) + 1);
  const double by_series = x < 25 ? 16 * (x2 + 4) : 16 + 10395 / (x2 * x2 * x2 * x2 * x2 * x2) / unit_roundoff;
  return {tail - rest, unit_roundoff * ((tail + rest) * (2 * moved + 16 * (t * t + 4)) + rest * by_series) + 1e-300};
}

/// Largest epsilon whose hockey stick may be above `delta`, or the smallest one of which that is sure: an upper and a
/// lower bound of epsilon at delta.
[[nodiscard, gnu::cold]] inline double gaussian_epsilon(double mu, double delta, bool from_above) noexcept {
  const auto exceeds = [&](double eps) {
    const stick_with_error stick = gaussian_stick(mu, eps);
    return from_above ? !(stick.value + stick.error <= delta) : stick.value - stick.error > delta;
  };
  if (!exceeds(0)) return 0;
  // Phi(-t) <= delta there, with room.
  double low = 0;
  double high = mu * (mu / 2 + std::sqrt(-2 * std::log(delta)) + 1);
  if (exceeds(high)) return from_above ? infinity : 0;
  for (int round = 0; round < 200 && low < high; ++round) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (exceeds(middle) ? low : high) = middle;
  }
  return from_above ? high : low;
}

}  // namespace pergrad::inline v0_1::detail
