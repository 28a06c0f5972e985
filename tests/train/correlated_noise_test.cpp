// SPDX-License-Identifier: Apache-2.0
// tests/train/correlated_noise_test.cpp - runs with correlated noise: what they release, what they cost, what they
// refuse
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/correlated_noise.hpp>
#include <pergrad/pergrad.hpp>

#include "train/fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_correlated_noise)

namespace {

namespace pg = pergrad;
using fixture::classifier;
using fixture::clouds;
using fixture::parameters_of;

template <class Noise, class Sampling = pg::cyclic_poisson_sampling>
using options_of = pg::dp_options<Sampling, Noise>;

constexpr std::uint64_t steps = 12;
const pg::banded_noise banded{steps, {0.6, 0.5, 0.4}};
const pg::buffered_noise buffered{steps, {0.95, 0.5}, {0.2, 0.4}};
const pg::tree_noise tree{steps};

template <class Noise, class Sampling>
options_of<Noise, Sampling> usual(const Noise& noise, const Sampling& sampling) {
  options_of<Noise, Sampling> options;
  options.clip = pg::l2_clip_norm{0.5};
  options.noise = pg::noise_multiplier{1.1};
  options.sampling = sampling;
  options.correlation = noise;
  options.divisor = pg::expected_batch_size{60};
  options.learning_rate = pg::learning_rate{0.25};
  options.max_batch = pg::max_batch{16};
  return options;
}
const pg::cyclic_poisson_sampling turns{pg::sampling_probability{0.5}, pg::round_steps{4}};
const pg::min_separation_sampling apart{pg::sampling_probability{0.3}, pg::round_steps{3}};

/// The update of every step of a run.
template <class Options>
std::vector<std::vector<float>> run_of(const Options& options, const clouds& data, std::size_t threads = 1,
                                       std::uint64_t count = steps) {
  const pg::host exec{pg::threads{threads}};
  classifier net{exec, pg::xavier_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41}};
  std::vector<std::vector<float>> updates;
  for (std::uint64_t t = 0; t < count; ++t) {
    trainer.step(data.records());
    const auto values = trainer.last_update().values();
    updates.emplace_back(values.begin(), values.end());
  }
  return updates;
}

}  // namespace

// Scaled gradients get the same noise: of nobody, the same bits.
BOOST_AUTO_TEST_CASE(scaled_gradients_have_the_same_noise) {
  auto options = usual(banded, turns);
  options.capacity = pg::record_capacity{0};
  pg::scaled_adam_options<pg::cyclic_poisson_sampling, pg::banded_noise> scaled;
  static_cast<pg::dp_options<pg::cyclic_poisson_sampling, pg::banded_noise>&>(scaled) = options;
  scaled.optimizer = pg::optimizer_kind::adam;
  const auto wanted = run_of(options, clouds{0});
  BOOST_TEST((run_of(scaled, clouds{0}) == wanted));
  BOOST_TEST((run_of(scaled, clouds{200}, 1) == run_of(scaled, clouds{200}, 3)));
  BOOST_TEST((run_of(scaled, clouds{200}) != wanted));
}

// Of an empty data set only noise is released: undone by C, it is independent and has the deviation that the whole run
// needs.
BOOST_AUTO_TEST_CASE(noise_of_a_run_is_that_of_its_strategy) {
  using wide = pg::network<pg::shape{200}, pg::linear<100>, pg::tanh, pg::linear<3>>;  // 20,403 parameters
  const clouds nobody{0};
  const auto check = [&](const auto& noise, const auto& sampling, std::span<const double> c, double sensitivity) {
    const pg::host exec{pg::threads{2}};
    wide net{exec, pg::zeros{}};
    auto options = usual(noise, sampling);
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{5}};
    const pg::dataset<float, std::int32_t> records{{}, {}, wide::input_shape};
    std::vector<std::vector<double>> n;
    while (trainer.within_budget()) {
      trainer.step(records);
      n.emplace_back(trainer.last_update().values().begin(), trainer.last_update().values().end());
    }
    BOOST_TEST_REQUIRE(n.size() == steps);
    const std::size_t d = n[0].size();
    std::vector<std::vector<double>> z(steps, std::vector<double>(d));
    const double deviation = 1.1 * 0.5 * sensitivity;
    for (std::size_t t = 0; t < steps; ++t) {
      double square = 0;
      for (std::size_t i = 0; i < d; ++i) {
        for (std::size_t k = 0; k < c.size() && k <= t; ++k) z[t][i] += c[k] * n[t - k][i];
        square += z[t][i] * z[t][i];
      }
      const double seen = std::sqrt(square / static_cast<double>(d));
      // Capacity, grid and rounding may add 2.5 %; six standard errors of d squares.
      BOOST_TEST(seen >= deviation * (1 - 6 / std::sqrt(2.0 * static_cast<double>(d))));
      BOOST_TEST(seen <= 1.025 * deviation * (1 + 6 / std::sqrt(2.0 * static_cast<double>(d))));
      for (std::size_t s = 0; s < t; ++s) {
        double dot = 0;
        for (std::size_t i = 0; i < d; ++i) dot += z[t][i] * z[s][i];
        BOOST_TEST(std::abs(dot) <= 6 * 1.06 * deviation * deviation * std::sqrt(static_cast<double>(d)));
      }
    }
  };
  const std::vector<double> c{banded.coefficients().begin(), banded.coefficients().end()};
  check(banded, turns, c, std::sqrt(1 + 0.36 + 0.25 + 0.16));
  check(banded, apart, c, banded.sensitivity({.separation = 3}).of_sums);
  check(buffered, apart, buffered.coefficients(), buffered.sensitivity({.separation = 3}).of_sums);
  check(buffered, turns, buffered.coefficients(), buffered.sensitivity({.separation = 4}).of_sums);
}

// Without noise and with parameters that stay what they are: in which steps a record moves sums, and what that does to
// all of C G.
BOOST_AUTO_TEST_CASE(a_record_takes_part_as_its_sampler_promises) {
  const clouds data{60};
  const pg::host exec{pg::threads{1}};
  const auto check = [&](const auto& noise, const auto& sampling, std::span<const double> c) {
    const auto sums_of = [&](std::size_t count) {
      classifier net{exec, pg::xavier_uniform{1}};
      auto options = usual(noise, sampling);
      options.noise = pg::noise_multiplier{0};
      const pg::loop_options<std::remove_cvref_t<decltype(sampling)>, std::remove_cvref_t<decltype(noise)>> of_loop =
          options;
      pg::private_loop loop{exec, net, pg::cross_entropy{}, of_loop, pg::seeded_generator{3}};
      const pg::dataset<float, std::int32_t> records{std::span{data.inputs}.first(6 * count),
                                                     std::span{data.classes}.first(count), pg::shape{6}};
      std::vector<std::vector<float>> sums;
      pg::unprotected::rehearsed_gradient<classifier> update{exec};
      while (loop.within_budget()) {
        auto step = loop.begin(records);
        while (step.next()) {
          pg::evaluate_into(exec, accumulate(step, pg::sum(pg::clip(step.gradients(), *options.clip))));
        }
        pg::evaluate_into(exec, update, std::move(step));
        sums.emplace_back(update.values().begin(), update.values().end());
      }
      return sums;
    };
    const auto with = sums_of(data.size());
    const auto without = sums_of(data.size() - 1);
    std::optional<std::size_t> last;
    std::size_t times = 0;
    double square = 0;
    for (std::size_t t = 0; t < steps; ++t) {
      std::vector<double> row(with[t].size());
      for (std::size_t k = 0; k < c.size() && k <= t; ++k) {
        for (std::size_t i = 0; i < row.size(); ++i) {
          row[i] += c[k] * (static_cast<double>(with[t - k][i]) - static_cast<double>(without[t - k][i]));
        }
      }
      for (const double each : row) square += each * each;
      if (with[t] == without[t]) continue;
      if (last) BOOST_TEST(t - *last >= sampling.min_separation());
      last = t;
      ++times;
    }
    BOOST_TEST(times >= 2U);
    BOOST_TEST(times <= sampling.max_participations(steps));
    const double bound = noise.sensitivity_under(sampling).of_sums * 0.5;
    BOOST_TEST(std::sqrt(square) <= bound * 1.001);  // the grid's own rounding
    BOOST_TEST(std::sqrt(square) >= bound * 0.5);
  };
  const std::vector<double> c{banded.coefficients().begin(), banded.coefficients().end()};
  check(banded, pg::cyclic_poisson_sampling{pg::sampling_probability{1}, pg::round_steps{4}}, c);
  check(banded, pg::min_separation_sampling{pg::sampling_probability{0.6}, pg::round_steps{3}}, c);
  check(buffered, pg::min_separation_sampling{pg::sampling_probability{0.6}, pg::round_steps{3}},
        buffered.coefficients());
}

BOOST_AUTO_TEST_CASE(the_same_bits_however_a_run_is_made) {
  const clouds data{400};
  const auto check = [&](const auto& noise, const auto& sampling) {
    const auto options = usual(noise, sampling);
    const auto wanted = run_of(options, data);
    BOOST_TEST((run_of(options, data, 3) == wanted));
    BOOST_TEST((run_of(usual(noise.regenerated(), sampling), data, 2) == wanted));
    // By hand.
    const pg::host exec{pg::threads{1}};
    classifier net{exec, pg::xavier_uniform{1}};
    pg::sgd<classifier> optimizer{*options.learning_rate};
    const pg::loop_options<std::remove_cvref_t<decltype(sampling)>, std::remove_cvref_t<decltype(noise)>> of_loop =
        options;
    pg::private_loop loop{exec, net, pg::cross_entropy{}, of_loop, pg::seeded_generator{41}};
    pg::unprotected::rehearsed_gradient<classifier> update{exec};
    std::size_t at = 0;
    while (loop.within_budget()) {
      auto step = loop.begin(data.records());
      while (step.next()) {
        pg::evaluate_into(exec, accumulate(step, pg::sum(pg::clip(step.gradients(), *options.clip))));
      }
      optimizer.step(exec, net, update, std::move(step));
      BOOST_TEST(std::equal(update.values().begin(), update.values().end(), wanted[at++].begin()));
    }
    BOOST_TEST(at == steps);
  };
  check(banded, turns);
  check(banded, apart);
  check(buffered, apart);
  check(tree, turns);
}

// A step that is given up has noise like any other; those behind it are what they were.
BOOST_AUTO_TEST_CASE(a_step_that_was_given_up_keeps_its_place) {
  const clouds nobody{0};
  const auto options = usual(banded, turns);
  const auto wanted = run_of(options, nobody);
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::xavier_uniform{1}};
  const pg::loop_options<pg::cyclic_poisson_sampling, pg::banded_noise> of_loop = options;
  pg::private_loop loop{exec, net, pg::cross_entropy{}, of_loop, pg::seeded_generator{41}};
  pg::unprotected::rehearsed_gradient<classifier> update{exec};
  for (std::uint64_t t = 0; t < steps; ++t) {
    auto step = loop.begin(nobody.records());
    while (step.next()) {
    }
    if (t == 3 || t == 4 || t == 8) continue;  // its noise is drawn when the next step begins
    pg::evaluate_into(exec, update, std::move(step));
    BOOST_TEST(std::equal(update.values().begin(), update.values().end(), wanted[t].begin()));
  }
  BOOST_TEST(loop.steps() == steps);
  BOOST_TEST(!loop.within_budget());
}

// One whose release fails has noise that nobody sees: what is in memory goes on as what is drawn again.
BOOST_AUTO_TEST_CASE(a_release_that_fails_keeps_its_place) {
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  classifier gone{exec, pg::zeros{}};
  const classifier taken = std::move(gone);
  const auto run = [&](const auto& noise) {
    classifier net{exec, pg::xavier_uniform{1}};
    pg::sgd<classifier> optimizer{pg::learning_rate{0.1}};
    const pg::loop_options<pg::cyclic_poisson_sampling, std::remove_cvref_t<decltype(noise)>> options =
        usual(noise, turns);
    pg::private_loop loop{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41}};
    pg::unprotected::rehearsed_gradient<classifier> update{exec};
    std::vector<float> released;
    for (std::uint64_t t = 0; t < steps; ++t) {
      auto step = loop.begin(data.records());
      while (step.next()) {
        pg::evaluate_into(exec, accumulate(step, pg::sum(pg::clip(step.gradients(), pg::l2_clip_norm{0.5}))));
      }
      if (t == 4) {  // from a task of the executor that has to release it
        BOOST_CHECK_THROW(
            exec.parallel(1, [&](std::size_t, std::size_t) { pg::evaluate_into(exec, update, std::move(step)); }),
            std::logic_error);
        continue;
      }
      if (t == 0 || t == 3 || t == 8) {
        BOOST_CHECK_THROW(optimizer.step(exec, gone, std::move(step)), std::logic_error);
        continue;
      }
      pg::evaluate_into(exec, update, std::move(step));
      released.insert(released.end(), update.values().begin(), update.values().end());
    }
    return released;
  };
  BOOST_TEST((run(banded) == run(banded.regenerated())));
  BOOST_TEST((run(buffered) == run(buffered.regenerated())));
  BOOST_TEST((run(tree) == run(tree.regenerated())));
}

// What is drawn may be owners, or records in several views: their sampler promises it of them.
BOOST_AUTO_TEST_CASE(owners_and_views) {
  const clouds data{120};
  std::vector<std::uint32_t> owners(data.size());
  for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<std::uint32_t>(i % 40);
  const auto check = [&](const auto& sampling) {
    const auto wanted = run_of(usual(banded, sampling), data);
    BOOST_TEST((run_of(usual(banded, sampling), data, 3) == wanted));
    BOOST_TEST((run_of(usual(banded.regenerated(), sampling), data) == wanted));
  };
  check(pg::of_owners{turns, owners});
  check(pg::with_views{apart, pg::view_count{2}});
}

// Another executor may release a step, but for regenerated noise not on more threads than the run has memory for.
BOOST_AUTO_TEST_CASE(a_release_by_another_executor) {
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  const pg::host more{pg::threads{3}};
  const auto release = [&](const pg::banded_noise& noise) {
    classifier net{exec, pg::xavier_uniform{1}};
    const pg::loop_options<pg::cyclic_poisson_sampling, pg::banded_noise> options = usual(noise, turns);
    pg::private_loop loop{exec, net, pg::cross_entropy{}, options};
    pg::private_gradient<classifier> update{exec};
    auto step = loop.begin(data.records());
    while (step.next()) {
      pg::evaluate_into(exec, accumulate(step, pg::sum(pg::clip(step.gradients(), *options.clip))));
    }
    pg::evaluate_into(more, update, std::move(step));
  };
  release(banded);
  BOOST_CHECK_THROW(release(banded.regenerated()), std::logic_error);
}

BOOST_AUTO_TEST_CASE(every_kind_of_clipping) {
  using grouped = pg::network<pg::shape{6}, pg::parameter_group<1, pg::linear<9>>, pg::tanh, pg::linear<3>>;
  const clouds data{200};
  const pg::host exec{pg::threads{1}};
  for (const auto kind : {pg::clipping_kind::flat, pg::clipping_kind::per_layer, pg::clipping_kind::automatic,
                          pg::clipping_kind::per_sample_adaptive, pg::clipping_kind::per_group}) {
    auto options = usual(banded, turns);
    options.clipping = kind;
    if (kind == pg::clipping_kind::per_group) {
      options.clip.reset();
      options.group_bounds = {pg::l2_clip_norm{0.3}, pg::l2_clip_norm{0.4}};
    }
    options.optimizer = pg::optimizer_kind::adam;
    grouped net{exec, pg::xavier_uniform{1}};
    const std::vector<float> start{net.parameters().begin(), net.parameters().end()};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
    for (std::uint64_t t = 0; t < steps; ++t) trainer.step(data.records());
    BOOST_TEST(!std::equal(start.begin(), start.end(), net.parameters().begin()));
    BOOST_TEST(trainer.steps() == steps);
  }
}

// Turns: as many steps of Poisson sampling as there are turns. Else one Gaussian for all of the run.
BOOST_AUTO_TEST_CASE(what_a_run_costs) {
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  const pg::delta delta{1e-5};
  const auto spent_by = [&](const auto& options, std::uint64_t count) {
    classifier net{exec, pg::xavier_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
    for (std::uint64_t t = 0; t < count; ++t) trainer.step(data.records());
    BOOST_TEST(trainer.steps() == count);
    return trainer.epsilon(delta);
  };
  const auto gaussians = [&](double q, std::uint64_t count) {
    pg::pld_accountant ledger;
    ledger.record(pg::poisson_sampling{pg::sampling_probability{q}}.event(pg::noise_multiplier{1.1}), count);
    return ledger.epsilon(delta);
  };
  for (const std::uint64_t count : {1U, 4U, 5U, 12U}) {
    BOOST_TEST(spent_by(usual(banded, turns), count) == gaussians(0.5, (count + 3) / 4),
               boost::test_tools::tolerance(1e-9));
    for (const double epsilon : {spent_by(usual(banded, apart), count), spent_by(usual(buffered, turns), count),
                                 spent_by(usual(tree, apart), count)}) {
      BOOST_TEST(epsilon == gaussians(1, 1), boost::test_tools::tolerance(1e-9));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_run_ends_with_its_strategy) {
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::xavier_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, usual(banded, turns)};
  for (std::uint64_t t = 0; t < steps; ++t) {
    BOOST_TEST(trainer.within_budget());
    trainer.step(data.records());
  }
  BOOST_TEST(!trainer.within_budget());
  const auto parameters = parameters_of(net);
  BOOST_CHECK_THROW(trainer.step(data.records()), pg::budget_exhausted);
  BOOST_TEST((parameters_of(net) == parameters));
  BOOST_TEST(trainer.steps() == steps);
  // A budget counts, too: of turns, those that it allows.
  auto options = usual(banded, turns);
  options.budget = pg::privacy_budget{pg::epsilon{trainer.epsilon(pg::delta{1e-5}) * 0.9}, pg::delta{1e-5}};
  classifier other{exec, pg::xavier_uniform{1}};
  pg::dp_sgd limited{exec, other, pg::cross_entropy{}, options};
  while (limited.within_budget()) limited.step(data.records());
  BOOST_TEST(limited.steps() == 8U);
}

// Rates are what is trained, and not what is released.
BOOST_AUTO_TEST_CASE(rates_may_change) {
  const clouds data{100};
  const pg::host exec{pg::threads{1}};
  const auto check = [&](const auto& sampling, std::uint64_t events) {
    auto options = usual(banded, sampling);
    options.learning_rate.reset();
    options.schedules.steps = 10;
    options.schedules.learning_rate = pg::schedule::exponential(0.25, 0.5, 1);
    options.budget = pg::privacy_budget{pg::epsilon{30}, pg::delta{1e-5}};
    classifier net{exec, pg::xavier_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41}};
    while (trainer.within_budget()) trainer.step(data.records());
    BOOST_TEST(trainer.steps() == 10U);
    BOOST_TEST(trainer.accountant().steps() == events);
  };
  check(turns, 3);
  check(apart, 1);
}

BOOST_AUTO_TEST_CASE(what_does_not_go_together) {
  const clouds data{100};
  const clouds others{100, 7};
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::xavier_uniform{1}};
  const auto refused = [&](const auto& options, const char* says) {
    BOOST_CHECK_EXCEPTION(
        (pg::dp_sgd{exec, net, pg::cross_entropy{}, options}), std::invalid_argument,
        [&](const std::exception& error) { return std::string{error.what()}.find(says) != std::string::npos; });
  };
  auto options = usual(banded, turns);
  options.correlation.reset();
  refused(options, "correlation");
  const pg::banded_noise five{steps, {0.6, 0.5, 0.4, 0.3}};
  refused(usual(five, turns), "noise of 5 bands needs as many groups, and the sampler has 4");
  options = usual(banded, turns);
  options.statistic = pg::step_statistic{pg::noise_multiplier{20}, pg::bin_edges{{0.5}}};
  refused(options, "statistic");

  options = usual(banded, turns);
  options.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{3}};
  refused(options, "that change do not go with correlated noise");
  options = usual(banded, turns);
  options.noise.reset();
  options.schedules.steps = steps;
  options.schedules.noise = pg::schedule::exponential(1.1, 0.9, 1);
  refused(options, "that change do not go with correlated noise");

  // Every step would fail, behind its entry in the ledger.
  const pg::banded_noise wild{steps, {900, 900}};
  options = usual(wild, turns);
  refused(options, "too large for exact sums");

  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, usual(banded, turns)};
  trainer.step(data.records());
  BOOST_CHECK_THROW(trainer.step(others.records()), std::logic_error);
  BOOST_TEST(trainer.steps() == 1U);
  clouds bad = data;
  bad.classes[7] = 3;
  BOOST_CHECK_THROW(trainer.step(bad.records()), std::invalid_argument);
  trainer.step(data.records());
  BOOST_TEST(trainer.steps() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()
