// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/calibrate.hpp - the noise, the sampling or the number of steps that keeps to a target:
// (epsilon, delta), or what an attacker can do.
//
// Epsilon falls with the noise multiplier and rises with the number of steps. Bisection keeps a bracket whose safe end
// was evaluated by the very accountant that will guard the run, and returns that end: never a value that overshoots.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <stdexcept>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/accounting/search.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Target of a calibration: no attacker's true positives exceed his false ones by more.
struct attack_advantage {
  double most;
};
/// Target of a calibration: no attacker with at most this rate of false positives has more true ones.
struct attack_success {
  double false_positive_rate;
  double most_true_positives;
};

namespace detail {

template <class = void>
[[nodiscard]] double excess_over(const privacy_budget& target, const rdp_accountant& ledger) {
  return log_excess(proven_epsilon(ledger, {}, target.delta).upper, target.max_epsilon.value());
}
template <class = void>
[[nodiscard]] double excess_over(const attack_advantage& target, const rdp_accountant& ledger) {
  return log_excess(proven_advantage(ledger), target.most);
}
template <class = void>
[[nodiscard]] double excess_over(const attack_success& target, const rdp_accountant& ledger) {
  const double rate = target.false_positive_rate;
  return log_excess(proven_true_positive_rate(ledger, rate) - rate, target.most_true_positives - rate);
}
inline void require_target(const attack_advantage& target) {
  if (!(target.most > 0 && target.most < 1)) throw_bad_number("attack_advantage", "in (0, 1)", target.most);
}
inline void require_target(const attack_success& target) {
  if (!(target.false_positive_rate >= 0 && target.false_positive_rate < target.most_true_positives &&
        target.most_true_positives < 1)) {
    throw_bad_number("attack_success", "true positives above false ones and below 1", target.most_true_positives);
  }
}
inline void require_target(const privacy_budget& /*target*/) noexcept {}
template <class = void>
[[nodiscard]] rdp_accountant ledger_of(double q, double noise, std::uint64_t steps) {
  rdp_accountant made;
  made.record({q, noise}, tried_steps(steps));
  return made;
}

/// Of noise and of sampling: what steps are tried to, or better.
[[nodiscard]] constexpr double tolerance_for(std::uint64_t steps) noexcept {
  return steps < (std::uint64_t{1} << 20U) ? 1e-6 : 1e-4;
}
inline constexpr double most_noise = 1 << 30;
inline constexpr double least_noise = 1.0 / (1 << 10);

}  // namespace detail

/// Smallest noise multiplier (to 1e-6, beyond a million steps to 1e-4, rounded to the safe side) with which `steps`
/// Poisson-sampled steps stay within (target, at), by the bounds of privacy_accountant, and a budget of that allows all
/// of them; 0 when nothing is ever released (no steps or no sampling) or target is infinite. Takes up to 3 s. Throws
/// std::invalid_argument when no noise multiplier up to 2^30 is enough.
template <class = void>
[[nodiscard]] noise_multiplier calibrate_noise(epsilon target, delta at, sampling_probability q, std::uint64_t steps) {
  if (q.value() == 0 || steps == 0 || target.value() == detail::infinity) return noise_multiplier{0};
  const auto by_renyi = [&](double s) {
    return detail::log_excess(detail::ledger_of(q.value(), s, steps).epsilon(at), target.value());
  };
  const privacy_budget budget{target, at};
  const auto by_both = [&](double s) { return detail::excess_over(budget, detail::ledger_of(q.value(), s, steps)); };
  // One family is quick, and its noise is not far above that of both.
  const double start = detail::smallest_safe(by_renyi, 1, detail::least_noise, detail::most_noise, 1e-3);
  double noise = detail::smallest_safe(by_both, std::min(start, detail::most_noise), detail::least_noise,
                                       detail::most_noise, detail::tolerance_for(steps));
  // A guard's search for the number of steps may end at another one where bounds are not quite monotone.
  while (noise <= detail::most_noise && detail::steps_within(rdp_accountant{}, {q.value(), noise}, budget) < steps)
    noise *= 1 + 2 * detail::tolerance_for(steps);
  if (!(noise <= detail::most_noise)) {
    detail::throw_invalid_argument({"pergrad: calibrate_noise: no noise multiplier up to 2^30 gives epsilon ",
                                    target.value(), " in ", steps, " steps"});
  }
  return noise_multiplier{noise};
}

/// The same for what attackers can do: `target` is an attack_advantage or an attack_success. Throws
/// std::invalid_argument for a target that is none, or that no noise multiplier up to 2^30 keeps to.
template <class Target>
requires std::same_as<Target, attack_advantage> || std::same_as<Target, attack_success>
[[nodiscard]] noise_multiplier calibrate_noise(const Target& target, sampling_probability q, std::uint64_t steps) {
  detail::require_target(target);
  if (q.value() == 0 || steps == 0) return noise_multiplier{0};
  const double noise = detail::smallest_safe(
      [&](double s) { return detail::excess_over(target, detail::ledger_of(q.value(), s, steps)); }, 1,
      detail::least_noise, detail::most_noise, detail::tolerance_for(steps));
  if (!(noise <= detail::most_noise)) {
    throw std::invalid_argument("pergrad: calibrate_noise: no noise multiplier up to 2^30 keeps attacks to the target");
  }
  return noise_multiplier{noise};
}

/// Largest sampling probability (to 1e-6, beyond a million steps to 1e-4, rounded to the safe side) with which `steps`
/// steps are proven to keep to `target`: a privacy_budget, an attack_advantage or an attack_success. 1 if all records
/// may always take part. Throws std::invalid_argument for a target that is none, or that no probability above 1e-12
/// keeps to.
template <class Target>
[[nodiscard]] sampling_probability calibrate_sampling(const Target& target, noise_multiplier noise,
                                                      std::uint64_t steps) {
  detail::require_target(target);
  if (steps == 0) return sampling_probability{1};
  constexpr double most = 1e12;
  const double inverse = detail::smallest_safe(
      [&](double one_in) { return detail::excess_over(target, detail::ledger_of(1 / one_in, noise.value(), steps)); },
      32, 1, most, detail::tolerance_for(steps));
  if (!(inverse <= most)) {
    throw std::invalid_argument("pergrad: calibrate_sampling: no probability above 1e-12 keeps to the target");
  }
  return sampling_probability{1 / inverse};
}

/// Largest number of steps that is proven to stay within (target, at); 0 when one step is too much. To one in 8192
/// beyond a million. Throws std::invalid_argument when no number of steps exhausts the target (no sampling, infinite
/// target).
template <class = void>
[[nodiscard]] std::uint64_t max_steps(epsilon target, delta at, sampling_probability q, noise_multiplier noise) {
  const std::uint64_t steps =
      detail::steps_within(rdp_accountant{}, {q.value(), noise.value()}, privacy_budget{target, at});
  if (steps >= std::uint64_t{1} << 62U) {
    throw std::invalid_argument("pergrad: max_steps: no number of steps exhausts this target");
  }
  return steps;
}

/// The same for what attackers can do.
template <class Target>
requires std::same_as<Target, attack_advantage> || std::same_as<Target, attack_success>
[[nodiscard]] std::uint64_t max_steps(const Target& target, sampling_probability q, noise_multiplier noise) {
  detail::require_target(target);
  if (q.value() == 0) throw std::invalid_argument("pergrad: max_steps: no number of steps exhausts this target");
  return detail::largest_safe(
      [&](std::uint64_t steps) {
        return detail::excess_over(target, detail::ledger_of(q.value(), noise.value(), steps));
      },
      0);
}

}  // namespace pergrad::inline v0_1
