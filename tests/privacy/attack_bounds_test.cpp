// SPDX-License-Identifier: Apache-2.0
// tests/privacy/attack_bounds_test.cpp - what a ledger leaves to an attacker: against exact tests, in the right
// direction, and as a target of calibration.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/accounting/calibrate.hpp>
#include <pergrad/privacy/accounting/event_costs.hpp>
#include <pergrad/privacy/samplers/fixed_size.hpp>
#include <pergrad/privacy/samplers/random_allocation.hpp>

#include "pld_oracle.hpp"

BOOST_AUTO_TEST_SUITE(privacy_attack_bounds)

namespace {

using pergrad::pld_accountant;

pld_accountant run(double q, double noise, std::uint64_t steps) {
  pld_accountant made;
  made.record({q, noise}, steps);
  return made;
}

/// The x above which a standard Gaussian lies with this probability.
long double upper_quantile(long double probability) {
  return oracle::solve([](long double x) { return oracle::tail(x); }, probability, 40);
}

/// True positives of the best test of one sampled step at a rate of false positives below a half, Neyman and Pearson's:
/// the result is compared with a threshold.
long double one_step_hits(long double q, long double noise, long double rate, bool record_added) {
  const long double m = 1 / noise;
  const auto with = [&](long double x) { return (1 - q) * oracle::tail(x) + q * oracle::tail(x - m); };
  if (record_added) return with(upper_quantile(rate));
  // the hypothesis is that the record is there; small results speak against it
  long double low = -40;
  long double high = 40;
  for (int i = 0; i < 200; ++i) {
    const long double middle = (low + high) / 2;
    const long double below = (1 - q) * oracle::tail(-middle) + q * oracle::tail(m - middle);
    (below < rate ? low : high) = middle;
  }
  return oracle::tail(-low);
}

}  // namespace

BOOST_AUTO_TEST_CASE(gaussians_have_the_known_trade_off) {
  for (const double noise : {0.5, 1.0, 3.0, 20.0}) {
    const pld_accountant accountant = run(1, noise * 5, 25);  // one Gaussian in 25 parts
    for (const double rate : {1e-10, 1e-6, 1e-3, 0.01, 0.1, 0.4}) {
      const long double exact = oracle::tail(upper_quantile(rate) - 1 / static_cast<long double>(noise));
      const double got = accountant.true_positive_rate(rate);
      BOOST_TEST(got >= exact * (1 - 1e-15L), noise << " " << rate << ": " << got << " for " << exact);
      BOOST_TEST(got <= exact * (1 + 1e-4L), noise << " " << rate << ": " << got << " for " << exact);
      BOOST_TEST(accountant.trade_off(rate) <= 1 - exact);
      BOOST_TEST(accountant.trade_off(rate) >= (1 - exact) * (1 - 1e-3L) - 1e-3L * exact);
    }
    const long double exact = 1 - 2 * oracle::tail(0.5L / noise);
    BOOST_TEST(accountant.advantage() >= exact);
    BOOST_TEST(accountant.advantage() <= exact * (1 + 1e-4L));
  }
  // google/differential-privacy, tests of dp_accounting: mu = 1
  constexpr std::array<std::array<double, 2>, 3> known{{{1e-3, .01830}, {1e-6, 8.7218e-5}, {1e-10, 4.1303e-8}}};
  for (const auto& [rate, hits] : known) {
    BOOST_TEST(std::abs(run(1, 1, 1).true_positive_rate(rate) / hits - 1) < 2e-4);
  }
}

BOOST_AUTO_TEST_CASE(sampled_steps_leave_no_less_than_the_best_test_has) {
  for (const double q : {0.003, 0.1, 0.6}) {
    for (const double noise : {0.5, 1.0, 4.0}) {
      const pld_accountant accountant = run(q, noise, 1);
      long double advantage = 0;
      for (const double rate : {1e-8, 1e-5, 1e-3, 0.03, 0.2, 0.45}) {
        const long double exact = std::max(one_step_hits(q, noise, rate, true), one_step_hits(q, noise, rate, false));
        const double got = accountant.true_positive_rate(rate);
        BOOST_TEST(got >= exact * (1 - 1e-14L), q << " " << noise << " " << rate << ": " << got << " for " << exact);
        // Two curves of one threshold each: tight but for corners where their minimum is not convex.
        BOOST_TEST(got <= exact * (1 + 1e-3L), q << " " << noise << " " << rate << ": " << got << " for " << exact);
        advantage = std::max(advantage, exact - rate);
      }
      BOOST_TEST(accountant.advantage() >= advantage);
      BOOST_TEST(accountant.advantage() <= q * (1 - 2 * oracle::tail(0.5L / noise)) * (1 + 1e-3L) + 1e-9L);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_attack_that_is_made_stays_below) {
  // Two steps of which only the sum is looked at: a valid attack, so no bound may be below what it has.
  const double q = 0.2, noise = 0.8;
  const pld_accountant accountant = run(q, noise, 2);
  const long double m = 1 / static_cast<long double>(noise);
  const long double root = std::sqrt(2.0L);
  int near = 0;
  for (long double at = 0; at < 7; at += 0.5L) {
    const long double false_positives = oracle::tail(at / root);
    const long double hits = (1 - q) * (1 - q) * oracle::tail(at / root) +
                             2 * q * (1 - q) * oracle::tail((at - m) / root) +
                             q * q * oracle::tail((at - 2 * m) / root);
    const double bound = accountant.true_positive_rate(static_cast<double>(false_positives));
    BOOST_TEST(bound >= hits);
    near += hits > 0.8L * bound ? 1 : 0;
  }
  BOOST_TEST(near > 5);
}

BOOST_AUTO_TEST_CASE(edges_of_the_curve) {
  const pld_accountant some = run(.01, 1, 1000);
  BOOST_TEST(some.true_positive_rate(1) == 1);
  BOOST_TEST(some.true_positive_rate(0) < 1e-5);
  BOOST_TEST(some.trade_off(1) == 0);
  double before = 0;
  for (const double rate : {0.0, 1e-12, 1e-4, .01, .1, .5, .9, .99, 1.0}) {
    const double here = some.true_positive_rate(rate);
    BOOST_TEST(here >= before);
    BOOST_TEST(here >= rate);
    before = here;
  }
  BOOST_TEST(pld_accountant{}.true_positive_rate(0.25) == 0.25);
  BOOST_TEST(pld_accountant{}.advantage() == 0);
  for (const double wrong : {-1e-9, 1.1, std::nan("")}) {
    BOOST_CHECK_THROW(static_cast<void>(some.true_positive_rate(wrong)), std::invalid_argument);
  }
}

BOOST_AUTO_TEST_CASE(a_run_has_them_also_where_one_family_refuses_and_of_a_filter) {
  const pergrad::privacy_budget budget{pergrad::epsilon{2}, pergrad::delta{1e-5}};
  pergrad::privacy_accountant run_of, loud, filter{budget, pergrad::run_plan::on_the_way};
  run_of.record({.01, 1}, 1000);
  BOOST_TEST(run_of.true_positive_rate(1e-3) == run(.01, 1, 1000).true_positive_rate(1e-3));
  BOOST_TEST(run_of.advantage() == run(.01, 1, 1000).advantage());
  loud.record({.001, .02}, 1);  // no grid for so little noise
  for (const double rate : {1e-6, 1e-3, 0.3}) {
    const long double exact = one_step_hits(.001L, .02L, rate, true);
    BOOST_TEST(loud.true_positive_rate(rate) >= exact);
    BOOST_TEST(loud.true_positive_rate(rate) <= 1);
  }
  BOOST_TEST(loud.advantage() >= .001 * (1 - 1e-12));
  filter.spend({.01, 2});
  // e^2 alpha + delta, and (e^2 - 1 + 2 delta) / (e^2 + 1)
  for (const double wrong : {-1e-9, 1.1, std::nan("")}) {
    BOOST_CHECK_THROW(static_cast<void>(filter.true_positive_rate(wrong)), std::invalid_argument);
  }
  BOOST_TEST(std::abs(filter.true_positive_rate(.01) - (std::exp(2) * .01 + 1e-5)) < 1e-12);
  BOOST_TEST(std::abs(filter.advantage() - (std::exp(2) - 1 + 2e-5) / (std::exp(2) + 1)) < 1e-12);

  // An earlier part of a run may have spent more than the budget of this one: with an order that is fixed, and before.
  for (const bool is_fixed : {true, false}) {
    pergrad::privacy_accountant later{{{pergrad::epsilon{.5}, pergrad::delta{1e-5}}}, pergrad::run_plan::on_the_way};
    if (is_fixed) later.fix_order(pergrad::rdp_accountant::order_for(*later.budget(), {1, 1}));
    later.record({1, 1}, 20);
    const auto truth = run(1, 1, 20);
    BOOST_TEST(later.advantage() >= truth.advantage());
    BOOST_TEST(truth.advantage() > .97);
    for (const double rate : {1e-6, 1e-3, .3}) {
      BOOST_TEST(later.true_positive_rate(rate) >= truth.true_positive_rate(rate));
      BOOST_TEST(later.trade_off(rate) <= truth.trade_off(rate));
    }
  }
}

BOOST_AUTO_TEST_CASE(noise_sampling_and_steps_for_an_attacker) {
  const pergrad::sampling_probability q{.02};
  const pergrad::attack_advantage advantage{.1};
  const pergrad::attack_success success{1e-3, 5e-3};
  const auto noise = pergrad::calibrate_noise(advantage, q, 500);
  BOOST_TEST(run(.02, noise.value(), 500).advantage() <= .1);
  BOOST_TEST(run(.02, noise.value() * (1 - 1e-4), 500).advantage() > .1);
  const auto against = pergrad::calibrate_noise(success, q, 500);
  BOOST_TEST(run(.02, against.value(), 500).true_positive_rate(1e-3) <= 5e-3);
  BOOST_TEST(run(.02, against.value() * (1 - 1e-3), 500).true_positive_rate(1e-3) > 5e-3);
  BOOST_TEST(pergrad::max_steps(advantage, q, noise) >= 498U);
  BOOST_TEST(pergrad::max_steps(advantage, q, noise) <= 502U);
  const std::uint64_t steps = pergrad::max_steps(success, q, against);
  BOOST_TEST(run(.02, against.value(), steps).true_positive_rate(1e-3) <= 5e-3);
  BOOST_TEST(steps >= 495U);
  for (const auto share :
       {pergrad::calibrate_sampling(advantage, noise, 500), pergrad::calibrate_sampling(success, against, 500)}) {
    BOOST_TEST(std::abs(share.value() / .02 - 1) < 1e-3);
  }
  const pergrad::privacy_budget budget{pergrad::epsilon{1}, pergrad::delta{1e-5}};
  const auto share = pergrad::calibrate_sampling(budget, pergrad::noise_multiplier{1}, 1000);
  BOOST_TEST(run(share.value(), 1, 1000).epsilon(budget.delta) <= 1);
  BOOST_TEST(run(share.value() * 1.001, 1, 1000).epsilon(budget.delta) > 1);
  BOOST_TEST(pergrad::calibrate_sampling(budget, pergrad::noise_multiplier{1e4}, 10).value() == 1);

  BOOST_CHECK_THROW(static_cast<void>(pergrad::calibrate_noise(pergrad::attack_advantage{0}, q, 5)),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pergrad::calibrate_noise(pergrad::attack_success{.1, .1}, q, 5)),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pergrad::max_steps(advantage, pergrad::sampling_probability{0}, noise)),
                    std::invalid_argument);
  BOOST_TEST(pergrad::calibrate_noise(advantage, q, 0).value() == 0);
}

namespace {

template <class Event>
pergrad::basic_pld_accountant<Event> run_of(const Event& event, std::uint64_t count) {
  pergrad::basic_pld_accountant<Event> made;
  made.record(event, count);
  return made;
}

/// Noise that is found keeps to both targets, a little less does not, and so many steps are found again.
template <class Sampling>
void check_targets(const Sampling& sampling, std::uint64_t steps, std::uint64_t events) {
  const auto event_of = [&](double noise) { return sampling.event(pergrad::noise_multiplier{noise}); };
  const pergrad::attack_advantage advantage{.1};
  const auto noise = pergrad::calibrate_noise(advantage, sampling, steps);
  BOOST_TEST(run_of(event_of(noise.value()), events).advantage() <= .1);
  BOOST_TEST(run_of(event_of(noise.value() * (1 - 1e-3)), events).advantage() > .1);
  const std::uint64_t of_an_event = (steps + events - 1) / events;
  BOOST_TEST(pergrad::max_steps(advantage, sampling, noise) >= events * of_an_event);
  BOOST_TEST(pergrad::max_steps(advantage, sampling, noise) <= (events + 1 + events / 100) * of_an_event);
  const pergrad::attack_success success{1e-3, 5e-3};
  const auto against = pergrad::calibrate_noise(success, sampling, steps);
  BOOST_TEST(run_of(event_of(against.value()), events).true_positive_rate(1e-3) <= 5e-3);
  BOOST_TEST(run_of(event_of(against.value() * (1 - 1e-3)), events).true_positive_rate(1e-3) > 5e-3);
}

}  // namespace

BOOST_AUTO_TEST_CASE(targets_of_other_samplers) {
  check_targets(pergrad::fixed_size_sampling{pergrad::batch_size{4}, pergrad::public_record_count{200}}, 60, 60);
  check_targets(pergrad::random_allocation{pergrad::round_steps{4}}, 7, 2);

  // All records in every step, one of them replaced: two Gaussians whose means differ by 2.
  const pergrad::fixed_size_sampling all{pergrad::batch_size{9}, pergrad::public_record_count{9}};
  const auto noise = pergrad::calibrate_noise(pergrad::attack_advantage{.1}, all, 7);
  const long double exact = 1 - 2 * oracle::tail(std::sqrt(7.0L) / noise.value());
  BOOST_TEST(exact <= .1L);
  BOOST_TEST(exact >= .1L * (1 - 1e-3L));

  BOOST_TEST(pergrad::calibrate_noise(pergrad::attack_advantage{.1}, all, 0).value() == 0);
  BOOST_CHECK_THROW(static_cast<void>(pergrad::calibrate_noise(pergrad::attack_advantage{1}, all, 5)),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pergrad::calibrate_noise(pergrad::attack_success{.2, .1}, all, 5)),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
