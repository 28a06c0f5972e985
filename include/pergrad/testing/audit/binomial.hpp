// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/audit/binomial.hpp - tails of binomial and normal distributions, and Clopper and Pearson's bounds
//
// For X ~ Bin(n, p), P[X >= k] = I_p(k, n - k + 1), the regularised incomplete beta function, by its continued fraction
// (Lentz's method). Clopper & Pearson 1934 (Biometrika 26): the least p with P[X <= k] <= s is above the true
// probability but for a probability of at most s. Tails are multiplied by 1 + 1e-6 for rounding, most of which is that
// of ln Gamma, so that every bound that follows errs to the side of whoever is audited.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

#include <pergrad/detail/error_text.hpp>

namespace pergrad::inline v0_1::testing {

/// Phi(x), the standard normal distribution.
[[nodiscard]] inline double normal_below(double x) noexcept { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

/// The x with Phi(x) = p; -infinity for p <= 0, infinity for p >= 1. A rational start (Abramowitz & Stegun 26.2.23,
/// good to 4.5e-4) and steps of Halley's method, each of which triples the places.
[[nodiscard]] inline double normal_quantile(double p) noexcept {
  if (!(p > 0)) return -std::numeric_limits<double>::infinity();
  if (!(p < 1)) return std::numeric_limits<double>::infinity();
  if (p > 0.5) return -normal_quantile(1 - p);  // exact for such p
  const double t = std::sqrt(-2 * std::log(p));
  double x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
  for (int round = 0; round < 3; ++round) {
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    if (!(density > 0)) break;  // beyond x = -38 the start is what there is
    const double newton = (normal_below(x) - p) / density;
    x -= newton / (1 + x * newton / 2);
  }
  return x;
}

namespace testing_detail {

/// I_x(a, b) for a, b > 0 and x where the fraction converges fast, x <= (a + 1) / (a + b + 2).
[[nodiscard]] inline double incomplete_beta_fraction(double a, double b, double x) noexcept {
  constexpr double least = 1e-290;
  const auto guarded = [](double value) { return std::abs(value) < least ? least : value; };
  double c = 1;
  double d = 1 / guarded(1 - (a + b) * x / (a + 1));
  double fraction = d;
  for (int i = 1; i < 100'000; ++i) {
    const double m = i;
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / guarded(1 + even * d);
    c = guarded(1 + even / c);
    fraction *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / guarded(1 + odd * d);
    c = guarded(1 + odd / c);
    fraction *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  const double log_front =
      std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x) - std::log(a);
  return std::exp(log_front) * fraction;
}
[[nodiscard]] inline double incomplete_beta(double a, double b, double x) noexcept {
  if (!(x > 0)) return 0;
  if (!(x < 1)) return 1;
  if (x <= (a + 1) / (a + b + 2)) return incomplete_beta_fraction(a, b, x);
  return 1 - incomplete_beta_fraction(b, a, 1 - x);
}

inline constexpr double tail_margin = 1 + 1e-6;

inline void require_share(const char* what, double share) {
  if (share > 0 && share < 1) return;
  detail::throw_invalid_argument({"pergrad: testing: ", what, " must be strictly between 0 and 1, got ", share});
}

}  // namespace testing_detail

/// P[X >= k] for X ~ Bin(n, p), up to rounding.
[[nodiscard]] inline double binomial_tail(std::size_t k, std::size_t n, double p) noexcept {
  if (k == 0) return 1;
  if (k > n) return 0;
  return testing_detail::incomplete_beta(static_cast<double>(k), static_cast<double>(n - k) + 1, p);
}

/// An upper bound of a probability of which `k` of `n` independent trials were successes, wrong with a probability of
/// at most `significance`. Throws std::invalid_argument unless k <= n and 0 < significance < 1.
[[nodiscard]] inline double clopper_pearson_upper(std::size_t k, std::size_t n, double significance) {
  testing_detail::require_share("a significance", significance);
  if (k > n) detail::throw_invalid_argument({"pergrad: testing: ", k, " successes in ", n, " trials"});
  if (k == n) return 1;
  double low = 0;
  double high = 1;
  for (int round = 0; round < 44; ++round) {
    const double middle = (low + high) / 2;
    // P[X <= k]: as many failures as n - k, at least.
    const double at_most = binomial_tail(n - k, n, 1 - middle) * testing_detail::tail_margin;
    (at_most > significance ? low : high) = middle;
  }
  return high;
}

/// A lower bound, likewise.
[[nodiscard]] inline double clopper_pearson_lower(std::size_t k, std::size_t n, double significance) {
  if (k > n) detail::throw_invalid_argument({"pergrad: testing: ", k, " successes in ", n, " trials"});
  return 1 - clopper_pearson_upper(n - k, n, significance);
}

}  // namespace pergrad::inline v0_1::testing
