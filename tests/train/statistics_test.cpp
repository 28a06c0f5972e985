// SPDX-License-Identifier: Apache-2.0
// tests/train/statistics_test.cpp - released counts and quantiles: what is under the noise, what it costs, who refuses
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_statistics)

namespace {

namespace pg = pergrad;
using fixture::classifier;
using fixture::clouds;
using fixture::usual_options;
using numbers = std::vector<double>;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// What is under the noise: a seed allows none.
pg::released_histogram exact(const numbers& values, const pg::bin_edges& edges) {
  pg::privacy_accountant ledger;
  pg::seeded_generator generator{1};
  return pg::release_histogram(ledger, generator, pg::noise_multiplier{0}, values, edges);
}
numbers counts_of(const pg::released_histogram& released) {
  return {released.counts().begin(), released.counts().end()};
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_value_is_in_one_bin) {
  const numbers values{-infinity, -1, 0, 0.5, 1, 1.5, 2, 1e300, infinity, std::nan("")};
  const auto found = exact(values, pg::bin_edges{{0, 1, 2}});
  BOOST_TEST(counts_of(found) == (numbers{2, 2, 2, 4}), boost::test_tools::per_element());
  BOOST_TEST(found.total() == 10);
  BOOST_TEST(found.count_below(1) == 4);
  BOOST_CHECK_THROW(static_cast<void>(found.count_below(3)), std::out_of_range);
}
BOOST_AUTO_TEST_CASE(many_records_and_many_bins_are_exact) {
  const auto edges = pg::bin_edges::evenly(0, 1, 3000);
  numbers values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 997) / 997;
  numbers wanted(edges.bins());
  for (const double value : values) ++wanted[edges.bin_of(value)];
  BOOST_TEST((counts_of(exact(values, edges)) == wanted));
}
BOOST_AUTO_TEST_CASE(counts_of_a_range) {
  pg::privacy_accountant ledger;
  pg::seeded_generator generator{1};
  const numbers values{1, 2, 2, 3, std::nan("")};
  const auto count = [&](double low, double high) {
    return pg::release_count(ledger, generator, pg::noise_multiplier{0}, values, low, high);
  };
  BOOST_TEST(count(2, 3) == 2);
  BOOST_TEST(count(-infinity, infinity) == 4);
}
BOOST_AUTO_TEST_CASE(quantiles) {
  numbers values(1001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) / 1000;
  const auto found = exact(values, pg::bin_edges::evenly(0, 1, 100));
  for (const double share : {0.05, 0.25, 0.5, 0.77, 0.95}) BOOST_TEST(std::fabs(found.quantile(share) - share) < 0.01);
  BOOST_TEST(found.quantile(0) == 0);
  BOOST_TEST(found.quantile(1) == 1);
  BOOST_CHECK_THROW(static_cast<void>(found.quantile(1.1)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(found.quantile(std::nan(""))), std::invalid_argument);
  // Under noise: 20,000 records, counts that are off by 30.
  numbers many(20'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = std::sqrt(static_cast<double>(i) / 20'000);
  pg::privacy_accountant ledger;
  pg::seeded_generator generator{5};
  for (const double share : {0.1, 0.5, 0.9}) {
    const double near =
        pg::release_quantile(ledger, generator, pg::noise_multiplier{30}, many, share, pg::bin_edges::evenly(0, 1, 64));
    BOOST_TEST(std::fabs(near - std::sqrt(share)) < 0.03);
  }
  // Of nobody, it is some number between the edges.
  const double none = pg::release_quantile(ledger, generator, pg::noise_multiplier{30}, {}, 0.5, pg::bin_edges{{1, 2}});
  BOOST_TEST((none >= 1 && none <= 2));
}
BOOST_AUTO_TEST_CASE(the_noise_is_as_large_as_it_says) {
  pg::privacy_accountant ledger;
  pg::seeded_generator generator{7};
  const numbers values(50);
  double sum = 0;
  double squares = 0;
  constexpr int times = 4000;
  for (int i = 0; i < times; ++i) {
    const auto found = pg::release_histogram(ledger, generator, pg::noise_multiplier{3}, values, pg::bin_edges{{0.5}});
    BOOST_TEST_REQUIRE((found.deviation() >= 3 && found.deviation() < 3.01));
    sum += found.counts()[0] - 50;
    squares += std::pow(found.counts()[0] - 50, 2);
  }
  BOOST_TEST(std::fabs(sum / times) < 5 * 3 / std::sqrt(times));
  BOOST_TEST(std::fabs(squares / times / 9 - 1) < 5 * std::sqrt(2.0 / times) + 0.005);
}

BOOST_AUTO_TEST_CASE(wrong_edges_and_noise_are_refused_and_cost_nothing) {
  BOOST_CHECK_THROW(pg::bin_edges{{}}, std::invalid_argument);
  BOOST_CHECK_THROW((pg::bin_edges{{1, 1}}), std::invalid_argument);
  BOOST_CHECK_THROW((pg::bin_edges{{1, std::nan("")}}), std::invalid_argument);
  BOOST_CHECK_THROW((pg::bin_edges{{infinity}}), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::bin_edges::evenly(0, 1, 0)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::bin_edges::evenly(1, 0, 4)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::bin_edges::evenly(0, 1, ~std::size_t{0})), std::invalid_argument);
  pg::privacy_accountant ledger{pg::privacy_budget{pg::epsilon{1}, pg::delta{1e-5}}};
  pg::os_keyed_generator generator;
  const numbers values{1};
  for (const double noise : {0.0, 1e-5, 1e30}) {
    BOOST_CHECK_THROW(
        static_cast<void>(pg::release_count(ledger, generator, pg::noise_multiplier{noise}, values, 0, 1)),
        std::invalid_argument);
  }
  for (const double high : {std::nan(""), 0.0, -1.0}) {
    BOOST_CHECK_THROW(
        static_cast<void>(pg::release_count(ledger, generator, pg::noise_multiplier{50}, values, 0, high)),
        std::invalid_argument);
  }
  BOOST_CHECK_THROW(static_cast<void>(pg::release_quantile(ledger, generator, pg::noise_multiplier{50}, values, 2,
                                                           pg::bin_edges{{1}})),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::release_count(ledger, generator, pg::noise_multiplier{1}, values, 0, 1)),
                    pg::budget_exhausted);
  BOOST_TEST(ledger.steps() == 0U);
  BOOST_TEST(generator.step() == 0U);
}

// The ledger has {1, noise} for a release about all records, beside the events of steps.
BOOST_AUTO_TEST_CASE(the_ledger_of_a_run_counts_a_release) {
  const clouds data{300};
  const pg::host exec;
  classifier net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{3}};
  trainer.step(data.records());
  const double before = trainer.epsilon(pg::delta{1e-5});
  const numbers values(300, 1.0);
  const double count = pg::release_count(trainer, pg::noise_multiplier{20}, values, 0, 2);
  BOOST_TEST(std::fabs(count - 300) < 120);
  BOOST_TEST(trainer.epsilon(pg::delta{1e-5}) > before);
  pg::privacy_accountant by_hand;
  for (const auto& entry : trainer.accountant().accountant().ledger()) {
    if (entry.event == pg::sampled_gaussian_event{1, 20}) BOOST_TEST(entry.count == 1U);
    by_hand.record(entry.event, entry.count);
  }
  pg::privacy_accountant wanted;
  wanted.record(usual_options().sampling->event(*usual_options().noise), 1);
  wanted.record({1, 20}, 1);
  BOOST_TEST(wanted.epsilon(pg::delta{1e-5}) == trainer.epsilon(pg::delta{1e-5}));
}

// Much noise at a large delta proves 0, and no less.
BOOST_AUTO_TEST_CASE(epsilon_is_never_negative) {
  pg::privacy_accountant ledger;
  ledger.record({0.01, 500}, 3);
  for (const double delta : {1e-5, 0.1, 0.5, 0.9}) BOOST_TEST(ledger.epsilon(pg::delta{delta}) >= 0);
  BOOST_TEST(ledger.epsilon(pg::delta{0.5}) == 0);
}

// 1 / s² = 1 / a² + 1 / b², never above.
BOOST_AUTO_TEST_CASE(joint_noise_is_that_of_both_numbers_side_by_side) {
  for (const double a : {1e-3, 0.7, 1.0, 30.0, 1e150}) {
    for (const double b : {1e-150, 0.5, 1.0, 1e6}) {
      const double joint = pg::joint_noise(pg::noise_multiplier{a}, pg::noise_multiplier{b}).value();
      const auto x = static_cast<long double>(a), y = static_cast<long double>(b);
      const long double exact = 1 / std::sqrt(1 / (x * x) + 1 / (y * y));
      const auto found = static_cast<long double>(joint);
      BOOST_TEST((found <= exact));
      BOOST_TEST(std::fabs(static_cast<double>(found / exact) - 1) < 1e-14);
    }
  }
  BOOST_TEST(pg::joint_noise(pg::noise_multiplier{0}, pg::noise_multiplier{1}).value() == 0);
}

// The statistic of a step is of the records that the step draws, and the step's event counts both.
BOOST_AUTO_TEST_CASE(the_statistic_of_a_trainers_step) {
  const clouds data{300};
  auto options = usual_options();
  options.private_metrics = true;
  options.statistic = pg::step_statistic{pg::noise_multiplier{0}, pg::bin_edges{{0.1, 0.4, 0.6}}};
  const pg::host exec;
  classifier net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{3}};
  BOOST_CHECK_THROW(static_cast<void>(trainer.last_statistic()), std::logic_error);
  for (int step = 0; step < 3; ++step) {
    trainer.step(data.records());
    const pg::step_metrics& seen = pg::unprotected::metrics(trainer);
    BOOST_TEST(trainer.last_statistic().total() == static_cast<double>(seen.batch_size));
    BOOST_TEST(seen.batch_size > 0U);
  }
  options.statistic->noise = pg::noise_multiplier{4};
  options.private_metrics = false;
  classifier other{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd noisy{exec, other, pg::cross_entropy{}, options, pg::seeded_generator{3}};
  noisy.step(data.records());
  const auto joint = pg::joint_noise(*options.noise, pg::noise_multiplier{4});
  BOOST_TEST((noisy.accountant().accountant().ledger()[0].event == options.sampling->event(joint)));
  BOOST_TEST(pg::unprotected::metrics(noisy).batch_size == 0U);  // nobody asked for those
}
// Two events of the same draw would promise less than the truth: the joint event costs more than their sum.
BOOST_AUTO_TEST_CASE(two_events_of_one_draw_would_be_too_few) {
  const pg::poisson_sampling sampling{pg::sampling_probability{0.01}};
  const pg::noise_multiplier sigma{0.7};
  pg::privacy_accountant apart, joint;
  apart.record(sampling.event(sigma), 2 * 200);
  joint.record(sampling.event(pg::joint_noise(sigma, sigma)), 200);
  BOOST_TEST(joint.epsilon(pg::delta{1e-5}) > 1.2 * apart.epsilon(pg::delta{1e-5}));
}

BOOST_AUTO_TEST_CASE(the_statistic_of_a_loops_step) {
  const clouds data{300};
  const pg::host exec;
  classifier net{exec, pg::kaiming_uniform{1}};
  pg::private_options options = usual_options();
  options.max_batch = pg::max_batch{16};
  options.statistic = pg::step_statistic{pg::noise_multiplier{0}, pg::bin_edges{{0.2, 0.5}}, pg::step_value::loss};
  pg::private_loop loop{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{3}};
  pg::sgd<classifier> optimizer{pg::learning_rate{0.1}};
  auto step = loop.begin(data.records());
  BOOST_CHECK_THROW(step.tally(exec), std::logic_error);  // before the first batch
  std::size_t wanted[3] = {};
  while (step.next()) {
    const auto g = step.gradients();
    pg::evaluate_into(exec, accumulate(step, pg::sum(pg::clip(g, *options.clip))));
    step.tally(exec);
    BOOST_CHECK_THROW(step.tally(exec), std::logic_error);
    for (const double loss : pg::unprotected::evaluate(exec, pg::losses(g))) ++wanted[(loss >= 0.2) + (loss >= 0.5)];
  }
  BOOST_CHECK_THROW(static_cast<void>(loop.last_statistic()), std::logic_error);  // not released yet
  optimizer.step(exec, net, std::move(step));
  for (std::size_t bin = 0; bin < 3; ++bin) {
    BOOST_TEST(loop.last_statistic().counts()[bin] == static_cast<double>(wanted[bin]));
  }
  // A step that was given up releases nothing, and the one before it is not shown for it.
  { const auto given_up = loop.begin(data.records()); }
  BOOST_CHECK_THROW(static_cast<void>(loop.last_statistic()), std::logic_error);
  BOOST_TEST(loop.steps() == 2U);
}

BOOST_AUTO_TEST_CASE(a_statistic_without_noise_is_for_rehearsals) {
  const pg::host exec;
  classifier net{exec, pg::kaiming_uniform{1}};
  auto options = usual_options();
  options.statistic = pg::step_statistic{pg::noise_multiplier{0}, pg::bin_edges{{1}}};
  BOOST_CHECK_THROW((pg::dp_sgd{exec, net, pg::cross_entropy{}, options}), std::invalid_argument);
  BOOST_CHECK_NO_THROW((pg::dp_sgd{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{1}}));
}

BOOST_AUTO_TEST_SUITE_END()
