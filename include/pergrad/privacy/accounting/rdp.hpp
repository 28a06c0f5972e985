// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/rdp.hpp - Renyi differential privacy of the Poisson-sampled Gaussian, and its way to
// (epsilon, delta).
//
// Mironov, Talwar & Zhang 2019 (arXiv:1908.10530): with sampling probability q and noise multiplier s, one step has
//     RDP(a) = ln A(a) / (a - 1),   A(a) = E[(1 + x)^a],   x = q expm1(w),   w = u/s - 1/(2 s^2),   u ~ N(0, 1)
// for every real order a > 1, neighbours by adding or removing one record. Steps compose by addition at the same a.
// Since E[x] = 0, A - 1 = E[(1 + x)^a - 1 - a x], whose integrand is never negative (convexity), so nothing cancels:
// * real a: trapezoidal rule in u. The integrand is analytic in the strip |Im u| < pi s and decays like a Gaussian, so
//   step h = min(1/16, s/2) has error of order exp(-2 pi min(pi s, 2 pi / h) / h), below double precision.
// * whole a: A - 1 = sum_{k=2..a} binom(a, k) q^k (1 - q)^(a - k) expm1((k^2 - k) / (2 s^2)), all terms positive.
// * where the trapezoid would need too many points (tiny s), ln A of a fractional order is bounded from above by the
//   chord between its whole neighbours: ln A is convex in a (a cumulant generating function) and ln A(1) = 0.
//
// RDP to (epsilon, delta), Canonne, Kamath & Steinke 2020 (arXiv:2004.00010, proposition 12), Balle et al. 2019
// (arXiv:1905.09982, theorem 21):
//     epsilon = r + log1p(-1/a) - ln(delta a) / (a - 1),    delta = exp((a - 1)(r - epsilon + log1p(-1/a))) / a
// and, as a divergence of order a > 1 bounds Kullback-Leibler, delta <= sqrt(1 - exp(-r)) at epsilon = 0
// (Bretagnolle & Huber 1979). Every order gives a valid bound, hence so does the minimum over any set of orders.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Of a step that loses something, however little a double makes of it: 0 would say that it loses nothing at all.
inline constexpr double least_divergence = 1e-300;

/// ln sum_i exp(x_i), term by term.
class log_sum {
 public:
  void add(double x) noexcept {
    if (x <= largest_) {
      scaled_ += std::exp(x - largest_);
    } else {
      scaled_ = scaled_ * std::exp(largest_ - x) + 1.0;
      largest_ = x;
    }
  }
  [[nodiscard]] double value() const noexcept { return scaled_ > 0 ? largest_ + std::log(scaled_) : -infinity; }

 private:
  double largest_ = -std::numeric_limits<double>::max();
  double scaled_ = 0;
};

/// ln(1 + exp(y)) for any y.
[[nodiscard]] inline double log1p_exp(double y) noexcept { return y > 40 ? y + std::exp(-y) : std::log1p(std::exp(y)); }

/// ln(exp(y) - 1) for y > 0.
[[nodiscard]] inline double log_expm1(double y) noexcept {
  return y > 1 ? y + std::log1p(-std::exp(-y)) : std::log(std::expm1(y));
}

/// ln A(order) for a whole order >= 1; 0 < q < 1, s > 0.
[[nodiscard, gnu::cold]] inline double sampled_gaussian_log_moment_whole(double q, double s, std::uint64_t order) {
  const double log_q = std::log(q);
  const double log_rest = std::log1p(-q);
  const auto a = static_cast<double>(order);
  double log_binomial = 0;  // ln binom(order, k), summed with compensation
  double lost = 0;
  log_sum sum;
  for (std::uint64_t whole = 1; whole <= order; ++whole) {
    const auto k = static_cast<double>(whole);
    const double term = std::log((a - k + 1) / k) - lost;
    const double next = log_binomial + term;
    lost = (next - log_binomial) - term;
    log_binomial = next;
    if (whole >= 2) sum.add(log_binomial + k * log_q + (a - k) * log_rest + log_expm1(k * (k - 1) / (2 * s * s)));
  }
  return log1p_exp(sum.value());
}

/// ln A(a) by the trapezoidal rule for real a > 1; 0 < q < 1, s > 0.
[[nodiscard, gnu::cold]] inline double sampled_gaussian_log_moment_real(double q, double s, double a) {
  const double log_q = std::log(q);
  const double log_rest = std::log1p(-q);
  const double log_a = std::log(a);
  const double step = std::min(1.0 / 16, s / 2);
  const double reach = std::max(a, 2.0);
  double binomials[14];
  binomials[0] = 1;
  for (int k = 1; k < 14; ++k) binomials[k] = binomials[k - 1] * (a - k + 1) / k;

  double plain = 0;  // sum of exp(-u^2/2) g(x) where g needs no logarithm
  log_sum large;
  const auto points = static_cast<std::int64_t>(std::ceil((39 + a / s) / step));
  for (auto at = static_cast<std::int64_t>(-std::ceil(39 / step)); at <= points; ++at) {
    const double u = static_cast<double>(at) * step;
    const double w = u / s - 1 / (2 * s * s);
    const double x = w < 700 ? q * std::expm1(w) : std::exp(log_q + w);
    if (std::abs(x) * reach < 1e-2) {
      double series = 0;
      for (int k = 13; k >= 2; --k) series = series * x + binomials[k];
      plain += std::exp(-u * u / 2) * series * x * x;
      continue;
    }
    const double log_ratio = w < 30 ? std::log1p(x) : log_rest + log1p_exp(log_q + w - log_rest);  // ln(1 + x)
    const double y = a * log_ratio;
    if (y < 30) {
      plain += std::exp(-u * u / 2) * (std::expm1(y) - a * x);
      continue;
    }
    // (1 + x)^a - (1 + a x) with 1 + a x = a (1 + x) - (a - 1), relative to (1 + x)^a
    const double subtracted = std::exp(log_a + log_ratio - y) - (a - 1) * std::exp(-y);
    large.add(y + std::log1p(-subtracted) - u * u / 2);
  }
  if (plain > 0) large.add(std::log(plain));
  constexpr double log_sqrt_two_pi = 0.91893853320467274178;
  return log1p_exp(large.value() + std::log(step) - log_sqrt_two_pi);
}

inline constexpr double most_trapezoid_points = 200'000;

/// ln A(a), or a bound from above where the trapezoid would be too long; 0 < q < 1, s > 0.
[[nodiscard]] inline double sampled_gaussian_log_moment(double q, double s, double a) {
  const double below = std::floor(a);
  if (below == a && a <= 1e6) return sampled_gaussian_log_moment_whole(q, s, static_cast<std::uint64_t>(a));
  if ((78 + a / s) / std::min(1.0 / 16, s / 2) <= most_trapezoid_points) {
    return sampled_gaussian_log_moment_real(q, s, a);
  }
  if (a > 1e6) return infinity;
  const auto whole = static_cast<std::uint64_t>(below);
  const double lower = sampled_gaussian_log_moment_whole(q, s, whole);
  const double upper = sampled_gaussian_log_moment_whole(q, s, whole + 1);
  return lower + (a - below) * (upper - lower);
}

/// An event in words.
struct event_text {
  char text[200] = {};
  template <class... Numbers>
  explicit event_text(const char* format, Numbers... numbers) {
    std::snprintf(text, sizeof text, format, numbers...);
  }
};
/// What most events have.
inline void require_sampled(double probability, double noise) {
  if (!sampling_probability::holds(probability)) {
    throw_bad_number("sampling_probability of an event", sampling_probability::need, probability);
  }
  if (!noise_multiplier::holds(noise)) {
    throw_bad_number("noise_multiplier of an event", noise_multiplier::need, noise);
  }
}

}  // namespace detail

/// An event in words.
[[nodiscard]] inline detail::event_text description_of(const sampled_gaussian_event& event) {
  return detail::event_text{"noise multiplier %.6g and sampling probability %.6g", event.noise_multiplier,
                            event.sampling_probability};
}
/// Throws std::invalid_argument on numbers that are no event's.
inline void require_event(const sampled_gaussian_event& event) {
  detail::require_sampled(event.sampling_probability, event.noise_multiplier);
}

/// RDP of one step at a real order > 1. Infinity without noise, 0 without sampling. Relative error about 1e-13; for
/// noise multipliers so small (below about 0.03) that the quadrature would be long, an upper bound between whole
/// orders. Throws std::invalid_argument on an order that is not above 1 and on an event that is none.
[[nodiscard]] inline double renyi_divergence(const sampled_gaussian_event& event, double order) {
  require_event(event);
  if (!(order > 1 && order < detail::infinity)) detail::throw_bad_number("Renyi order", "finite and above 1", order);
  const double q = event.sampling_probability;
  const double s = event.noise_multiplier;
  if (q == 0) return 0;
  if (2 * s * s == 0) return detail::infinity;
  if (q == 1) return std::max(order / (2 * s * s), detail::least_divergence);
  const double log_moment = detail::sampled_gaussian_log_moment(q, s, order);
  if (!(log_moment >= 0)) {  // cannot happen; a NaN must not pass for a small loss
    detail::throw_runtime_error({"pergrad: renyi_divergence: no result at order ", order});
  }
  return std::max(log_moment / (order - 1), detail::least_divergence);
}

/// Smallest epsilon that (order, rdp) proves for `at`, never negative.
[[nodiscard]] inline double epsilon_from_rdp(double order, double rdp, pergrad::delta at) {
  if (!(rdp >= 0) || !(order > 1)) {
    detail::throw_bad_number("RDP", "not negative at an order above 1", rdp >= 0 ? order : rdp);
  }
  const double d = at.value();
  if (d * d + std::expm1(-rdp) >= 0) return 0;
  return std::max(0.0, rdp + std::log1p(-1 / order) - std::log(d * order) / (order - 1));
}

/// Smallest delta that (order, rdp) proves for `at`, at most 1.
[[nodiscard]] inline double delta_from_rdp(double order, double rdp, pergrad::epsilon at) {
  if (!(rdp >= 0) || !(order > 1)) {
    detail::throw_bad_number("RDP", "not negative at an order above 1", rdp >= 0 ? order : rdp);
  }
  if (rdp == 0 || at.value() == detail::infinity) return 0;
  const double kullback_leibler = std::sqrt(-std::expm1(-rdp));
  const double converted = std::exp((order - 1) * (rdp - at.value() + std::log1p(-1 / order)) - std::log(order));
  return std::min({1.0, kullback_leibler, converted});
}

}  // namespace pergrad::inline v0_1
