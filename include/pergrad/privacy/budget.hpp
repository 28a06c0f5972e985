// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/budget.hpp - the guard that refuses the step which would exceed the privacy budget.
//
// A step is entered in the ledger before its noise is drawn, and only if the total including it keeps to the budget.
// The decision depends on public numbers alone (events and counts), never on data, so stopping leaks nothing.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include <pergrad/privacy/rdp_accountant.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Thrown instead of taking a step that would exceed the budget.
class budget_exhausted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An accountant with an optional budget.
class privacy_accountant {
 public:
  privacy_accountant() = default;
  explicit privacy_accountant(std::optional<privacy_budget> budget) : budget_{budget} {}

  /// Makes later calls with this event cheap and free of allocation.
  void prepare(const sampled_gaussian_event& event) { accountant_.prepare(event); }

  /// Whether one more step of this kind keeps to the budget; always true without one.
  [[nodiscard]] bool within(const sampled_gaussian_event& event) const {
    return !budget_ || !accountant_.would_exceed(*budget_, event);
  }

  /// Enters one step. Throws budget_exhausted, entering nothing, when it would exceed the budget.
  void spend(const sampled_gaussian_event& event) {
    if (!budget_) {
      accountant_.record(event);
    } else if (!accountant_.record_within(*budget_, event)) {
      refuse();
    }
  }

  /// Enters steps that were taken already, in an earlier part of the run: also beyond the budget.
  void record(const sampled_gaussian_event& event, std::uint64_t count) { accountant_.record(event, count); }

  [[nodiscard]] const std::optional<privacy_budget>& budget() const noexcept { return budget_; }
  [[nodiscard]] const rdp_accountant& accountant() const noexcept { return accountant_; }
  [[nodiscard]] double epsilon(pergrad::delta at) const { return accountant_.epsilon(at); }
  [[nodiscard]] std::uint64_t steps() const noexcept { return accountant_.steps(); }

 private:
  [[noreturn]] void refuse() const {
    char text[160];
    std::snprintf(
        text, sizeof text, "pergrad: privacy budget exhausted: step %llu would exceed epsilon %.6g at delta %.6g",
        static_cast<unsigned long long>(accountant_.steps() + 1), budget_->max_epsilon.value(), budget_->delta.value());
    throw budget_exhausted{text};
  }

  std::optional<privacy_budget> budget_;
  rdp_accountant accountant_;
};

}  // namespace pergrad::inline v0_1
