// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/binomial_tail.hpp - the upper tail of a binomial distribution, with bounds.
//
// Pr[Bin(n, q) = k] by Stirling's series, whose error is below its first term that is left out (1/1680 k^-7), and its
// neighbours by their ratios, all of which are positive: nothing cancels but in the exponent, whose terms are counted.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

struct probability_bounds {
  double least;
  double most;
};

[[nodiscard]] inline long double log_factorial(std::uint64_t n) noexcept {
  if (n < 32) {
    long double product = 1;
    for (std::uint64_t i = 2; i <= n; ++i) product *= static_cast<long double>(i);
    return std::log(product);
  }
  const auto x = static_cast<long double>(n);
  constexpr long double half_log_two_pi = 0.918938533204672741780329736405617640L;
  return (x + 0.5L) * std::log(x) - x + half_log_two_pi +
         (1 - (1 - 2 / (7 * x * x)) / (30 * x * x)) / (12 * x);  // the next term is below 1/1680 x^-7 < 2e-14
}

/// Pr[Bin(n, q) >= k]. Precondition: 0 <= q <= 1, n < 2^40.
template <class = void>
[[nodiscard]] probability_bounds binomial_tail(std::uint64_t n, double q, std::uint64_t k) {
  if (k == 0) return {1, 1};
  if (k > n || q == 0) return {0, 0};
  if (q == 1) return {1, 1};
  const double mean = static_cast<double>(n) * q;
  // Far below the mean nearly everything is above, and the sum would be long.
  if (static_cast<double>(k) < mean - 12 * std::sqrt(mean) - 12) return {0.999999, 1};  // Chernoff: above 1 - e^-72
  const auto of = [](std::uint64_t x) { return static_cast<long double>(x); };
  const long double log_q = std::log(static_cast<long double>(q));
  const long double log_rest = std::log1p(-static_cast<long double>(q));
  const long double exponent =
      log_factorial(n) - log_factorial(k) - log_factorial(n - k) + of(k) * log_q + of(n - k) * log_rest;
  const long double size = 4 * log_factorial(n) - of(k) * log_q - of(n - k) * log_rest + 8;
  const auto error = static_cast<double>(16 * std::numeric_limits<long double>::epsilon() * size + 1e-13L);
  // Sum of ratios, up to where they fall and what follows is below the last term times ratio / (1 - ratio).
  const long double odds = static_cast<long double>(q) / (1 - static_cast<long double>(q));
  long double term = 1;
  long double sum = 1;
  long double rest = 0;
  double steps = 0;
  for (std::uint64_t i = k; i < n; ++i, ++steps) {
    const long double ratio = of(n - i) / of(i + 1) * odds;
    rest = ratio < 1 ? term * ratio / (1 - ratio) : std::numeric_limits<long double>::max();
    if (rest < 1e-18L * sum) break;
    term *= ratio;
    sum += term;
    rest = 0;
  }
  const auto log_sum = static_cast<double>(exponent + std::log(sum));
  const double off = error + 1e-15 * (steps + 8) + 1e-12;
  return {std::max(0.0, std::exp(log_sum) * (1 - 1e-15) * std::exp(-off)),
          std::min(1.0, std::exp(log_sum + off) * (1 + 1e-12) + 1e-320)};
}

}  // namespace pergrad::inline v0_1::detail
