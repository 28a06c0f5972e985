// SPDX-License-Identifier: Apache-2.0
// pergrad/train/statistics.hpp - counts and quantiles of records, released through the gate and entered in a ledger
//
//   const double half = pg::release_quantile(trainer, pg::noise_multiplier{20}, lengths, 0.5, edges);
//
// A release about all records is one step of the Gaussian mechanism without sampling: the event {1, noise}, or what
// that is for the ledger's neighbours (`of_counts` of its events). It is entered, or refused, before noise is drawn.
// Statistics of a step's own records are an option of the run and cost no event of their own (`step_statistic`).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/statistics.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// A trainer or a loop: what has a ledger and a generator of its own.
struct statistics_access {
  /// The ledger, for a statistic of so many values. Of a run whose units are owners, each has one: several would move
  /// a count by more than one. Throws std::invalid_argument for another number, std::logic_error with individual
  /// accounting: whether a record can still pay is private, so that a refusal would tell of it.
  template <class Run>
  [[nodiscard]] static auto& ledger(Run& run, std::size_t values) {
    if constexpr (requires { run.units(); }) {
      if (run.units() != nullptr && run.units()->are_owners() && values != run.units()->owners()) {
        throw_invalid_argument({"pergrad: a statistic of ", values, " values with ", run.units()->owners(),
                                " owners: each has to have one, computed from its records alone"});
      }
    }
    if constexpr (requires { run.charges_; }) {
      if (run.charges_) {
        throw_logic_error(
            {"pergrad: a statistic of a run with individual accounting: its budgets are for steps. Release it with a "
             "privacy_accountant of its own, whose epsilon is to be added"});
      }
    }
    return run.accountant_;
  }
  template <class Run>
  [[nodiscard]] static auto& generator(Run& run) noexcept {
    return run.generator_;
  }
};

}  // namespace detail

/// How many of all records have their value in which bin, with noise of deviation `noise` on each count. `values`: one
/// a record (of a run with owners: an owner), computed from this record alone and from what is public or released; each
/// record stands there once. Enters {1, noise}, or what that is among the ledger's events, in `ledger`. Throws
/// budget_exhausted if that would exceed its budget, std::invalid_argument for noise that is none or that the grid
/// cannot carry; nothing is entered or drawn then.
template <class Event, random_generator Generator>
[[nodiscard]] released_histogram release_histogram(basic_privacy_accountant<Event>& ledger, Generator& generator,
                                                   noise_multiplier noise, std::span<const double> values,
                                                   const bin_edges& edges) {
  const detail::float_environment proven;
  detail::private_counts counted{edges};
  detail::statistic_release::require_noise<Generator>(noise, edges.bins());
  counted.add(values);
  ledger.spend(Event::of_counts(noise));
  return detail::statistic_release::of(counted, noise, generator);
}
/// The same with the ledger and the key of a run, a `dp_sgd` or a `private_loop`, whose `epsilon` then counts it.
/// Throws std::logic_error for a run with individual accounting.
template <class Run>
[[nodiscard]] released_histogram release_histogram(Run& run, noise_multiplier noise, std::span<const double> values,
                                                   const bin_edges& edges) {
  return release_histogram(detail::statistics_access::ledger(run, values.size()),
                           detail::statistics_access::generator(run), noise, values, edges);
}

/// How many of all records have their value in [low, high), with noise of deviation `noise`; a NaN is in no range.
/// Throws std::invalid_argument unless low < high, and nothing is spent. All else as `release_histogram`.
template <class Event, random_generator Generator>
[[nodiscard]] double release_count(basic_privacy_accountant<Event>& ledger, Generator& generator,
                                   noise_multiplier noise, std::span<const double> values, double low, double high) {
  if (!(low < high)) {
    detail::throw_invalid_argument({"pergrad: release_count: [", low, ", ", high, ") is no range"});
  }
  std::vector<double> is_in(values.size());
  std::ranges::transform(values, is_in.begin(), [&](double value) { return value >= low && value < high ? 1.0 : 0.0; });
  return release_histogram(ledger, generator, noise, is_in, bin_edges{{0.5}}).counts()[1];
}
template <class Run>
[[nodiscard]] double release_count(Run& run, noise_multiplier noise, std::span<const double> values, double low,
                                   double high) {
  return release_count(detail::statistics_access::ledger(run, values.size()), detail::statistics_access::generator(run),
                       noise, values, low, high);
}

/// The value below which the share `share` of all records lies, to the width of a bin: `released_histogram::quantile`.
/// All else as `release_histogram`, which gives any number of quantiles for the price of one.
template <class Event, random_generator Generator>
[[nodiscard]] double release_quantile(basic_privacy_accountant<Event>& ledger, Generator& generator,
                                      noise_multiplier noise, std::span<const double> values, double share,
                                      const bin_edges& edges) {
  released_histogram::require_share(share);
  return release_histogram(ledger, generator, noise, values, edges).quantile(share);
}
template <class Run>
[[nodiscard]] double release_quantile(Run& run, noise_multiplier noise, std::span<const double> values, double share,
                                      const bin_edges& edges) {
  return release_quantile(detail::statistics_access::ledger(run, values.size()),
                          detail::statistics_access::generator(run), noise, values, share, edges);
}

}  // namespace pergrad::inline v0_1
