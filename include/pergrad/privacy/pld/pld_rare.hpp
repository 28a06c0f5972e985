// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/pld_rare.hpp - a step whose large losses are rare, as two: one of its common losses, on a fine
// grid and in blocks, and one of its rare ones, on the coarse grid of the whole run.
//
// A step is the pair of measures b + r: common losses, of P-mass p and Q-mass q, and rare ones, of P-mass 1 - p. Let B
// be the step b / p against b / q, and R that of a letter "common", with masses p and q, or a rare result.
//
// Above. B and R, drawn independently, reveal all that the step does: whoever has both forgets the first one if the
// second one is rare. So T steps are dominated by T steps of B and T of R (post-processing), and by n >= T of B. Their
// losses are ln(p / q) apart from those of b, which may be shifted from one to the other: T-fold sums of
//     n times b,    T - n times (less than none) an atom of masses p and q,    T times (1 at loss 0, r / p at its loss
//     less ln(p / q)).
//
// Below. T steps with k <= K rare ones reveal a list of those and T - k results of B. Whoever forgets K - k of these
// is left with T - K results of B, and the list; the step dominates this for k <= K. So of the sums of
//     T - K times b,    K times an atom of masses p and q,    T times (1 at loss 0, r / p at its loss less ln(p / q))
// those with k <= K are a lower bound. The sum over all k is too large by at most the P-mass of k > K,
//     Pr[Bin(T, 1 - p) > K] <= e^(K' - mu) (mu / K')^K',   mu = T (1 - p), K' = K + 1 > mu      (Chernoff).
//
// What is lost is the losses of K of T results of B. b and r are the exact parts of a pair's line, so p and q are
// differences of the Gaussian's; their grids dominate, or are dominated, as those of a whole step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <pergrad/privacy/pld/composed_pld.hpp>
#include <pergrad/privacy/pld/fourier.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/pld/pld_step.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// Nothing is known of it.
inline void too_far(pld<upper>& rare) { rare.infinite = infinity; }

/// Makes 1 at loss 0, r / p at its loss + `shift` >= 0, of r above. Its points are at multiples of the spacing.
inline void add_common(pld<upper>& rare, double p, double shift) {
  constexpr double u = unit_roundoff;
  const double moves = shift / -std::expm1(-rare.spacing);  // >= (1 - e^-shift) / (1 - e^-h)
  if (!(moves <= 1)) return too_far(rare);
  rare.masses.push_back(0);
  for (std::size_t i = rare.masses.size(); i-- > 1;) {
    rare.masses[i] = (rare.masses[i] * (1 - moves) + rare.masses[i - 1] * moves) / p * (1 + 16 * u);
  }
  rare.masses[0] *= (1 - moves) / p * (1 + 16 * u);
  rare.infinite *= (1 + 16 * u) / p;
  double& others = rare.masses[static_cast<std::size_t>(-rare.first / pld<upper>::parts)];
  others = (others + 1) * (1 + 2 * u);
}

/// The rare losses of a step, those outside of `common`, up to `cap`, with 1 for all others.
template <class Pair>
[[nodiscard, gnu::cold]] discrete_step rare_losses(const continuous_step& step, const line_part& common, double h,
                                                   double cap) {
  constexpr double u = unit_roundoff;
  using discretiser = step_discretiser<Pair>;
  const discretiser rare{step, {common.low, common.high, false}};
  discrete_step made = rare.on_grid(h, cap, discretiser::grid_points::at_zero);
  const pair_masses all = rare.between(-infinity, infinity);
  const double most_p = rare.pair().most_p(all) * (1 + 8 * u);
  const double least_p = rare.pair().least_p(all) * (1 - 8 * u);
  const double most_q = rare.pair().most_q(all) * (1 + 8 * u);
  const double least_q = rare.pair().least_q(all) * (1 - 8 * u);
  made.least_log_p = std::log1p(-most_p) * (1 + 32 * u);
  made.most_log_p = std::log1p(-least_p) * (1 - 32 * u);
  made.least_log_q = std::log1p(-most_q) * (1 + 32 * u);
  made.most_log_q = std::log1p(-least_q) * (1 - 32 * u);
  add_common(made.remove, 1 - most_p, std::max(0.0, made.most_log_q - made.least_log_p));
  add_common(made.add, 1 - most_q, std::max(0.0, made.most_log_p - made.least_log_q));
  pld<lower>& below = made.remove_below;
  // Rounded down to its loss as it was; nothing of it where that may be higher.
  const double share = made.most_log_p <= made.least_log_q ? (1 - 16 * u) / (1 - least_p) : 0;
  for (double& each : below.masses) each *= share;
  below.beyond_p *= share;
  below.beyond_q *= (1 + 16 * u) / (1 - most_q);
  double& others = below.masses[static_cast<std::size_t>(-below.first / pld<lower>::parts)];
  others = (others + 1) * (1 - 2 * u);
  return made;
}

/// Takes `more` atoms of what is common into a sum: masses whose logarithms are log_p and log_q. Above, log_p is no
/// more and log_q no less than they are, and there are less than none of them; below, the same, and there are some.
template <pld_side Side, class Pays>
void take_common(composed_pld<Side, Pays>& sum, double log_p, double log_q, double more) {
  constexpr double u = unit_roundoff;
  const double mass = more * log_p;
  const double shift = mass - more * log_q;
  const double rounding = 8 * u * std::abs(more) * (std::abs(log_p) + std::abs(log_q));
  sum.origin += shift;
  sum.lowest += shift;
  sum.origin_error += rounding + 4 * u * std::abs(sum.origin);
  sum.log_scale += sum.tilt * shift + mass;
  sum.log_scale_error += (1 + sum.tilt) * rounding + 8 * u * std::abs(sum.log_scale);
  sum.infinite *= std::exp(mass) * (1 + 1e-9);
  sum.beyond_p *= std::exp(mass) * (1 - 1e-9);
  sum.beyond_q *= std::exp(mass - shift) * (1 + 1e-9);
}

/// Bound of Pr[Bin(steps, share) > most].
[[nodiscard]] inline double more_than(double most, double steps, double share) {
  const double mean = steps * share * (1 + 4 * unit_roundoff);
  const double first = most + 1;
  return first > mean ? std::exp(first - mean - first * std::log(first / mean) + 1e-12 * (first + mean)) : 1.0;
}

}  // namespace pergrad::inline v0_1::detail
