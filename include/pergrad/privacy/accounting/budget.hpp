// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/budget.hpp - the guard that refuses the step which would exceed the privacy budget.
//
// A step is entered in the ledger before its noise is drawn, and only if the total including it keeps to the budget.
// The decision depends on public numbers alone (events and counts), never on data, so stopping leaks nothing.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Thrown instead of taking a step that would exceed the budget.
class budget_exhausted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// When the parameters of a run are chosen: noise, sampling, and when it stops.
enum class run_plan {
  beforehand,  ///< before the first step: the best order of all counts
  on_the_way   ///< also from what was released: one order counts that is fixed before the first step (a Renyi filter)
};

/// An accountant with an optional budget.
class privacy_accountant {
 public:
  privacy_accountant() = default;
  explicit privacy_accountant(std::optional<privacy_budget> budget, run_plan plan = run_plan::beforehand)
      : budget_{budget}, plan_{plan} {
    if (plan == run_plan::on_the_way && !budget) {
      throw std::invalid_argument(
          "pergrad: a run that is planned on the way needs a budget: its order is fixed for it");
    }
  }

  /// Makes later calls with this event cheap and free of allocation. The first event fixes the order of a filter.
  void prepare(const sampled_gaussian_event& event) {
    accountant_.prepare(event);
    if (plan_ == run_plan::on_the_way && order_ == 0) order_ = rdp_accountant::order_for(*budget_, event);
  }

  /// Whether one more step of this kind keeps to the budget; always true without one.
  [[nodiscard]] bool within(const sampled_gaussian_event& event) const {
    if (!budget_) return true;
    if (!is_filter()) return !accountant_.would_exceed(*budget_, event);
    const double order = order_ != 0 ? order_ : rdp_accountant::order_for(*budget_, event);
    return accountant_.epsilon_at_order(order, event, 1, budget_->delta) <= budget_->max_epsilon.value();
  }

  /// Enters one step. Throws budget_exhausted, entering nothing, when it would exceed the budget.
  void spend(const sampled_gaussian_event& event) {
    if (!budget_ || is_filter()) {
      if (is_filter()) prepare(event);
      if (!within(event)) refuse();
      accountant_.record(event);
    } else if (!accountant_.record_within(*budget_, event)) {
      refuse();
    }
  }

  /// Enters steps that were taken already, in an earlier part of the run: also beyond the budget.
  void record(const sampled_gaussian_event& event, std::uint64_t count) { accountant_.record(event, count); }

  [[nodiscard]] run_plan plan() const noexcept { return plan_; }
  /// The order of a filter; 0: none is fixed.
  [[nodiscard]] double order() const noexcept { return order_; }
  /// Goes on with a filter that an earlier part of the run has fixed. Precondition: order > 1.
  void fix_order(double order) noexcept { order_ = order; }
  [[nodiscard]] const std::optional<privacy_budget>& budget() const noexcept { return budget_; }
  [[nodiscard]] const rdp_accountant& accountant() const noexcept { return accountant_; }
  /// What was spent so far. Of a run that is planned on the way, and of one whose end was chosen from what was
  /// released, only the budget is a guarantee.
  [[nodiscard]] double epsilon(pergrad::delta at) const {
    return order_ == 0 ? accountant_.epsilon(at) : accountant_.epsilon_at_order(order_, {0, 1}, 0, at);
  }
  [[nodiscard]] std::uint64_t steps() const noexcept { return accountant_.steps(); }

 private:
  [[nodiscard]] bool is_filter() const noexcept { return order_ != 0 || plan_ == run_plan::on_the_way; }
  [[noreturn]] void refuse() const {
    char text[160];
    std::snprintf(
        text, sizeof text, "pergrad: privacy budget exhausted: step %llu would exceed epsilon %.6g at delta %.6g",
        static_cast<unsigned long long>(accountant_.steps() + 1), budget_->max_epsilon.value(), budget_->delta.value());
    throw budget_exhausted{text};
  }

  std::optional<privacy_budget> budget_;
  run_plan plan_ = run_plan::beforehand;
  double order_ = 0;
  rdp_accountant accountant_;
};

}  // namespace pergrad::inline v0_1
