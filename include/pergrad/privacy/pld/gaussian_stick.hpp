// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/gaussian_stick.hpp - the hockey stick of one Gaussian, in closed form, with what it errs by.
//
// Balle & Wang 2018 (arXiv:1805.06530), theorem 8: with mu = sensitivity / deviation, t = eps/mu - mu/2 and x = t + mu,
//     delta(eps) = Phi(-t) - e^eps Phi(-x) = Phi(-t) - phi(t) R(x),        R = Mills' ratio, as e^eps phi(x) = phi(t).
// The second form has no e^eps. t errs by 3 u (eps/mu + mu), which changes either term by a factor of that times
// |t| + 1 and less than that plus 1, and both terms by their functions' rounding: `error` bounds the sum.
#pragma once

#include <algorithm>
#include <cmath>

#include <pergrad/privacy/pld/fourier.hpp>
#include <pergrad/privacy/pld/gaussian_mass.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

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
