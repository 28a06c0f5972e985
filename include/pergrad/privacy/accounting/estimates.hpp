// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/estimates.hpp - epsilon by formulas that are quick and prove nothing.
//
// Gaussian differential privacy by the central limit theorem (Bu, Dong, Long & Su 2019, arXiv:1911.11607): many sampled
// steps look like one Gaussian of mu^2 = sum T q^2 (e^(1/s^2) - 1). It says too little, at q = 1e-4, s = 0.6 less than
// a third of the truth. Zero-concentrated privacy (Bun & Steinke 2016, arXiv:1605.02065) with rho = mu^2 / 2, the slope
// of a step's Renyi divergence at small orders; sampled steps have no rho that holds at all orders.
// Both are of a type of their own, which no budget takes.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// mu^2 of a ledger. Throws std::invalid_argument on an event that is none.
template <class = void>
[[nodiscard]] double clt_mu_squared(std::span<const rdp_accountant::entry> ledger) {
  double sum = 0;
  for (const rdp_accountant::entry& each : ledger) {
    require_event(each.event);
    const double q = each.event.sampling_probability;
    const double s = each.event.noise_multiplier;
    if (q == 0 || each.count == 0) continue;
    sum += static_cast<double>(each.count) * (q == 1 ? 1 / (s * s) : q * q * std::expm1(1 / (s * s)));
  }
  return sum;
}

/// Hockey stick of a Gaussian of mu > 0 at eps >= 0 (Balle & Wang 2018, arXiv:1805.06530, theorem 8).
[[nodiscard]] inline double gaussian_delta(double mu, double eps) {
  const double t = eps / mu - mu / 2;
  const double x = t + mu;
  constexpr double sqrt_half_pi = 1.25331413731550025121;
  // e^eps phi(x) = phi(t), so e^eps Phi(-x) is phi(t) times Mills' ratio of x.
  const double mills = x < 25 ? sqrt_half_pi * std::exp(x * x / 2) * std::erfc(x / std::sqrt(2.0))
                              : (1 - (1 - 3 / (x * x)) / (x * x)) / x;
  return std::erfc(t / std::sqrt(2.0)) / 2 - std::exp(-t * t / 2) / (2 * sqrt_half_pi) * mills;
}

}  // namespace detail

/// Epsilon of a ledger by the central limit theorem. Exact where nothing is sampled.
template <class = void>
[[nodiscard]] estimate gdp_epsilon(std::span<const rdp_accountant::entry> ledger, delta at) {
  const double squared = detail::clt_mu_squared(ledger);
  const double mu = std::sqrt(squared);
  if (squared == 0 || !(squared < detail::infinity)) return estimate{squared};
  double low = 0;
  double high = squared / 2 + mu * std::sqrt(-2 * std::log(at.value()));
  if (detail::gaussian_delta(mu, 0) <= at.value()) return estimate{0};
  for (int round = 0; round < 100; ++round) {
    const double middle = (low + high) / 2;
    (detail::gaussian_delta(mu, middle) > at.value() ? low : high) = middle;
  }
  return estimate{high};
}

/// Epsilon of a ledger from rho: rho + 2 sqrt(rho ln(1/delta)).
template <class = void>
[[nodiscard]] estimate zcdp_epsilon(std::span<const rdp_accountant::entry> ledger, delta at) {
  const double rho = detail::clt_mu_squared(ledger) / 2;
  return estimate{rho + 2 * std::sqrt(-rho * std::log(at.value()))};
}

}  // namespace pergrad::inline v0_1
