// SPDX-License-Identifier: Apache-2.0
// tests/privacy/pld_oracle.hpp - hockey sticks in long double that share nothing with the library: closed forms of one
// step, quadrature of two.
#pragma once

#include <algorithm>
#include <cmath>

namespace oracle {

inline long double tail(long double x) { return std::erfc(x / std::sqrt(2.0L)) / 2; }

/// One sampled Gaussian step: the hockey stick at eps, of removing or of adding a record. P(S) - e^eps Q(S) over the
/// set S where the loss is above eps, which is a half-line. Errs by the rounding of two numbers of at most 1.
inline long double one_step(long double q, long double noise, long double eps, bool remove) {
  const long double m = 1 / noise;
  // loss of remove at u: ln(1 - q + q e^(u m - m^2/2)); that of add is the negative one
  const long double at = remove ? eps : -eps;
  const long double ratio = std::expm1(at) / q + 1;
  if (ratio <= 0) return remove ? -std::expm1(eps) : 0.0L;  // every loss is above eps, or none is
  const long double u = std::log(ratio) / m + m / 2;
  if (remove) return (1 - q) * tail(u) + q * tail(u - m) - std::exp(eps) * tail(u);
  return tail(-u) - std::exp(eps) * ((1 - q) * tail(-u) + q * tail(m - u));
}

/// Two steps: the mean over the first one's loss of the second one's hockey stick at what is left. The integrand is
/// analytic and decays like a Gaussian, so the trapezoidal rule is right to rounding where it resolves the bend of the
/// second one's curve, whose width in u is about q2 noise1.
inline long double two_steps(long double q1, long double noise1, long double q2, long double noise2, long double eps,
                             bool remove) {
  const long double m = 1 / noise1;
  const long double width = std::min({0.02L, noise1 / 50, q2 * noise1 / 4});
  long double sum = 0;
  for (long double u = -12; u <= 12 + m; u += width) {
    const long double density = std::exp(-u * u / 2);
    const long double shifted = std::exp(-(u - m) * (u - m) / 2);
    const long double loss = std::log1p(q1 * std::expm1(u * m - m * m / 2));
    sum += remove ? ((1 - q1) * density + q1 * shifted) * one_step(q2, noise2, eps - loss, true)
                  : density * one_step(q2, noise2, eps + loss, false);
  }
  return sum * width / std::sqrt(2 * std::acos(-1.0L));
}

/// The Gaussian mechanism (Balle & Wang 2018, arXiv:1805.06530, theorem 8), sensitivity 1.
inline long double gaussian(long double noise, long double eps) {
  const long double m = 1 / noise;
  return tail(eps / m - m / 2) - std::exp(eps) * tail(eps / m + m / 2);
}

/// Poisson sampling where one record is replaced by another: (1 - q) N(0) + q N(1) against (1 - q) N(0) + q N(-1). The
/// loss rises with the place, so the set is a half-line, whose end is found by bisection.
inline long double replaced(long double q, long double noise, long double eps) {
  const long double m = 1 / noise;
  const auto loss = [&](long double u) {
    const long double mean = std::exp(m * m / 2) * (1 - q) / q;
    const long double at = std::abs(u) * m;
    const long double value = std::log1p(-std::expm1(-2 * at) / (mean * std::exp(-at) + std::exp(-2 * at)));
    return u < 0 ? -value : value;
  };
  long double low = -60 - m;
  long double high = 60 + m;
  for (int i = 0; i < 120; ++i) {
    const long double middle = (low + high) / 2;
    (loss(middle) > eps ? high : low) = middle;
  }
  // As the set ends where densities are in the ratio e^eps, an error of its end counts only in the second order.
  const long double u = (low + high) / 2;
  return q * (tail(u - m) - std::exp(eps) * tail(u + m)) - (1 - q) * std::expm1(eps) * tail(u);
}

/// E[(S - c)+], S a sum of `terms` independent e^(m z - m^2/2): in closed form for one, by the trapezoidal rule for the
/// others, which is right to rounding where z moves the bend of what is integrated, of width m, in many steps.
inline long double mean_above(int terms, long double m, long double c) {
  if (c <= 0) return static_cast<long double>(terms) - c;
  if (terms == 1) {
    const long double u = std::log(c) / m + m / 2;
    return tail(u - m) - c * tail(u);
  }
  constexpr long double width = 0.04L;
  long double sum = 0;
  for (long double z = -12; z <= 12 + 2 * m; z += width) {
    sum += std::exp(-z * z / 2) * mean_above(terms - 1, m, c - std::exp(m * z - m * m / 2));
  }
  return sum * width / std::sqrt(2 * std::acos(-1.0L));
}

/// Random allocation: 1/t sum_i N(e_i / noise) against N(0), t-dimensional.
inline long double allocated(int steps, long double noise, long double eps, bool remove) {
  const long double a = std::exp(remove ? eps : -eps);
  const long double above = mean_above(steps, 1 / noise, a * static_cast<long double>(steps)) / steps;
  return remove ? above : (above - 1 + a) / a;  // E[(1 - r/a)+] = (E[(r - a)+] - 1 + a) / a
}

/// The eps >= 0 at which a falling function is `delta`.
template <class Stick>
long double solve(const Stick& stick, long double delta, long double highest) {
  if (stick(0.0L) <= delta) return 0;
  long double low = 0;
  long double high = highest;
  for (int i = 0; i < 100; ++i) {
    const long double middle = (low + high) / 2;
    (stick(middle) > delta ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace oracle
