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
#include <pergrad/privacy/pld/gaussian_mass.hpp>
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

}  // namespace detail

/// Epsilon of a ledger by the central limit theorem. Exact where nothing is sampled.
template <class = void>
[[nodiscard]] estimate gdp_epsilon(std::span<const rdp_accountant::entry> ledger, delta at) {
  const double squared = detail::clt_mu_squared(ledger);
  const double mu = std::sqrt(squared);
  if (squared == 0 || !(squared < detail::infinity)) return estimate{squared};
  return estimate{detail::gaussian_epsilon(mu, at.value(), true)};
}

/// Epsilon of a ledger from rho: rho + 2 sqrt(rho ln(1/delta)).
template <class = void>
[[nodiscard]] estimate zcdp_epsilon(std::span<const rdp_accountant::entry> ledger, delta at) {
  const double rho = detail::clt_mu_squared(ledger) / 2;
  return estimate{rho + 2 * std::sqrt(-rho * std::log(at.value()))};
}

}  // namespace pergrad::inline v0_1
