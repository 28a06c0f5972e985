// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/pld_accountant.hpp - a ledger of sampled Gaussian steps, and epsilon and delta by their
// privacy loss distributions: a bracket, both of whose ends are proven.
//
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/accounting/pld_engine.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Accountant by privacy loss distributions, for neighbours by adding or removing one record. Events have to be chosen
/// before the first step. Every number is a proven bound; questions throw accounting_refused where there is none: noise
/// multipliers below about 1/24, more than 2^40 steps, more than 256 kinds of events.
class pld_accountant {
 public:
  using entry = rdp_accountant::entry;

  /// Enters `count` steps. Throws std::overflow_error when the number of steps does not fit 64 bits,
  /// std::invalid_argument on an event that is none.
  void record(const sampled_gaussian_event& event, std::uint64_t count = 1) {
    detail::require_event(event);
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

  /// Number of steps entered.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// What was entered, one entry for each kind of event.
  [[nodiscard]] std::span<const entry> ledger() const noexcept { return {ledger_.data(), ledger_.size()}; }

  /// Proven bounds of the epsilon at `at`: the true one is between them. Tens of milliseconds, and up to 64 MB
  /// meanwhile. They are within 1e-3 of each other, relatively, or within 1e-4; further apart only where a grid that is
  /// fine enough would not fit that memory. A template, so that programs which do not ask do not compile the answer.
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

 private:
  std::vector<entry> ledger_;
  std::uint64_t steps_ = 0;
};

}  // namespace pergrad::inline v0_1