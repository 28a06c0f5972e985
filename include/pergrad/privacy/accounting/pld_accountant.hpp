// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/pld_accountant.hpp - a ledger of sampled Gaussian steps, and epsilon and delta by their
// privacy loss distributions: a bracket, both of whose ends are proven.
//
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <pergrad/detail/float_environment.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/privacy/accounting/pld_engine.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {
inline void require_false_positive_rate(double rate) {
  if (!(rate >= 0 && rate <= 1)) throw_bad_number("a rate of false positives", "in [0, 1]", rate);
}
}  // namespace detail

/// Accountant by privacy loss distributions of one kind of sampler's events, for neighbours of their relation. Events
/// have to be chosen before the first step. Every number is a proven bound; questions throw accounting_refused where
/// there is none: noise multipliers below 1/32, more than 2^34 steps, more than 256 kinds of events.
template <class Event>
class basic_pld_accountant {
 public:
  using event_type = Event;
  using entry = ledger_entry<Event>;

  basic_pld_accountant() = default;
  // A ledger that was moved from would have forgotten what was spent, so that its budget were there again.
  basic_pld_accountant(const basic_pld_accountant&) = default;
  basic_pld_accountant& operator=(const basic_pld_accountant&) = default;
  ~basic_pld_accountant() = default;
  /// Exchanges two ledgers: none is forgotten.
  void swap(basic_pld_accountant& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(steps_, other.steps_);
  }
  /// With the steps of another ledger.
  explicit basic_pld_accountant(std::span<const entry> ledger) {
    for (const entry& each : ledger) record(each.event, each.count);
  }

  /// Enters `count` steps. Throws std::overflow_error when the number of steps does not fit 64 bits,
  /// std::invalid_argument on an event that is none.
  void record(const Event& event, std::uint64_t count = 1) {
    require_event(event);
    if (count > std::numeric_limits<std::uint64_t>::max() - steps_) {
      throw std::overflow_error("pergrad: pld_accountant: the number of steps exceeds 64 bits");
    }
    for (entry& each : ledger_) {
      if (each.event == event) {
        each.count += count;
        steps_ += count;
        return;
      }
    }
    ledger_.push_back({event, count});
    steps_ += count;
  }
  /// An event of another sampler: one error that says so.
  template <class Other>
  requires(!std::is_convertible_v<const Other&, Event>) void record(const Other& /*event*/,
                                                                    std::uint64_t /*count*/ = 1) {
    static_cast<void>(error::event_of_another_sampler<Event, Other>{});
  }

  /// Number of steps entered.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// What was entered, one entry for each kind of event.
  [[nodiscard]] std::span<const entry> ledger() const noexcept { return {ledger_.data(), ledger_.size()}; }

  /// Proven bounds of the epsilon at `at`: the true one is between them. Tens of milliseconds, and up to 64 MB
  /// meanwhile; some tenths of a second beyond a million steps. They are within 1e-3 of each other, relatively, or
  /// within 1e-4, as far as tests know: of up to 10^9 Poisson-sampled steps, adding or removing, q from 1e-6 and delta
  /// from 1e-15 on. Samplers whose proofs are not exact have wider ones (docs/internals/accounting.md). A template, so
  /// that programs which do not ask do not compile the answer.
  template <class = void>
  [[nodiscard]] pergrad::bracket bracket(pergrad::delta at) const {
    const detail::float_environment proven;
    return detail::pld_engine<>{ledger()}.epsilon(at.value());
  }

  /// Upper bound of the epsilon at `at`.
  template <class = void>
  [[nodiscard]] double epsilon(pergrad::delta at) const {
    return bracket(at).upper;
  }

  /// Proven bounds of the delta at `at`.
  template <class = void>
  [[nodiscard]] pergrad::bracket delta_bracket(pergrad::epsilon at) const {
    const detail::float_environment proven;
    return detail::pld_engine<>{ledger()}.delta(at.value());
  }

  /// Upper bound of the delta at `at`.
  template <class = void>
  [[nodiscard]] double delta(pergrad::epsilon at) const {
    return delta_bracket(at).upper;
  }

  /// What the ledger leaves to an attacker who tests whether a record is in the data or not, whichever is the
  /// hypothesis: an upper bound of his true positives if false ones are at most `false_positive_rate`, in [0, 1].
  /// Dong, Roth & Su 2022 (arXiv:1905.02383), proposition 2.12, from hockey sticks of both directions.
  template <class = void>
  [[nodiscard]] double true_positive_rate(double false_positive_rate) const {
    detail::require_false_positive_rate(false_positive_rate);
    const detail::float_environment proven;
    return detail::pld_engine<>{ledger()}.true_positive_rate(false_positive_rate);
  }
  /// The trade-off function: a lower bound of his false negatives.
  template <class = void>
  [[nodiscard]] double trade_off(double alpha) const {
    return std::max(0.0, 1 - true_positive_rate(alpha) - 0x1p-52);
  }
  /// Upper bound of his advantage, true minus false positives at best: the total variation, delta at epsilon 0.
  template <class = void>
  [[nodiscard]] double advantage() const {
    return delta(pergrad::epsilon{0});
  }

 private:
  std::vector<entry> ledger_;
  std::uint64_t steps_ = 0;
};

/// Of Poisson sampling, for neighbours by adding or removing one record.
using pld_accountant = basic_pld_accountant<sampled_gaussian_event>;

}  // namespace pergrad::inline v0_1