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
#include <type_traits>

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

template <class Target>
concept target_of_attacks = std::same_as<Target, attack_advantage> || std::same_as<Target, attack_success>;

template <class Event>
[[nodiscard]] double excess_over(const attack_advantage& target, const basic_rdp_accountant<Event>& ledger) {
  return log_excess(proven_advantage(ledger), target.most);
}
template <class Event>
[[nodiscard]] double excess_over(const attack_success& target, const basic_rdp_accountant<Event>& ledger) {
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
/// No run has as many; a difference below zero has.
[[gnu::cold]] inline void require_steps(std::uint64_t steps) {
  if (steps < std::uint64_t{1} << 62U) return;
  throw_invalid_argument({"pergrad: calibrate: ", steps, " steps are more than 2^62: a difference below zero?"});
}
template <class Event>
[[nodiscard]] basic_rdp_accountant<Event> ledger_of(const Event& event, std::uint64_t count) {
  basic_rdp_accountant<Event> made;
  made.record(event, tried_steps(count));
  return made;
}
/// `count` steps of an event against a target.
template <class Target, class Event>
[[nodiscard]] double excess_of(const Target& target, const Event& event, std::uint64_t count) {
  if constexpr (std::same_as<Target, privacy_budget>) {  // no ledger, which would ask all Renyi orders
    return excess_over(target, basic_rdp_accountant<Event>{}, {event, tried_steps(count)});
  } else {
    return excess_over(target, ledger_of(event, count));
  }
}
/// The same by one family alone: quick where noise is not little, and not far from both.
template <class Event>
[[nodiscard]] double renyi_excess_of(const privacy_budget& budget, const Event& event, std::uint64_t count) {
  return log_excess(ledger_of(event, count).epsilon(budget.delta), budget.max_epsilon.value());
}

/// Of noise and of sampling.
[[nodiscard]] constexpr double tolerance_for(std::uint64_t steps) noexcept {
  return steps < (std::uint64_t{1} << 20U) ? 1e-6 : 1e-4;
}
inline constexpr double most_noise = 1 << 30;
inline constexpr double least_noise = 1.0 / (1 << 10);

/// The least noise with which `count` of event_of(noise) keep to the budget.
template <class EventOf>
[[nodiscard, gnu::cold]] noise_multiplier calibrated_noise(const privacy_budget& budget, const EventOf& event_of,
                                                           std::uint64_t count) {
  require_steps(count);
  const auto by_renyi = [&](double s) { return renyi_excess_of(budget, event_of(s), count); };
  const auto by_both = [&](double s) { return excess_of(budget, event_of(s), count); };
  const double start = smallest_safe(by_renyi, 1, least_noise, most_noise, 1e-3);
  double noise = smallest_safe(by_both, std::min(start, most_noise), least_noise, most_noise, tolerance_for(count));
  // A guard's search for the number of steps may end at another one where bounds are not quite monotone.
  const basic_rdp_accountant<std::decay_t<decltype(event_of(noise))>> empty;
  for (double more = std::max(1e-5, tolerance_for(count));
       noise <= most_noise && steps_within(empty, event_of(noise), budget) < count; more *= 2) {
    noise *= 1 + more;
  }
  if (!(noise <= most_noise)) {
    throw_invalid_argument({"pergrad: calibrate_noise: no noise multiplier up to 2^30 gives epsilon ",
                            budget.max_epsilon.value(), " in ", count, " steps"});
  }
  return noise_multiplier{noise};
}

/// The least noise with which `count` of event_of(noise) keep attackers to the target.
template <target_of_attacks Target, class EventOf>
[[nodiscard, gnu::cold]] noise_multiplier calibrated_noise(const Target& target, const EventOf& event_of,
                                                           std::uint64_t count) {
  require_steps(count);
  const auto excess = [&](double s) { return excess_of(target, event_of(s), count); };
  const double noise = smallest_safe(excess, 1, least_noise, most_noise, tolerance_for(count));
  if (!(noise <= most_noise)) {
    throw std::invalid_argument("pergrad: calibrate_noise: no noise multiplier up to 2^30 keeps attacks to the target");
  }
  return noise_multiplier{noise};
}

/// The most events that keep attackers to the target.
template <target_of_attacks Target, class Event>
[[nodiscard, gnu::cold]] std::uint64_t events_within(const Target& target, const Event& event) {
  require_target(target);
  const auto excess = [&](std::uint64_t count) { return excess_of(target, event, count); };
  const std::uint64_t most = largest_safe(excess, 0);
  if (most >= std::uint64_t{1} << 61U) {
    throw std::invalid_argument("pergrad: max_steps: no number of steps exhausts this target");
  }
  return most;
}

/// A sampler: what has events. One of them may pay several steps.
template <class Sampling>
concept yields_events = requires(const Sampling& sampling, noise_multiplier noise) {
  typename Sampling::event_type;
  sampling.event(noise);
};
template <class Sampling>
[[nodiscard]] std::uint64_t steps_of_an_event(const Sampling& sampling) noexcept {
  if constexpr (requires { sampling.sampler(); }) {
    return steps_of_an_event(sampling.sampler());
  } else if constexpr (has_rounds<Sampling>) {
    return sampling.steps_of_an_event();
  } else {
    return 1;
  }
}
/// Events of so many steps; a round that is begun counts as a whole one.
template <class Sampling>
[[nodiscard]] std::uint64_t events_of(const Sampling& sampling, std::uint64_t steps) noexcept {
  const std::uint64_t of_an_event = steps_of_an_event(sampling);
  return steps / of_an_event + (steps % of_an_event != 0 ? 1 : 0);
}

}  // namespace detail

/// Smallest noise multiplier (to 1e-5, beyond a million steps to 1e-4, on the safe side) with which `steps`
/// Poisson-sampled steps stay within (target, at), by the bounds of privacy_accountant, and a budget of that allows all
/// of them; 0 when nothing is ever released (no steps or no sampling) or target is infinite. Takes up to 3 s. Throws
/// std::invalid_argument when no noise multiplier up to 2^30 is enough, and for 2^62 steps or more.
template <class = void>
[[nodiscard]] noise_multiplier calibrate_noise(epsilon target, delta at, sampling_probability q, std::uint64_t steps) {
  if (q.value() == 0 || steps == 0 || target.value() == detail::infinity) return noise_multiplier{0};
  return detail::calibrated_noise(
      {target, at},
      [&](double noise) {
        return sampled_gaussian_event{q.value(), noise};
      },
      steps);
}
/// The same of any sampler, for its neighbours; a round that is begun counts as a whole one. Of random allocation it
/// takes up to some ten times as long.
template <detail::yields_events Sampling>
[[nodiscard]] noise_multiplier calibrate_noise(epsilon target, delta at, const Sampling& sampling,
                                               std::uint64_t steps) {
  if (steps == 0 || target.value() == detail::infinity) return noise_multiplier{0};
  return detail::calibrated_noise(
      {target, at}, [&](double noise) { return sampling.event(noise_multiplier{noise}); },
      detail::events_of(sampling, steps));
}

/// The same for what attackers can do: `target` is an attack_advantage or an attack_success. Throws
/// std::invalid_argument for a target that is none, or that no noise multiplier up to 2^30 keeps to, and for 2^62
/// steps.
template <detail::target_of_attacks Target>
[[nodiscard]] noise_multiplier calibrate_noise(const Target& target, sampling_probability q, std::uint64_t steps) {
  detail::require_target(target);
  if (q.value() == 0 || steps == 0) return noise_multiplier{0};
  return detail::calibrated_noise(
      target,
      [&](double noise) {
        return sampled_gaussian_event{q.value(), noise};
      },
      steps);
}
/// The same of any sampler.
template <detail::target_of_attacks Target, detail::yields_events Sampling>
[[nodiscard]] noise_multiplier calibrate_noise(const Target& target, const Sampling& sampling, std::uint64_t steps) {
  detail::require_target(target);
  if (steps == 0) return noise_multiplier{0};
  return detail::calibrated_noise(
      target, [&](double noise) { return sampling.event(noise_multiplier{noise}); },
      detail::events_of(sampling, steps));
}

/// Largest sampling probability (to 1e-6, beyond a million steps to 1e-4, on the safe side) with which `steps` steps
/// are proven to keep to `target`: a privacy_budget, an attack_advantage or an attack_success. 1 if all records may
/// always take part. Throws std::invalid_argument for a target that is none, or that no probability above 1e-12 keeps
/// to, and for 2^62 steps or more.
template <class Target>
[[nodiscard]] sampling_probability calibrate_sampling(const Target& target, noise_multiplier noise,
                                                      std::uint64_t steps) {
  detail::require_target(target);
  if (steps == 0) return sampling_probability{1};
  detail::require_steps(steps);
  constexpr double most = 1e12;
  const auto event = [&](double one_in) { return sampled_gaussian_event{1 / one_in, noise.value()}; };
  double start = 32;
  if constexpr (std::same_as<Target, privacy_budget>) {
    const auto by_renyi = [&](double one_in) { return detail::renyi_excess_of(target, event(one_in), steps); };
    const double by_one = detail::smallest_safe(by_renyi, start, 1, most, 1e-3);
    if (by_one < most) start = by_one;
  }
  const double inverse =
      detail::smallest_safe([&](double one_in) { return detail::excess_of(target, event(one_in), steps); }, start, 1,
                            most, detail::tolerance_for(steps));
  if (!(inverse <= most)) {
    throw std::invalid_argument("pergrad: calibrate_sampling: no probability above 1e-12 keeps to the target");
  }
  return sampling_probability{1 / inverse};
}

namespace detail {
/// Throws std::invalid_argument where they are more than 2^62.
[[nodiscard]] inline std::uint64_t steps_of_events(std::uint64_t events, std::uint64_t steps_of_one) {
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  if (events >= most / steps_of_one) {
    throw std::invalid_argument("pergrad: max_steps: no number of steps exhausts this target");
  }
  return events * steps_of_one;
}
}  // namespace detail

/// Largest number of steps that is proven to stay within (target, at); 0 when one step is too much. To one in 8192
/// beyond a million. Throws std::invalid_argument when no number of steps exhausts the target (no sampling, infinite
/// target).
template <class = void>
[[nodiscard]] std::uint64_t max_steps(epsilon target, delta at, sampling_probability q, noise_multiplier noise) {
  const std::uint64_t steps =
      detail::steps_within(rdp_accountant{}, {q.value(), noise.value()}, privacy_budget{target, at});
  return detail::steps_of_events(steps, 1);
}

/// The same of any sampler, for its neighbours: the steps of whole rounds.
template <detail::yields_events Sampling>
[[nodiscard]] std::uint64_t max_steps(epsilon target, delta at, const Sampling& sampling, noise_multiplier noise) {
  const basic_rdp_accountant<typename Sampling::event_type> empty;
  const std::uint64_t events = detail::steps_within(empty, sampling.event(noise), privacy_budget{target, at});
  return detail::steps_of_events(events, detail::steps_of_an_event(sampling));
}

/// The same for what attackers can do.
template <detail::target_of_attacks Target>
[[nodiscard]] std::uint64_t max_steps(const Target& target, sampling_probability q, noise_multiplier noise) {
  return detail::events_within(target, sampled_gaussian_event{q.value(), noise.value()});
}
/// The same of any sampler: the steps of whole rounds.
template <detail::target_of_attacks Target, detail::yields_events Sampling>
[[nodiscard]] std::uint64_t max_steps(const Target& target, const Sampling& sampling, noise_multiplier noise) {
  return detail::steps_of_events(detail::events_within(target, sampling.event(noise)),
                                 detail::steps_of_an_event(sampling));
}

}  // namespace pergrad::inline v0_1
