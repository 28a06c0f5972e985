// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/event_costs.hpp - Renyi divergences of samplers other than Poisson sampling of records
// that are added or removed
//
// With s the noise multiplier, N(x) a Gaussian at x, and D the unit of length; A(a) = E_Q[(P / Q)^a], RDP(a) = ln A(a)
// / (a - 1). A pair whose hockey sticks are nowhere below those of another has no smaller A: it is an integral over
// them, A(a) = 1 + integral of a (a - 1) c^(a - 2) (H(c) - max(0, 1 - c)) over c from 0 to infinity.
//
// Poisson, replacing one. The sides see (1 - q) N(0) + q N(x) and the same with x', |x|, |x'| <= 1. Let S be any set
// and p = N(0)(S). By Neyman and Pearson N(x)(S) <= F(F^-1(p) + 1/s) and N(x')(S) >= F(F^-1(p) - 1/s), with equality
// for half-lines if x' = -x. So P(S) - c Q(S) = (1 - q)(1 - c) p + q N(x)(S) - c q N(x')(S) is largest for x' = -x, |x|
// = 1, for every c > 0: that pair dominates (so say Lebeda et al. 2024, arXiv:2405.20769). Its A is a trapezoidal sum
// in u, as in rdp.hpp: the densities' ratio is analytic in the same strip.
//
// Truncated Poisson, adding or removing one. Of the n - 1 others K are drawn, in both worlds alike. If K < B, nothing
// is cut, and the pair is that of Poisson sampling, H1. If K >= B, the record is drawn and kept with probability q B /
// (K + 1) <= q and then stands in the place of another one: no more than Poisson sampling with noise s / 2, H2. Who is
// told which of both it is sees (1 - p) H1 + p H2, p = Pr[K >= B]. That grows with p, as H1 <= H2 (more noise is
// post-processing), and p with n: so the bound for `records` holds for all data sets of no more. A = (1 - p) A(q, s) +
// p A(q, s / 2).
//
// Truncated Poisson, replacing one. As above; if K < B the pair is that of Poisson sampling, replacing one, H1. If K >=
// B, the record is kept with probability q B / (K + 1) <= q and stands in the place of another one of B others: the
// pair of batches of fixed size with a share of no more than q, H2, which grows with the share (joint convexity: a
// smaller one is a mixture with no difference). H1 <= H2, whose records are within 2 of any place that is displaced. So
// again (1 - p) H1
// + p H2.
//
// Fixed size, replacing one. Given the batch without the record, and whom it displaces (y), the sides see (1 - q) N(y)
// + q N(x) and the same with x', where all three are within 2 of each other. For c >= 1 its hockey stick is at most
// that of removing a record with noise s / 2 (advanced joint convexity, Balle, Barthe & Gaboardi 2018,
// arXiv:1807.01647); for c < 1, by swapping sides, that of adding one. A sum over both halves is at most A - 1 of
// removing and of adding together, the second of which is not the larger (Mironov et al. 2019): A <= 1 + 2 (A(q, s / 2)
// - 1).
//
// Random allocation. Given the k steps that a record drew, a round is k Gaussian mechanisms; joint convexity: RDP(a) =
// k a / (2 s^2). pld_accountant counts that the steps are secret.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <pergrad/privacy/accounting/binomial_tail.hpp>
#include <pergrad/privacy/accounting/rdp.hpp>
#include <pergrad/privacy/accounting/step_losses.hpp>
#include <pergrad/privacy/events.hpp>
#include <pergrad/privacy/pld/loss_source.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

[[nodiscard]] inline detail::event_text description_of(const replace_one_gaussian_event& event) {
  return detail::event_text{"noise multiplier %.6g and sampling probability %.6g", event.noise_multiplier,
                            event.sampling_probability};
}
[[nodiscard]] inline detail::event_text description_of(const truncated_gaussian_event& event) {
  return detail::event_text{
      "noise multiplier %.6g, sampling probability %.6g and at most %.0f records of up to %.0f in a batch",
      event.noise_multiplier, event.sampling_probability, event.capacity, event.records};
}
[[nodiscard]] inline detail::event_text description_of(const replace_one_truncated_gaussian_event& event) {
  return description_of(
      truncated_gaussian_event{event.sampling_probability, event.noise_multiplier, event.capacity, event.records});
}
[[nodiscard]] inline detail::event_text description_of(const fixed_size_gaussian_event& event) {
  return detail::event_text{"noise multiplier %.6g and batches of %.6g of the records", event.noise_multiplier,
                            event.sampled_share};
}
[[nodiscard]] inline detail::event_text description_of(const allocated_gaussian_event& event) {
  return detail::event_text{"noise multiplier %.6g and %.0f of a round's %.0f steps for each record",
                            event.noise_multiplier, event.times, event.steps};
}

namespace detail {
/// A whole number that a double holds exactly.
inline void require_whole(const char* what, double value, double least, double most) {
  if (!(value >= least && value <= most && value == std::floor(value))) {
    throw_bad_number(what, "a whole number that there can be", value);
  }
}
}  // namespace detail

inline void require_event(const replace_one_gaussian_event& event) {
  detail::require_sampled(event.sampling_probability, event.noise_multiplier);
}
inline void require_event(const fixed_size_gaussian_event& event) {
  detail::require_sampled(event.sampled_share, event.noise_multiplier);
}
inline void require_event(const truncated_gaussian_event& event) {
  detail::require_sampled(event.sampling_probability, event.noise_multiplier);
  detail::require_whole("records of an event", event.records, 0, 0x1p32);
  detail::require_whole("the capacity of an event", event.capacity, event.records == 0 ? 0 : 1, 0x1p32);
}
inline void require_event(const replace_one_truncated_gaussian_event& event) {
  require_event(
      truncated_gaussian_event{event.sampling_probability, event.noise_multiplier, event.capacity, event.records});
}
inline void require_event(const allocated_gaussian_event& event) {
  detail::require_sampled(1, event.noise_multiplier);
  detail::require_whole("steps of an event", event.steps, 1, 0x1p24);
  detail::require_whole("participations of an event", event.times, 1, event.steps);
}

namespace detail {

/// How likely a batch is cut, at most.
template <class Event>
[[nodiscard]] double most_cut(const Event& event) {
  if (event.records <= event.capacity) return 0;
  return binomial_tail(static_cast<std::uint64_t>(event.records) - 1, event.sampling_probability,
                       static_cast<std::uint64_t>(event.capacity))
      .most;
}

/// ln(1 + q (e^v - 1)); 0 < q < 1.
[[nodiscard]] inline double log_mixture(double q, double v) noexcept {
  if (q > 0.5 && v < -0.5) return std::log((1 - q) + q * std::exp(v));  // 1 - q is exact, and may be all that is left
  return v < 30 ? std::log1p(q * std::expm1(v)) : std::log(q) + v + std::log1p((1 - q) / q * std::exp(-v));
}

/// ln A(a) of Poisson sampling, replacing one; 0 < q < 1, s > 0. Infinity where the sum would be long.
[[nodiscard]] inline double replaced_log_moment(double q, double s, double a) {
  constexpr double most_points = 40'000;
  const double m = 1 / s;
  const double step = std::min(1.0 / 16, s / 2);
  if (!((78 + (2 * a + 1) * m) / step <= most_points)) return infinity;
  double binomials[14];
  binomials[0] = 1;
  for (int k = 1; k < 14; ++k) binomials[k] = binomials[k - 1] * (a - k + 1) / k;
  const double reach = std::max(a, 2.0);
  const double log_a = std::log(a);
  double plain = 0;
  log_sum large;
  const auto points = static_cast<std::int64_t>(std::ceil((39 + 2 * a * m) / step));
  for (auto at = static_cast<std::int64_t>(-std::ceil((39 + m) / step)); at <= points; ++at) {
    const double u = static_cast<double>(at) * step;
    const double log_q_density = log_mixture(q, -u * m - m * m / 2);  // over that of N(0)
    const double log_ratio = log_mixture(q, u * m - m * m / 2) - log_q_density;
    const double log_weight = log_q_density - u * u / 2;
    const double x = std::expm1(log_ratio);
    if (std::abs(x) * reach < 1e-2) {
      double series = 0;
      for (int k = 13; k >= 2; --k) series = series * x + binomials[k];
      plain += std::exp(log_weight) * series * x * x;
      continue;
    }
    const double y = a * log_ratio;
    if (y < 30) {
      plain += std::exp(log_weight) * (std::expm1(y) - a * x);
      continue;
    }
    const double subtracted = std::exp(log_a + log_ratio - y) - (a - 1) * std::exp(-y);
    large.add(y + std::log1p(-subtracted) + log_weight);
  }
  if (plain > 0) large.add(std::log(plain));
  constexpr double log_sqrt_two_pi = 0.91893853320467274178;
  return log1p_exp(large.value() + std::log(step) - log_sqrt_two_pi);
}

inline void require_order(double order) {
  if (!(order > 1 && order < infinity)) throw_bad_number("Renyi order", "finite and above 1", order);
}
/// ln A(a) of Poisson sampling; 0 without sampling, infinity without noise.
[[nodiscard]] inline double sampled_log_moment(double q, double s, double order) {
  return renyi_divergence(sampled_gaussian_event{q, s}, order) * (order - 1);
}

}  // namespace detail

/// Which privacy losses an event has, for pld_accountant: step_losses.hpp proves them.
template <class = void>
[[nodiscard]] detail::step_losses losses_of(const replace_one_gaussian_event& event) {
  return detail::poisson_replace_losses(event.sampling_probability, event.noise_multiplier);
}
template <class = void>
[[nodiscard]] detail::step_losses losses_of(const fixed_size_gaussian_event& event) {
  return detail::fixed_size_losses(event.sampled_share, event.noise_multiplier);
}
/// As of the head of this file. From below: of so few records that nothing is cut.
template <class = void>
[[nodiscard]] detail::step_losses losses_of(const truncated_gaussian_event& event) {
  using enum detail::pair_kind;
  const double p = detail::most_cut(event);
  const double q = event.sampling_probability;
  if (p == 0 || q == 0) return detail::poisson_losses(q, event.noise_multiplier);
  detail::require_noise(event.noise_multiplier / 2, 1.0 / 32);
  const double m = 1 / event.noise_multiplier;
  const std::vector<detail::step_part> parts{{(1 - p) * (1 + 0x1p-50), sampled, {q, m, 2, 0}},
                                             {p, sampled, {q, 2 * m, 2, 0}}};
  detail::step_losses made;
  made.parts.push_back(
      {std::make_unique<detail::mixture_source<>>(parts, detail::step_part{1, sampled, {q, m, 2, 0}}), 1});
  return made;
}
/// The same, replacing one.
template <class = void>
[[nodiscard]] detail::step_losses losses_of(const replace_one_truncated_gaussian_event& event) {
  using enum detail::pair_kind;
  const double p = detail::most_cut(event);
  const double q = event.sampling_probability;
  // Without sampling both are Gaussians of sensitivity 2.
  if (p == 0 || q == 0 || q == 1) return detail::poisson_replace_losses(q, event.noise_multiplier);
  detail::require_noise(event.noise_multiplier / 2, 1.0 / 32);
  const double m = 1 / event.noise_multiplier;
  const std::vector<detail::step_part> parts{{(1 - p) * (1 + 0x1p-50), replaced, {q, m, 2, 0}},
                                             {p, both_ways, {q, 2 * m, 2, 0}}};
  detail::step_losses made;
  made.parts.push_back(
      {std::make_unique<detail::mixture_source<>>(parts, detail::step_part{1, replaced, {q, m, 2, 0}}), 1});
  return made;
}
template <class = void>
[[nodiscard]] detail::step_losses losses_of(const allocated_gaussian_event& event) {
  return detail::allocation_losses(static_cast<std::uint64_t>(event.steps), static_cast<std::uint64_t>(event.times),
                                   event.noise_multiplier);
}

/// RDP of one step at a real order > 1, by the formulas of this file's head. Throws std::invalid_argument on an order
/// that is not above 1 and on an event that is none.
[[nodiscard]] inline double renyi_divergence(const replace_one_gaussian_event& event, double order) {
  require_event(event);
  detail::require_order(order);
  const double q = event.sampling_probability;
  const double s = event.noise_multiplier;
  if (q == 0) return 0;
  if (s * s == 0) return detail::infinity;
  if (q == 1) return std::max(2 * order / (s * s), detail::least_divergence);
  const double log_moment = detail::replaced_log_moment(q, s, order);
  if (!(log_moment >= 0)) detail::throw_runtime_error({"pergrad: renyi_divergence: no result at order ", order});
  return std::max(log_moment / (order - 1), detail::least_divergence);
}
[[nodiscard]] inline double renyi_divergence(const truncated_gaussian_event& event, double order) {
  require_event(event);
  detail::require_order(order);
  const double q = event.sampling_probability;
  const double p = detail::most_cut(event);
  const double whole = detail::sampled_log_moment(q, event.noise_multiplier, order);
  if (p == 0 || whole == detail::infinity) return whole / (order - 1);
  const double cut = detail::sampled_log_moment(q, event.noise_multiplier / 2, order);
  const double apart = cut - whole;  // not negative; ln((1 - p) + p e^apart) beside `whole`
  const double more = apart < 700 ? std::log1p(p * std::expm1(apart)) : detail::log1p_exp(std::log(p) + apart);
  return (whole + more) / (order - 1);
}
[[nodiscard]] inline double renyi_divergence(const fixed_size_gaussian_event& event, double order) {
  require_event(event);
  detail::require_order(order);
  const double one = detail::sampled_log_moment(event.sampled_share, event.noise_multiplier / 2, order);
  if (one == 0 || one == detail::infinity || event.sampled_share == 1) return one / (order - 1);
  return detail::log1p_exp(std::log(2.0) + detail::log_expm1(one)) / (order - 1);
}
[[nodiscard]] inline double renyi_divergence(const replace_one_truncated_gaussian_event& event, double order) {
  require_event(event);
  const double q = event.sampling_probability;
  const double s = event.noise_multiplier;
  const double p = detail::most_cut(event);
  const double whole = renyi_divergence(replace_one_gaussian_event{q, s}, order) * (order - 1);
  if (p == 0 || whole == detail::infinity) return whole / (order - 1);
  const double cut = renyi_divergence(fixed_size_gaussian_event{q, s}, order) * (order - 1);
  const double apart = std::max(0.0, cut - whole);
  const double more = apart < 700 ? std::log1p(p * std::expm1(apart)) : detail::log1p_exp(std::log(p) + apart);
  return (whole + more) / (order - 1);
}
[[nodiscard]] inline double renyi_divergence(const allocated_gaussian_event& event, double order) {
  require_event(event);
  detail::require_order(order);
  return event.times * renyi_divergence(sampled_gaussian_event{1, event.noise_multiplier}, order);
}

}  // namespace pergrad::inline v0_1
