// SPDX-License-Identifier: Apache-2.0
// tests/privacy/individual_filter_test.cpp - budgets of single records: what they spend, when they end, and what an
// attacker sees of a record that hides when its budget is spent
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/privacy/accounting/individual_filter.hpp>

BOOST_AUTO_TEST_SUITE(privacy_individual_filter)

namespace {

namespace pg = pergrad;
using event = pg::sampled_gaussian_event;
const pg::privacy_budget usual{pg::epsilon{3}, pg::delta{1e-5}};

/// A filter of so many records at an order.
[[nodiscard]] pg::individual_filter filter_of(std::size_t records, const event& each, double order = 8,
                                              std::size_t levels = 64, const pg::privacy_budget& budget = usual) {
  pg::individual_filter filter{budget, each, levels, order};
  filter.begin_step(records);
  return filter;
}
/// Steps in which record 0 is used before it is left out for the first time, always drawn with this share.
[[nodiscard]] std::uint64_t uses(pg::individual_filter filter, double share) {
  std::uint64_t count = 0;
  const std::size_t level = filter.level_of(share);
  while (filter.admits(0, level) && count < 1'000'000) {
    filter.charge_drawn(0, level);
    filter.charge_others();
    ++count;
  }
  return count;
}
/// A budget that is proven by exactly this divergence, to rounding of its last bits.
[[nodiscard]] pg::privacy_budget budget_of(double rdp, double order) {
  return {pg::epsilon{pg::epsilon_from_rdp(order, rdp, pg::delta{1e-5}) * (1 + 1e-15)}, pg::delta{1e-5}};
}

}  // namespace

// (a) Whoever adds C in every step, or is not looked at, has spent what the ledger says.
BOOST_AUTO_TEST_CASE(full_shares_cost_what_the_ledger_says) {
  for (const event each : {event{1, 12}, event{0.01, 1.1}, event{0.3, 4}}) {
    for (const double order : {1.7, 8.0, 33.5}) {
      auto filter = filter_of(2, each, order, 64, {pg::epsilon{400}, pg::delta{1e-5}});
      pg::rdp_accountant ledger;
      for (int step = 0; step < 30; ++step) {
        filter.charge_drawn(0, filter.level_of(1));
        filter.charge_others();
        ledger.record(each);
      }
      for (const std::size_t record : {0U, 1U}) {
        BOOST_TEST(std::abs(filter.spent(record) / ledger.renyi(order) - 1) < 1e-12);
        BOOST_TEST(filter.spent(record) >= ledger.renyi(order));
      }
    }
  }
}

// (b) Half the norm is four times the steps where nothing is sampled.
BOOST_AUTO_TEST_CASE(half_a_share_is_four_times_the_steps) {
  const event each{1, 10};
  for (const double order : {2.0, 8.0}) {
    const double cost = pg::renyi_divergence(each, order) * (1 + 1e-10);
    for (const int steps : {1, 3, 16}) {
      const auto filter = filter_of(1, each, order, 64, budget_of(cost * steps * (1 + 1e-12), order));
      BOOST_TEST(uses(filter, 1) == static_cast<std::uint64_t>(steps));
      BOOST_TEST(uses(filter, 0.5) == 4U * static_cast<std::uint64_t>(steps));
      BOOST_TEST(uses(filter, 0.25) == 16U * static_cast<std::uint64_t>(steps));
    }
  }
}

// (c) What fits exactly is used; with the budget a hair smaller it is not.
BOOST_AUTO_TEST_CASE(the_last_step_may_use_up_all) {
  const event each{1, 1};
  const double order = 4;
  for (const double steps : {1.0, 2.0, 4.0}) {
    // The budget's own divergence is what is left behind its rounding: its steps are cut to fit that.
    const pg::privacy_budget budget{pg::epsilon{10}, pg::delta{1e-5}};
    const auto filter = filter_of(1, each, order, 64, budget);
    const double noise = std::sqrt(order * (1 + 1e-10) * steps / (2 * filter.rdp_budget()));
    double exact = noise;
    while (pg::renyi_divergence(pg::sampled_gaussian_event{1, exact}, order) * (1 + 1e-10) * steps >
           filter.rdp_budget()) {
      exact = std::nextafter(exact, 1e9);
    }
    auto fits = filter_of(1, {1, exact}, order, 64, budget);
    BOOST_TEST(uses(fits, 1) == static_cast<std::uint64_t>(steps));
    double less = exact;
    while (pg::renyi_divergence(pg::sampled_gaussian_event{1, less}, order) * (1 + 1e-10) * steps <=
           filter.rdp_budget()) {
      less = std::nextafter(less, 0);
    }
    BOOST_TEST(less > exact * (1 - 1e-14));
    auto exceeds = filter_of(1, {1, less}, order, 64, budget);
    BOOST_TEST(uses(exceeds, 1) == static_cast<std::uint64_t>(steps) - 1);
  }
}

// (d) A larger share never costs less, and none costs less than its own divergence.
BOOST_AUTO_TEST_CASE(costs_rise_with_the_share_and_round_up) {
  for (const event each : {event{1, 3}, event{0.02, 0.9}, event{1e-6, 0.4}, event{0.5, 100}}) {
    for (const std::size_t levels : {1U, 7U, 64U, 1000U}) {
      double before = 0;
      for (int i = 0; i <= 500; ++i) {
        const double share = i / 500.0;
        auto filter = filter_of(1, each, 5, levels, {pg::epsilon{1e4}, pg::delta{1e-5}});
        filter.charge_drawn(0, filter.level_of(share));
        BOOST_TEST_REQUIRE(filter.spent(0) >= before);
        before = filter.spent(0);
        if (share > 0) {
          BOOST_TEST_REQUIRE(
              before >= pg::renyi_divergence(
                            pg::sampled_gaussian_event{each.sampling_probability, each.noise_multiplier / share}, 5));
        } else {
          BOOST_TEST_REQUIRE(before == 0);
        }
      }
    }
  }
  const auto filter = filter_of(1, {1, 3});
  BOOST_TEST(filter.level_of(0) == 0U);
  BOOST_TEST(filter.level_of(1e-300) == 1U);
  BOOST_TEST(filter.level_of(1.0 / 64) == 1U);
  BOOST_TEST(filter.level_of(std::nextafter(1.0 / 64, 1)) == 2U);
  for (const double bad : {1.0, 1.5, std::numeric_limits<double>::infinity(), std::nan("")}) {
    BOOST_TEST(filter.level_of(bad) == 64U);
  }
}

// A record's level is that of what it adds to a sum of integers, and no level more: of elements that are all rounded up
// by half a step of the grid, and of a single one; of one that is rounded to nothing it is 0.
BOOST_AUTO_TEST_CASE(levels_count_the_rounding_of_what_a_record_adds) {
  constexpr std::size_t levels = 65535;  // an element's rounding is some of them
  for (const std::size_t elements : {1U, 60U, 1000U}) {
    const pg::release_grid grid = pg::release_grid::of(0.7, elements);
    pg::detail::individual_charges charges{usual, event{1, 10}, levels, 1};
    charges.plan(event{1, 10}, grid);
    const double step = std::ldexp(1.0, grid.unit - grid.steps);
    const double size_of_a_level = pg::sensitivity_in_steps(grid, {}, 1) * step / levels;
    const double root = std::sqrt(static_cast<double>(elements));
    for (int k = 0; root * (k + 0.5) * step <= grid.bound; ++k) {
      const auto level = static_cast<double>(charges.level_of(root * (k + 0.5) * step));
      const double adds = root * (k + 1) * step;
      BOOST_TEST_REQUIRE(level * size_of_a_level >= adds);
      BOOST_TEST_REQUIRE((level - 1) * size_of_a_level <= adds * (1 + 1e-9));
    }
    BOOST_TEST(static_cast<double>(charges.level_of(step / 2)) * size_of_a_level >= step);
    BOOST_TEST(charges.level_of(step / 2 * (1 - 1e-11)) == 0U);
  }
}

// (e) What one record spends does not hang on any other.
BOOST_AUTO_TEST_CASE(records_do_not_touch_each_other) {
  std::mt19937 random{5};
  const event each{0.3, 2};
  auto all = filter_of(200, each, 8, 64, {pg::epsilon{6}, pg::delta{1e-5}});
  std::vector<pg::individual_filter> alone;
  for (int i = 0; i < 200; ++i) alone.push_back(filter_of(1, each, 8, 64, {pg::epsilon{6}, pg::delta{1e-5}}));
  for (int step = 0; step < 60; ++step) {
    for (std::size_t record = 0; record < 200; ++record) {
      if (random() % 3 != 0) {
        alone[record].charge_others();
        continue;
      }
      const std::size_t level = random() % 65;
      all.charge_drawn(record, level);
      alone[record].charge_drawn(0, level);
      alone[record].charge_others();
    }
    all.charge_others();
  }
  std::size_t used_up = 0;
  for (std::size_t record = 0; record < 200; ++record) {
    BOOST_TEST(all.spent(record) == alone[record].spent(0));
    BOOST_TEST(all.spent(record) <= all.rdp_budget() * (1 + 1e-15));
    used_up += all.admits(record, 64) ? 0U : 1U;
  }
  BOOST_TEST(used_up > 20U);
}

BOOST_AUTO_TEST_CASE(no_budget_no_filter) {
  BOOST_CHECK_THROW(static_cast<void>(filter_of(1, {1, 1}, 1.1, 64, {pg::epsilon{0.01}, pg::delta{1e-9}})),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(filter_of(1, {1, 1}, 8, 0)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(filter_of(1, {1, 1}, 8, 70'000)), std::invalid_argument);
  auto filter = filter_of(3, {1, 1});
  BOOST_CHECK_THROW(filter.begin_step(4), std::logic_error);
  BOOST_CHECK_NO_THROW(filter.begin_step(3));
  const pg::individual_filter by_itself{usual, {0.01, 1.1}};
  BOOST_TEST(by_itself.order() == pg::rdp_accountant::order_for(usual, {0.01, 1.1}));
  BOOST_TEST(by_itself.epsilon(usual.delta) <= usual.max_epsilon.value());
  BOOST_TEST(by_itself.epsilon(usual.delta) > usual.max_epsilon.value() * (1 - 1e-12));
}

// An attacker chooses, from what was released, how much his record adds in each step: much where the release looks as
// if it were in the data, and hides otherwise. With the filter, who decides by the likelihood ratio is right no more
// often than (epsilon, delta) allows; with one that rounds shares to the nearest level, shares below half a level are
// free, and he is.
BOOST_AUTO_TEST_CASE(an_adaptive_record_stays_within_its_budget) {
  const pg::privacy_budget budget{pg::epsilon{0.5}, pg::delta{1e-3}};
  const event each{1, 4};
  const double order = pg::individual_filter{budget, each, 4}.order();
  constexpr int runs = 4000;
  const auto advantage = [&](bool nearest) {
    std::mt19937_64 random{7};
    std::normal_distribution<double> normal;
    int right = 0;
    for (int run = 0; run < runs; ++run) {
      auto filter = filter_of(1, each, order, 4, budget);
      const bool is_in = (random() >> 63U) != 0;
      double ratio = 0;  // log likelihood of its being in, less of its being out
      for (int step = 0; step < 1500; ++step) {
        const double share = ratio > 1.5 ? 1.0 : 0.12;  // below half of a quarter
        const std::size_t level = nearest ? static_cast<std::size_t>(std::lround(share * 4)) : filter.level_of(share);
        const double adds = filter.admits(0, level) ? share : 0;
        filter.charge_drawn(0, level);
        filter.charge_others();
        const double seen = (is_in ? adds : 0) + 4 * normal(random);
        ratio += (seen * adds - adds * adds / 2) / 16;
      }
      right += (ratio > 0) == is_in ? 1 : 0;
    }
    return static_cast<double>(right) / runs;
  };
  // Right with a probability of at most (e^epsilon + delta) / (1 + e^epsilon); three standard errors more.
  const double grown = std::exp(budget.max_epsilon.value());
  const double most = (grown + budget.delta.value()) / (1 + grown) + 3 * std::sqrt(0.25 / runs);
  const double found = advantage(false);
  const double planted = advantage(true);
  BOOST_TEST_MESSAGE("right " << found << ", rounded to nearest " << planted << ", allowed " << most);
  BOOST_TEST(found < most);
  BOOST_TEST(found > 0.51);
  BOOST_TEST(planted > most);
}

// Who was drawn in a step that failed halfway pays in the next one, in which he may not be drawn.
BOOST_AUTO_TEST_CASE(a_step_that_failed_is_forgotten) {
  const pg::sampled_gaussian_event event{0.5, 4};
  pg::individual_filter filter{pg::privacy_budget{pg::epsilon{8}, pg::delta{1e-5}}, event, 4};
  filter.begin_step(3);
  filter.charge_drawn(0, 1);
  const double before = filter.spent(0);
  filter.begin_step(3);
  filter.charge_others();
  BOOST_TEST(filter.spent(0) - before >= pg::renyi_divergence(event, filter.order()));
}

BOOST_AUTO_TEST_SUITE_END()
