// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/budget.hpp - the guard that refuses the step which would exceed the privacy budget.
//
// A step is entered in the ledger before its noise is drawn, and only if the total including it keeps to the budget.
// The decision depends on public numbers alone (events and counts), never on data, so stopping leaks nothing.
//
// Two families prove bounds: privacy loss distributions and Renyi divergences. Both are upper bounds, so the smaller
// one is; where the first refuses (hardly any noise, more steps or kinds than it takes), the second one is left. The
// lower end of the first must not be above the second: if it is, one of them is wrong, and nothing is answered.
//
// How many steps are left is found once, by proofs for that very number. Fewer steps are part of them, and what is
// computed from a part of a release reveals no more than all of it; so no step in between asks an accountant.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/accounting/pld_accountant.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/accounting/search.hpp>
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
  beforehand,  ///< before the first step: privacy loss distributions, or the best order of all
  on_the_way   ///< also from what was released: one order counts that is fixed before the first step (a Renyi filter)
};

namespace detail {

/// What privacy loss distributions prove of the ledger's steps and `more`; {0, infinity} where they prove nothing. For
/// a search, `target` is where bounds have to be narrow (pld_engine.hpp).
template <class Event>
[[nodiscard, gnu::cold]] bracket epsilon_by_losses(const basic_rdp_accountant<Event>& ledger,
                                                   const std::type_identity_t<ledger_entry<Event>>& more,
                                                   pergrad::delta at, double target = infinity) {
  const float_environment proven;
  try {
    basic_pld_accountant<Event> all{ledger.ledger()};
    if (more.count != 0) all.record(more.event, more.count);
    return pld_engine<>{all.ledger()}.epsilon(at.value(), target);
  } catch (const accounting_refused&) {
    return {0, infinity};
  }
}

/// What both families prove of the ledger's steps and `more`. Throws std::logic_error if they contradict each other.
template <class Event>
[[nodiscard, gnu::cold]] bracket proven_epsilon(const basic_rdp_accountant<Event>& ledger,
                                                const std::type_identity_t<ledger_entry<Event>>& more,
                                                pergrad::delta at) {
  const float_environment proven;
  const double renyi = ledger.epsilon_after(more.event, more.count, at);
  const bracket found = epsilon_by_losses(ledger, more, at);
  if (!(found.lower <= renyi * (1 + 1e-9) + 1e-12)) {
    throw_logic_error({"pergrad: two accountants contradict each other: epsilon is at least ", found.lower,
                       " by privacy loss distributions, and at most ", renyi, " by Renyi divergences"});
  }
  return {found.lower, std::min(found.upper, renyi)};
}

/// ln(spent / target) for a search, and not positive exactly when the target is proven to be kept. Renyi divergences
/// are asked only where they can tell: for little noise they cost more than what decides.
template <class Event>
[[nodiscard, gnu::cold]] double excess_over(const privacy_budget& target, const basic_rdp_accountant<Event>& ledger,
                                            const std::type_identity_t<ledger_entry<Event>>& more = {}) {
  const double most = target.max_epsilon.value();
  const bracket found = epsilon_by_losses(ledger, more, target.delta, most);
  if (found.upper <= most) return log_excess(found.upper, most);
  if (found.lower > most) return log_excess(found.lower / 2 + found.upper / 2, most);
  return log_excess(std::min(found.upper, ledger.epsilon_after(more.event, more.count, target.delta)), most);
}

/// Least upper bound of a test's true positives that either family proves.
template <class Event>
[[nodiscard]] double proven_true_positive_rate(const basic_rdp_accountant<Event>& ledger, double false_positive_rate) {
  try {
    return basic_pld_accountant<Event>{ledger.ledger()}.true_positive_rate(false_positive_rate);
  } catch (const accounting_refused&) {
    const float_environment proven;
    double least = 1;
    for (double at = 0.5; at > 1e-30; at /= 4) {
      const double grown = std::exp(ledger.epsilon(pergrad::delta{at}));
      least = std::min(least, (grown * false_positive_rate + at) * (1 + 1e-14));
      least = std::min(least, 1 - (1 - false_positive_rate - at) / grown * (1 - 1e-14));
    }
    return std::max(least, false_positive_rate);
  }
}
/// The same of its advantage.
template <class Event>
[[nodiscard]] double proven_advantage(const basic_rdp_accountant<Event>& ledger) {
  try {
    return basic_pld_accountant<Event>{ledger.ledger()}.advantage();
  } catch (const accounting_refused&) {
    return ledger.delta_for(pergrad::epsilon{0});
  }
}

/// Most steps of `event` that are proven to keep to the budget, behind those of the ledger; 2^62 stands for any number.
/// The next number of steps that is tried (search.hpp) was found to be too much. The same question has the same answer.
template <class Event>
[[nodiscard, gnu::cold]] std::uint64_t steps_within(const basic_rdp_accountant<Event>& ledger,
                                                    const std::type_identity_t<Event>& event,
                                                    const privacy_budget& budget) {
  const float_environment proven;
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  basic_rdp_accountant<Event> prepared = ledger;
  prepared.prepare(event);
  std::uint64_t safe = 0;
  std::uint64_t unsafe = 1;
  while (!prepared.would_exceed(budget, event, unsafe)) {
    safe = unsafe;
    if (safe == most) return most;
    unsafe *= 2;
  }
  while (tried_steps(safe + 1) < unsafe) {
    std::uint64_t middle = tried_steps(safe + (unsafe - safe) / 2);
    if (middle == unsafe) middle = tried_steps(safe + 1);
    (prepared.would_exceed(budget, event, middle) ? unsafe : safe) = middle;
  }
  // The other family allows some more.
  safe = largest_safe([&](std::uint64_t steps) { return excess_over(budget, prepared, {event, steps}); }, safe);
  return safe >= most / 2 ? most : safe;
}

}  // namespace detail

/// An accountant with an optional budget: the ledger of a run, and what both families prove of it, for neighbours by
/// the relation of its events. Functions that ask are templates, so that programs which do not train privately do not
/// compile the answer.
template <class Event>
class basic_privacy_accountant {
 public:
  using event_type = Event;
  using entry = ledger_entry<Event>;
  using accountant_type = basic_rdp_accountant<Event>;

  basic_privacy_accountant() = default;
  explicit basic_privacy_accountant(std::optional<privacy_budget> budget, run_plan plan = run_plan::beforehand)
      : budget_{budget}, plan_{plan} {
    if (plan == run_plan::on_the_way && !budget) {
      throw std::invalid_argument(
          "pergrad: a run that is planned on the way needs a budget: its order is fixed for it");
    }
  }

  // A ledger that was moved from would have forgotten what was spent, so that its budget were there again.
  basic_privacy_accountant(const basic_privacy_accountant&) = default;
  basic_privacy_accountant& operator=(const basic_privacy_accountant&) = default;
  ~basic_privacy_accountant() = default;
  /// Exchanges two ledgers: none is forgotten.
  void swap(basic_privacy_accountant& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(plan_, other.plan_);
    std::swap(order_, other.order_);
    std::swap(is_declared_, other.is_declared_);
    std::swap(kept_, other.kept_);
    std::swap(left_, other.left_);
    accountant_.swap(other.accountant_);
  }

  /// Finds how many steps of this event the budget allows (a second at most, usually some tenths; of random allocation
  /// some ten times as long), so that later calls with it are cheap and free of allocation. The first event fixes the
  /// order of a filter.
  template <class = void>
  [[gnu::cold]] void prepare(const Event& event) {
    accountant_.prepare(event);
    if (plan_ == run_plan::on_the_way && order_ == 0) order_ = accountant_type::order_for(*budget_, event);
    if (!budget_ || is_filter() || find(event) != nullptr) return;
    is_declared_ = false;
    left_.assign(1, {event, detail::steps_within(accountant_, event, *budget_)});
  }

  /// Proves once that a schedule keeps to the budget: steps of several kinds, all chosen before the first one. They may
  /// then be spent in any order, and are cheap. Throws budget_exhausted if it does not. An accountant without a budget,
  /// and a filter, need no schedule: std::logic_error.
  template <class = void>
  [[gnu::cold]] void declare(std::span<const entry> schedule) {
    if (!budget_ || is_filter()) {
      throw std::logic_error(
          "pergrad: privacy_accountant: a schedule is declared for a budget, of a run planned beforehand");
    }
    accountant_type all = accountant_;
    for (const entry& each : schedule) {
      all.record(each.event, each.count);
      accountant_.prepare(each.event);
    }
    if (!(detail::proven_epsilon(all, {}, budget_->delta).upper <= budget_->max_epsilon.value())) refuse();
    left_.clear();
    is_declared_ = true;
    for (const entry& each : schedule) {
      if (entry* const known = find(each.event); known != nullptr) {
        known->count += each.count;
      } else {
        left_.push_back(each);
      }
    }
  }

  /// Whether one more step of this kind keeps to the budget; always true without one.
  template <class = void>
  [[nodiscard, gnu::cold]] bool within(const Event& event) const {
    if (!budget_) return true;
    if (is_filter()) {
      const double order = order_ != 0 ? order_ : accountant_type::order_for(*budget_, event);
      return accountant_.epsilon_at_order(order, event, 1, budget_->delta) <= budget_->max_epsilon.value();
    }
    if (const entry* const known = const_cast<basic_privacy_accountant*>(this)->find(event)) return known->count > 0;
    return !accountant_.would_exceed(*budget_, event) ||
           detail::proven_epsilon(accountant_, {event, 1}, budget_->delta).upper <= budget_->max_epsilon.value();
  }

  /// Enters one step. Throws budget_exhausted, entering nothing, when it would exceed the budget. An event that was
  /// neither prepared nor declared may cost as much as `prepare`; of a declared schedule as many steps are left behind
  /// it, in the order in which they were declared, as keep to the budget together with it.
  template <class = void>
  void spend(const Event& event) {
    if (!budget_ || is_filter()) {
      if (!within(event)) refuse();  // before an event that is not entered fixes the order
      if (is_filter()) prepare(event);
      accountant_.record(event);
      return;
    }
    if (find(event) == nullptr && is_declared_) {
      make_room_for(event);
      accountant_.record(event);
    } else if (find(event) == nullptr && accountant_.record_within(*budget_, event)) {
      left_.clear();  // what was proven did not count this step
    } else {
      prepare(event);
      entry* const known = find(event);
      if (known == nullptr || known->count == 0) refuse();
      accountant_.record(event);
      --known->count;
    }
    kept_ = true;
  }
  /// An event of another sampler: one error that says so.
  template <class Other>
  requires(!std::is_convertible_v<const Other&, Event>) void spend(const Other& /*event*/) {
    static_cast<void>(error::event_of_another_sampler<Event, Other>{});
  }

  /// Enters steps that were taken already, in an earlier part of the run: also beyond the budget.
  void record(const Event& event, std::uint64_t count) {
    accountant_.record(event, count);
    left_.clear();
    is_declared_ = false;
    kept_ = false;
  }

  template <class Other>
  requires(!std::is_convertible_v<const Other&, Event>) void record(const Other& /*event*/, std::uint64_t /*count*/) {
    static_cast<void>(error::event_of_another_sampler<Event, Other>{});
  }

  [[nodiscard]] run_plan plan() const noexcept { return plan_; }
  /// The order of a filter; 0: none is fixed.
  [[nodiscard]] double order() const noexcept { return order_; }
  /// Goes on with a filter that an earlier part of the run has fixed. Precondition: order > 1.
  void fix_order(double order) noexcept { order_ = order; }
  [[nodiscard]] const std::optional<privacy_budget>& budget() const noexcept { return budget_; }
  /// The ledger, with what Renyi divergences alone say of it.
  [[nodiscard]] const accountant_type& accountant() const noexcept { return accountant_; }

  /// Proven bounds of what was spent so far; of a filter [0, what its order says]. Of a run that is planned on the way,
  /// and of one whose end was chosen from what was released, only the budget is a guarantee. Throws std::logic_error if
  /// the two families contradict each other.
  template <class = void>
  [[nodiscard]] pergrad::bracket bracket(pergrad::delta at) const {
    if (order_ != 0) return {0, accountant_.epsilon_at_order(order_, Event{}, 0, at)};
    pergrad::bracket found = detail::proven_epsilon(accountant_, {}, at);
    // Part of what was proven to keep to the budget, whatever a bracket's width adds.
    if (kept_ && budget_->delta.value() <= at.value()) {
      found.upper = std::min(found.upper, budget_->max_epsilon.value());
    }
    return found;
  }
  /// The upper one of them.
  template <class = void>
  [[nodiscard]] double epsilon(pergrad::delta at) const {
    return bracket(at).upper;
  }
  /// Upper bound of the true positives of an attacker who tests whether a record is in the data, or is not, if false
  /// positives are at most `false_positive_rate`, in [0, 1]. Of a filter: what its budget leaves, or what an earlier
  /// part of the run had spent if that is more.
  template <class = void>
  [[nodiscard]] double true_positive_rate(double false_positive_rate) const {
    if (!is_filter()) return detail::proven_true_positive_rate(accountant_, false_positive_rate);
    detail::require_false_positive_rate(false_positive_rate);
    const double grown = std::exp(epsilon_of_filter());
    const double room = 1 - false_positive_rate - budget_->delta.value();
    return std::min({1.0, grown * false_positive_rate + budget_->delta.value(), room > 0 ? 1 - room / grown : 1.0});
  }
  /// Lower bound of his false negatives: the trade-off function.
  template <class = void>
  [[nodiscard]] double trade_off(double alpha) const {
    return std::max(0.0, 1 - true_positive_rate(alpha) - 0x1p-52);
  }
  /// Upper bound of his advantage, true minus false positives at best.
  template <class = void>
  [[nodiscard]] double advantage() const {
    if (!is_filter()) return detail::proven_advantage(accountant_);
    const double grown = std::exp(epsilon_of_filter());
    return grown < detail::infinity ? std::min(1.0, (grown - 1 + 2 * budget_->delta.value()) / (grown + 1)) : 1.0;
  }
  [[nodiscard]] std::uint64_t steps() const noexcept { return accountant_.steps(); }

 private:
  [[nodiscard]] bool is_filter() const noexcept { return order_ != 0 || plan_ == run_plan::on_the_way; }
  [[nodiscard]] entry* find(const Event& event) noexcept {
    const auto place = std::find_if(left_.begin(), left_.end(), [&](const entry& each) { return each.event == event; });
    return place == left_.end() ? nullptr : &*place;
  }
  /// At the budget's delta: what holds whenever the run ends.
  template <class = void>
  [[nodiscard, gnu::cold]] double epsilon_of_filter() const {
    return std::max(budget_->max_epsilon.value(), bracket(budget_->delta).upper);
  }
  /// Leaves those steps of the declared ones that keep to the budget behind one more step, which nobody declared.
  template <class = void>
  [[gnu::cold]] void make_room_for(const Event& event) {
    accountant_type all = accountant_;
    all.record(event);
    std::uint64_t declared = 0;
    for (const entry& each : left_) declared += each.count;
    const auto excess_of_first = [&](std::uint64_t steps) {
      if (steps > declared) return detail::infinity;
      accountant_type some = all;
      for (const entry& each : left_) {
        const std::uint64_t taken = std::min(each.count, steps);
        some.record(each.event, taken);
        steps -= taken;
      }
      return detail::excess_over(*budget_, some);
    };
    std::uint64_t stay = declared;
    if (excess_of_first(declared) > 0) {
      if (declared == 0 || excess_of_first(0) > 0) refuse();
      stay = detail::largest_safe(excess_of_first, 0);
    }
    for (entry& each : left_) {
      each.count = std::min(each.count, stay);
      stay -= each.count;
    }
  }
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
  bool is_declared_ = false;  ///< are `left_` those of a schedule?
  bool kept_ = false;         ///< all steps are part of what was proven to keep to the budget
  std::vector<entry> left_;   ///< proven, together with the ledger, to keep to the budget
  accountant_type accountant_;
};

/// Of Poisson sampling, for neighbours by adding or removing one record.
using privacy_accountant = basic_privacy_accountant<sampled_gaussian_event>;

}  // namespace pergrad::inline v0_1
