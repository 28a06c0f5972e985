// SPDX-License-Identifier: Apache-2.0
// tests/privacy/budget_test.cpp - the guard allows every step that was calibrated for and refuses the next.
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/accounting/calibrate.hpp>
#include <pergrad/privacy/accounting/event_costs.hpp>

BOOST_AUTO_TEST_SUITE(privacy_budget)

namespace {

using pergrad::delta;
using pergrad::epsilon;

}  // namespace

static_assert(std::is_base_of_v<std::runtime_error, pergrad::budget_exhausted>);

BOOST_AUTO_TEST_CASE(a_calibrated_run_gets_all_its_steps_and_not_one_more) {
  for (const std::uint64_t steps : {std::uint64_t{1}, std::uint64_t{37}, std::uint64_t{400}}) {
    const pergrad::sampling_probability q{.03};
    const auto noise = pergrad::calibrate_noise(epsilon{2}, delta{1e-5}, q, steps);
    const auto event = pergrad::poisson_sampling{q}.event(noise);
    pergrad::privacy_accountant accountant{pergrad::privacy_budget{epsilon{2}, delta{1e-5}}};
    accountant.prepare(event);
    for (std::uint64_t step = 0; step < steps; ++step) {
      BOOST_REQUIRE(accountant.within(event));
      accountant.spend(event);
    }
    BOOST_TEST(!accountant.within(event));
    const double before = accountant.epsilon(delta{1e-5});
    BOOST_TEST(before <= 2);
    BOOST_CHECK_EXCEPTION(accountant.spend(event), pergrad::budget_exhausted, [&](const std::exception& error) {
      const std::string text = error.what();
      return text.starts_with("pergrad: privacy budget exhausted: step " + std::to_string(steps + 1) + " ");
    });
    BOOST_TEST(accountant.steps() == steps);
    BOOST_TEST(accountant.epsilon(delta{1e-5}) == before);
  }
}

// A budget that was found by another accountant, to the last bit: 99 steps and one are 100 there as well.
BOOST_AUTO_TEST_CASE(what_an_accountant_reports_is_a_budget_for_that_many_steps) {
  for (std::uint64_t steps = 90; steps < 110; steps += 5) {
    const pergrad::sampled_gaussian_event event{.05, 1.0 + 0.01 * static_cast<double>(steps)}, other{.02, 1.3};
    pergrad::pld_accountant reporting;
    reporting.record(event, steps);
    pergrad::privacy_accountant one_kind{pergrad::privacy_budget{epsilon{reporting.epsilon(delta{1e-5})}, delta{1e-5}}};
    for (std::uint64_t step = 0; step < steps; ++step) BOOST_REQUIRE_NO_THROW(one_kind.spend(event));
    BOOST_TEST(!one_kind.within(event));

    reporting.record(other, 50);
    pergrad::privacy_accountant two_kinds{
        pergrad::privacy_budget{epsilon{reporting.epsilon(delta{1e-5})}, delta{1e-5}}};
    two_kinds.record(event, steps);
    for (std::uint64_t step = 0; step < 50; ++step) BOOST_REQUIRE_NO_THROW(two_kinds.spend(other));
    BOOST_TEST(!two_kinds.within(other));
  }
}

// What the guard lets pass is what the tighter of two families proves, also behind steps of another kind.
BOOST_AUTO_TEST_CASE(the_guard_is_as_tight_as_privacy_loss_distributions) {
  const pergrad::sampled_gaussian_event event{.02, 1.1}, other{.05, 3}, third{1, 60};
  const pergrad::privacy_budget budget{epsilon{1.5}, delta{1e-6}};
  pergrad::privacy_accountant guard{budget};
  pergrad::rdp_accountant renyi;
  pergrad::pld_accountant tight;
  for (int step = 0; step < 10; ++step) {  // not prepared: found on the way
    for (const auto& each : {other, third}) {
      guard.spend(each);
      renyi.record(each);
      tight.record(each);
    }
  }
  guard.prepare(event);
  while (guard.within(event)) {
    guard.spend(event);
    renyi.record(event);
    tight.record(event);
  }
  BOOST_TEST(renyi.epsilon(budget.delta) > 1.5);  // would have stopped earlier
  BOOST_TEST(tight.epsilon(budget.delta) <= 1.5);
  BOOST_TEST(guard.epsilon(budget.delta) == tight.epsilon(budget.delta));
  tight.record(event);
  BOOST_TEST(tight.epsilon(budget.delta) > 1.5);
  const std::uint64_t steps = guard.steps();
  BOOST_CHECK_THROW(guard.spend(event), pergrad::budget_exhausted);
  BOOST_CHECK_THROW(guard.spend({.3, 1}), pergrad::budget_exhausted);
  BOOST_TEST(guard.steps() == steps);
  // Bounds of one ledger: the lower end never contradicts the other family.
  const pergrad::bracket found = guard.bracket(budget.delta);
  BOOST_TEST(found.lower <= found.upper);
  BOOST_TEST(found.lower > 1.49);
  BOOST_TEST(found.lower < renyi.epsilon(budget.delta));
}

BOOST_AUTO_TEST_CASE(what_privacy_loss_distributions_refuse_the_other_family_answers) {
  const pergrad::sampled_gaussian_event loud{.01, .02};
  pergrad::pld_accountant refused;
  refused.record(loud);
  BOOST_CHECK_THROW(static_cast<void>(refused.epsilon(delta{1e-5})), pergrad::accounting_refused);
  pergrad::rdp_accountant renyi;
  renyi.record(loud, 3);
  pergrad::privacy_accountant guard{
      pergrad::privacy_budget{epsilon{renyi.epsilon(delta{1e-5}) * (1 + 1e-12)}, delta{1e-5}}};
  guard.prepare(loud);
  for (int step = 0; step < 3; ++step) guard.spend(loud);
  BOOST_TEST(!guard.within(loud));
  BOOST_TEST(guard.epsilon(delta{1e-5}) == renyi.epsilon(delta{1e-5}));
  BOOST_TEST(guard.bracket(delta{1e-5}).lower == 0);
}

// What was spent is not forgotten by whoever is moved from: his budget would be there again.
BOOST_AUTO_TEST_CASE(a_ledger_that_was_moved_from_knows_what_was_spent) {
  const pergrad::sampled_gaussian_event event{.01, 1};
  const pergrad::privacy_budget budget{epsilon{1}, delta{1e-5}};
  for (const pergrad::run_plan plan : {pergrad::run_plan::beforehand, pergrad::run_plan::on_the_way}) {
    pergrad::privacy_accountant guard{budget, plan};
    guard.prepare(event);
    while (guard.within(event)) guard.spend(event);
    const std::uint64_t steps = guard.steps();
    const double spent = guard.epsilon(delta{1e-5});
    pergrad::privacy_accountant other = std::move(guard);
    for (const pergrad::privacy_accountant* each : {&guard, &other}) {  // NOLINT(bugprone-use-after-move)
      BOOST_TEST(each->steps() == steps);
      BOOST_TEST(each->epsilon(delta{1e-5}) == spent);
      BOOST_TEST(!each->within(event));
    }
    BOOST_CHECK_THROW(guard.spend(event), pergrad::budget_exhausted);
  }
  pergrad::pld_accountant losses;
  losses.record(event, 1000);
  const pergrad::pld_accountant taken = std::move(losses);
  BOOST_TEST(losses.epsilon(delta{1e-5}) == taken.epsilon(delta{1e-5}));  // NOLINT(bugprone-use-after-move)
}

// A schedule that was declared beforehand: its steps in any order, and nothing else.
BOOST_AUTO_TEST_CASE(a_declared_schedule_is_proven_once_and_spent_in_any_order) {
  using entry = pergrad::privacy_accountant::entry;
  std::vector<entry> schedule;
  pergrad::pld_accountant all;
  for (int i = 0; i < 12; ++i) {
    schedule.push_back({{.01 + .002 * i, 1.5 - .05 * i}, 10});
    all.record(schedule.back().event, 10);
  }
  schedule.push_back({schedule.front().event, 5});  // once more
  all.record(schedule.front().event, 5);
  const double cost = all.epsilon(delta{1e-5});
  pergrad::privacy_accountant guard{pergrad::privacy_budget{epsilon{cost}, delta{1e-5}}};
  guard.declare(schedule);
  for (auto each = schedule.rbegin(); each != schedule.rend(); ++each) {
    for (std::uint64_t step = 0; step < each->count; ++step) {
      BOOST_REQUIRE(guard.within(each->event));
      guard.spend(each->event);
    }
  }
  BOOST_TEST(guard.steps() == 125U);
  BOOST_TEST(guard.epsilon(delta{1e-5}) <= cost);
  for (const entry& each : schedule) BOOST_CHECK_THROW(guard.spend(each.event), pergrad::budget_exhausted);

  schedule.back().count = 30;
  pergrad::privacy_accountant less{pergrad::privacy_budget{epsilon{cost}, delta{1e-5}}};
  BOOST_CHECK_THROW(less.declare(schedule), pergrad::budget_exhausted);
  BOOST_TEST(less.steps() == 0U);
  pergrad::privacy_accountant none,
      filter{pergrad::privacy_budget{epsilon{cost}, delta{1e-5}}, pergrad::run_plan::on_the_way};
  BOOST_CHECK_THROW(none.declare(schedule), std::logic_error);
  BOOST_CHECK_THROW(filter.declare(schedule), std::logic_error);
}

// A release that nobody declared takes its room from the last steps of the schedule, all of them known at once.
BOOST_AUTO_TEST_CASE(what_was_not_declared_shortens_a_schedule) {
  using entry = pergrad::privacy_accountant::entry;
  std::vector<entry> schedule;
  pergrad::pld_accountant all;
  for (int i = 0; i < 4; ++i) {
    schedule.push_back({{.1, 1.2 - .1 * i}, 3});
    all.record(schedule.back().event, 3);
  }
  const pergrad::sampled_gaussian_event count{1, 8};
  const double alone = all.epsilon(delta{1e-5});
  all.record(count);
  const double both = all.epsilon(delta{1e-5});
  for (const double most : {both * (1 + 1e-9), alone * (1 + 1e-9)}) {
    const pergrad::privacy_budget budget{epsilon{most}, delta{1e-5}};
    pergrad::privacy_accountant guard{budget};
    guard.declare(schedule);
    for (int step = 0; step < 5; ++step) guard.spend(schedule[static_cast<std::size_t>(step) / 3].event);
    guard.spend(count);
    std::uint64_t more = 0;
    for (std::size_t step = 5; step < 12 && guard.within(schedule[step / 3].event); ++step, ++more) {
      guard.spend(schedule[step / 3].event);
    }
    BOOST_TEST(guard.epsilon(delta{1e-5}) <= most);
    BOOST_TEST(more == (most > alone * 1.01 ? 7U : 6U));
    pergrad::pld_accountant spent{guard.accountant().ledger()};
    BOOST_TEST(spent.epsilon(delta{1e-5}) <= most);  // by what was entered, and not by a cap
    if (more == 6) {
      spent.record(schedule.back().event);
      BOOST_TEST(spent.epsilon(delta{1e-5}) > most);
    }
    const std::uint64_t steps = guard.steps();
    BOOST_CHECK_THROW(guard.spend({1, .5}), pergrad::budget_exhausted);  // has no room at all
    BOOST_TEST(guard.steps() == steps);
  }
}

namespace {

/// A mechanism of which one family says too little.
struct boastful_event {
  double sampling_probability;
  double noise_multiplier;
  static constexpr pergrad::neighbouring relation = pergrad::neighbouring::add_or_remove_one;
  static constexpr const char* name = "boastful";
  [[nodiscard]] pergrad::sampled_gaussian_event honest() const { return {sampling_probability, noise_multiplier}; }
  friend bool operator==(const boastful_event&, const boastful_event&) = default;
  friend double renyi_divergence(const boastful_event& event, double order) {
    return pergrad::renyi_divergence(event.honest(), order) / 4;
  }
  friend auto losses_of(const boastful_event& event) { return pergrad::losses_of(event.honest()); }
  friend void require_event(const boastful_event& event) { pergrad::require_event(event.honest()); }
  friend auto description_of(const boastful_event& event) { return pergrad::description_of(event.honest()); }
};

}  // namespace

BOOST_AUTO_TEST_CASE(families_that_contradict_each_other_answer_nothing) {
  pergrad::basic_privacy_accountant<boastful_event> ledger;
  ledger.record({.01, 1}, 1000);
  BOOST_CHECK_EXCEPTION(static_cast<void>(ledger.epsilon(delta{1e-5})), std::logic_error, [](const auto& error) {
    return std::string{error.what()}.find("two accountants contradict each other") != std::string::npos;
  });
  BOOST_CHECK_THROW(static_cast<void>(ledger.bracket(delta{1e-5})), std::logic_error);
}

BOOST_AUTO_TEST_CASE(without_a_budget_everything_is_counted_and_nothing_refused) {
  pergrad::privacy_accountant accountant;
  for (int step = 0; step < 10; ++step) accountant.spend({.5, 0});
  BOOST_TEST(accountant.steps() == 10U);
  BOOST_TEST(!accountant.budget().has_value());
  BOOST_TEST(accountant.within({1, 0}));
}

BOOST_AUTO_TEST_CASE(a_step_without_noise_fits_no_finite_budget) {
  pergrad::privacy_accountant accountant{pergrad::privacy_budget{epsilon{1e9}, delta{1e-5}}};
  BOOST_TEST(!accountant.within({.01, 0}));
  BOOST_CHECK_THROW(accountant.spend({.01, 0}), pergrad::budget_exhausted);
  BOOST_TEST(accountant.steps() == 0U);
}

// Noise and sampling that are chosen from what was released: one order counts, the one that the first step fixed, and
// the sum at that order never exceeds the budget. The best order of all steps is no bound then.
BOOST_AUTO_TEST_CASE(a_run_that_is_planned_on_the_way_is_a_filter) {
  using pergrad::run_plan;
  const pergrad::privacy_budget budget{epsilon{3}, delta{1e-5}};
  const pergrad::sampled_gaussian_event first{.05, 1.2}, quieter{.08, 1.1}, louder{.01, 4};
  BOOST_CHECK_THROW((pergrad::privacy_accountant{std::nullopt, run_plan::on_the_way}), std::invalid_argument);

  pergrad::privacy_accountant filter{budget, run_plan::on_the_way};
  BOOST_TEST(filter.within(first));
  BOOST_CHECK_THROW(filter.spend({1, .3}), pergrad::budget_exhausted);  // alone beyond it: nothing is entered or fixed
  BOOST_TEST(filter.order() == 0);
  filter.spend(first);  // not prepared: the order is fixed all the same
  const double order = filter.order();
  BOOST_TEST(order == pergrad::rdp_accountant::order_for(budget, first));
  for (int step = 0; step < 50; ++step) filter.spend(louder);
  std::uint64_t steps = 51;
  while (filter.within(quieter)) {
    filter.spend(quieter);
    ++steps;
  }
  BOOST_TEST(filter.order() == order);
  BOOST_TEST(filter.steps() == steps);
  BOOST_TEST(steps > 60U);
  BOOST_CHECK_THROW(filter.spend(quieter), pergrad::budget_exhausted);
  // what it reports is that order's, within the budget, and one more would not be
  BOOST_TEST(filter.epsilon(budget.delta) <= 3);
  BOOST_TEST(filter.epsilon(budget.delta) == filter.accountant().epsilon_at_order(order, {0, 1}, 0, budget.delta));
  BOOST_TEST(filter.accountant().epsilon_at_order(order, quieter, 1, budget.delta) > 3);

  // The same steps as a plan that was made beforehand: the best order is another one, it says less, and allows more.
  pergrad::privacy_accountant planned{budget};
  planned.spend(first);
  for (int step = 0; step < 50; ++step) planned.spend(louder);
  for (std::uint64_t step = 51; step < steps; ++step) planned.spend(quieter);
  BOOST_TEST(planned.order() == 0);
  BOOST_TEST(planned.epsilon(budget.delta) < filter.epsilon(budget.delta));
  BOOST_TEST(planned.within(quieter));
}

// What was proven at the budget's delta says nothing of smaller ones, nor of steps that were recorded beyond it.
BOOST_AUTO_TEST_CASE(a_budget_bounds_what_it_was_proven_for) {
  const pergrad::sampled_gaussian_event event{.03, 1};
  pergrad::privacy_accountant kept{pergrad::privacy_budget{epsilon{2}, delta{1e-5}}}, free;
  while (kept.within(event)) {
    kept.spend(event);
    free.record(event, 1);
  }
  BOOST_TEST(kept.epsilon(delta{1e-5}) <= 2);
  BOOST_TEST(kept.epsilon(delta{1e-9}) > 2);
  BOOST_TEST(kept.epsilon(delta{1e-9}) == free.epsilon(delta{1e-9}));
  kept.record(event, 1000);
  free.record(event, 1000);
  BOOST_TEST(kept.epsilon(delta{1e-5}) > 2);
  BOOST_TEST(kept.epsilon(delta{1e-5}) == free.epsilon(delta{1e-5}));
}

// Grids of so little loss would have more points than there is memory for: the other family answers.
BOOST_AUTO_TEST_CASE(random_allocation_with_huge_noise_is_answered) {
  for (const double noise : {1e4, 1e7, 1e150}) {
    pergrad::basic_privacy_accountant<pergrad::allocated_gaussian_event> accountant;
    accountant.record({1000, 3, noise}, 1'000'000);
    // A record takes part in three million steps, and whoever knows in which pays no less.
    pergrad::rdp_accountant known;
    known.record({1, noise}, 3'000'000);
    const pergrad::bracket found = accountant.bracket(pergrad::delta{1e-6});
    BOOST_TEST(found.lower >= 0);
    BOOST_TEST(found.upper <= known.epsilon(pergrad::delta{1e-6}) * (1 + 1e-6), noise << ": " << found.upper);
    BOOST_TEST(found.lower <= found.upper);
  }
}

BOOST_AUTO_TEST_SUITE_END()
