// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/calibrate.hpp - the noise, or the number of steps, that keeps to a target (epsilon,
// delta).
//
// Epsilon falls with the noise multiplier and rises with the number of steps. Bisection keeps a bracket whose safe end
// was evaluated by the very accountant that will guard the run, and returns that end: never a value that overshoots.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

[[nodiscard]] inline double epsilon_of_run(const sampled_gaussian_event& event, std::uint64_t steps,
                                           pergrad::delta at) {
  rdp_accountant accountant;
  accountant.record(event, steps);
  return accountant.epsilon(at);
}

}  // namespace detail

/// Smallest noise multiplier (to 1e-8, rounded to the safe side) with which `steps` Poisson-sampled steps stay within
/// (target, at) according to rdp_accountant; 0 when nothing is ever released (no steps or no sampling) or target is
/// infinite. Throws std::invalid_argument when no noise multiplier up to 2^30 is enough.
[[nodiscard]] inline noise_multiplier calibrate_noise(epsilon target, delta at, sampling_probability q,
                                                      std::uint64_t steps) {
  if (q.value() == 0 || steps == 0 || target.value() == detail::infinity) return noise_multiplier{0};
  // ln(epsilon / target): not positive exactly when s is safe.
  const auto excess = [&](double s) {
    const double spent = detail::epsilon_of_run({q.value(), s}, steps, at);
    if (spent <= target.value()) return spent > 0 ? std::log(spent / target.value()) : -1.0;
    return target.value() > 0 ? std::log(spent / target.value()) : 1.0;
  };
  constexpr double most = 1 << 30;
  constexpr double least = 1.0 / (1 << 10);
  constexpr double tolerance = 1e-8;
  double high = 1;
  double at_high = excess(high);
  while (!(at_high <= 0)) {
    high *= 2;
    if (high > most) {
      char text[128];
      std::snprintf(text, sizeof text,
                    "pergrad: calibrate_noise: no noise multiplier up to 2^30 gives epsilon %.6g in %llu steps",
                    target.value(), static_cast<unsigned long long>(steps));
      throw std::invalid_argument(text);
    }
    at_high = excess(high);
  }
  double low = high / 2;
  double at_low = excess(low);
  while (at_low <= 0) {
    high = low;
    at_high = at_low;
    if (high <= least) return noise_multiplier{high};
    low /= 2;
    at_low = excess(low);
  }
  // Regula falsi with the Illinois weights; half a tolerance away from either end, so that the bracket always closes.
  double weight_low = at_low;
  double weight_high = at_high;
  bool high_moved = false;
  bool low_moved = false;
  while (high - low > tolerance * high) {
    const double share = weight_low < detail::infinity ? weight_low / (weight_low - weight_high) : 0.5;
    const double inset = tolerance * high / 2;
    const double middle = std::clamp(low + share * (high - low), low + inset, high - inset);
    const double at_middle = excess(middle);
    if (at_middle <= 0) {
      high = middle;
      weight_high = at_middle;
      if (high_moved) weight_low /= 2;
    } else {
      low = middle;
      weight_low = at_middle;
      if (low_moved) weight_high /= 2;
    }
    high_moved = at_middle <= 0;
    low_moved = !high_moved;
  }
  return noise_multiplier{high};
}

/// Largest number of steps that stays within (target, at) according to rdp_accountant; 0 when one step is too much.
/// Throws std::invalid_argument when 2^62 steps do not exhaust the target (no sampling, infinite target).
[[nodiscard]] inline std::uint64_t max_steps(epsilon target, delta at, sampling_probability q, noise_multiplier noise) {
  const sampled_gaussian_event event{q.value(), noise.value()};
  rdp_accountant accountant;
  accountant.prepare(event);
  const privacy_budget budget{target, at};
  const auto keeps = [&](std::uint64_t steps) { return !accountant.would_exceed(budget, event, steps); };
  if (!keeps(1)) return 0;
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  std::uint64_t safe = 1;
  while (keeps(2 * safe)) {
    safe *= 2;
    if (safe >= most) throw std::invalid_argument("pergrad: max_steps: no number of steps exhausts this target");
  }
  std::uint64_t unsafe = 2 * safe;
  while (unsafe - safe > 1) {
    const std::uint64_t middle = safe + (unsafe - safe) / 2;
    (keeps(middle) ? safe : unsafe) = middle;
  }
  return safe;
}

}  // namespace pergrad::inline v0_1
