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
#include <stdexcept>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// The smallest x, up to `tolerance` relatively and never below the true one, with excess(x) <= 0; excess falls, is
/// ln(spent / target) or +-infinity. Looks from `start` on, in [least, most]; `least` if that is safe, infinity if
/// `most` is not.
template <class Excess>
[[nodiscard]] double smallest_safe(const Excess& excess, double start, double least, double most, double tolerance) {
  double high = start;
  double at_high = excess(high);
  double low = high;
  double at_low = at_high;
  if (at_high <= 0) {
    for (double factor = 0.5; at_low <= 0;) {
      high = low;
      at_high = at_low;
      if (high <= least) return high;
      // ln epsilon falls about as ln x does, or faster: a guess that lies a bit too low.
      const double guess = at_high > -2 ? std::exp(0.8 * at_high) * 0.98 : factor;
      low = std::max(least, high * std::max(guess, factor));
      factor *= 0.5;
      at_low = excess(low);
    }
  } else {
    while (!(at_high <= 0)) {
      low = high;
      at_low = at_high;
      if (high >= most) return infinity;
      high = std::min(most, 2 * high);
      at_high = excess(high);
    }
  }
  // Regula falsi with the Illinois weights; half a tolerance away from either end, so that the bracket always closes.
  double weight_low = at_low;
  double weight_high = at_high;
  bool high_moved = false;
  bool low_moved = false;
  while (high - low > tolerance * high) {
    const bool can = weight_low < infinity && weight_high > -infinity;
    const double share = can ? weight_low / (weight_low - weight_high) : 0.5;
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
  return high;
}

/// ln(spent / target), and not positive exactly when spent <= target.
[[nodiscard]] inline double log_excess(double spent, double target) noexcept {
  if (spent <= target) return spent > 0 ? std::min(0.0, std::log(spent / target)) : -infinity;
  return target > 0 ? std::max(1e-16, std::log(spent / target)) : infinity;
}

inline constexpr double most_noise = 1 << 30;
inline constexpr double least_noise = 1.0 / (1 << 10);

}  // namespace detail

/// Smallest noise multiplier (to 1e-6, rounded to the safe side) with which `steps` Poisson-sampled steps stay within
/// (target, at), by the bounds of privacy_accountant, and a budget of that allows all of them; 0 when nothing is ever
/// released (no steps or no sampling) or target is infinite. Takes up to 3 s. Throws std::invalid_argument when no
/// noise multiplier up to 2^30 is enough.
template <class = void>
[[nodiscard]] noise_multiplier calibrate_noise(epsilon target, delta at, sampling_probability q, std::uint64_t steps) {
  if (q.value() == 0 || steps == 0 || target.value() == detail::infinity) return noise_multiplier{0};
  const auto by_renyi = [&](double s) {
    rdp_accountant accountant;
    accountant.record({q.value(), s}, steps);
    return detail::log_excess(accountant.epsilon(at), target.value());
  };
  const auto by_both = [&](double s) {
    return detail::log_excess(detail::proven_epsilon(rdp_accountant{}, {{q.value(), s}, steps}, at).upper,
                              target.value());
  };
  // One family is quick, and its noise is not far above that of both.
  const double start = detail::smallest_safe(by_renyi, 1, detail::least_noise, detail::most_noise, 1e-3);
  double noise = detail::smallest_safe(by_both, std::min(start, detail::most_noise), detail::least_noise,
                                       detail::most_noise, 1e-6);
  // A guard's search for the number of steps may end at another one where bounds are not quite monotone.
  while (noise <= detail::most_noise &&
         detail::steps_within(rdp_accountant{}, {q.value(), noise}, {target, at}) < steps)
    noise *= 1 + 2e-6;
  if (!(noise <= detail::most_noise)) {
    detail::throw_invalid_argument({"pergrad: calibrate_noise: no noise multiplier up to 2^30 gives epsilon ",
                                    target.value(), " in ", steps, " steps"});
  }
  return noise_multiplier{noise};
}

/// Largest number of steps that is proven to stay within (target, at); 0 when one step is too much. To one in a million
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

}  // namespace pergrad::inline v0_1
