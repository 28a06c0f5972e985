// SPDX-License-Identifier: Apache-2.0
// tests/testing/audit_test.cpp - audits of the trainer prove no more than it claims, and those of broken ones do
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/audit.hpp>
#include <pergrad/testing/samples.hpp>

BOOST_AUTO_TEST_SUITE(audits)

namespace {

namespace pg = pergrad;
using namespace pg::testing;

const pg::delta small{1e-5};

/// What a ledger says of so many steps of a claim.
pg::rdp_accountant ledger_of(const step_claim& claim, std::size_t steps) {
  pg::rdp_accountant accountant;
  accountant.record(
      pg::poisson_sampling{pg::sampling_probability{claim.sampling}}.event(pg::noise_multiplier{claim.noise}), steps);
  return accountant;
}

/// Trainers that do less than they claim.
struct less_noise {
  double share;
  auto operator()(const pg::host& executor, auto& network, step_claim claim) const {
    claim.noise *= share;
    return audited_dp_sgd<>{}(executor, network, claim);
  }
  [[nodiscard]] static bool is_memoryless() { return true; }
};
struct more_often {
  auto operator()(const pg::host& executor, auto& network, step_claim claim) const {
    claim.sampling = 1;
    return audited_dp_sgd<>{}(executor, network, claim);
  }
  [[nodiscard]] static bool is_memoryless() { return true; }
};
/// A loop by hand that forgets something.
enum class forgotten { clip, fresh_noise, noise_of_elements, constant_noise, not_finite };
struct by_hand {
  forgotten what;
  auto operator()(const pg::host& /*executor*/, auto& /*network*/, step_claim claim) const {
    return [claim, which = what, random = std::mt19937_64{claim.seed}](const auto& records) mutable {
      std::normal_distribution<double> normal;
      std::uniform_real_distribution<double> uniform;
      const std::size_t width = records.input_shape().size();
      std::vector<double> sum(width);
      double bound = claim.clip;
      for (std::size_t i = 0; i < records.size(); ++i) {
        if (!(uniform(random) < claim.sampling)) continue;
        const auto* const gradient = records.input(i);
        double square = 0;
        for (std::size_t k = 0; k < width; ++k) square += std::pow(static_cast<double>(gradient[k]), 2);
        const double norm = std::sqrt(square);
        if (which == forgotten::constant_noise) bound = std::max(bound, norm);
        const double factor = which == forgotten::clip ? 1 : std::min(1.0, bound / norm);
        for (std::size_t k = 0; k < width; ++k) sum[k] += factor * static_cast<double>(gradient[k]);
      }
      if (which == forgotten::not_finite && sum.front() != 0) sum.front() = std::nan("");
      std::mt19937_64 again{claim.seed};
      const double shared = std::normal_distribution<double>{}(random);
      for (double& value : sum) {
        const double fresh = which == forgotten::fresh_noise ? normal(again) : normal(random);
        value += claim.noise * bound * (which == forgotten::noise_of_elements ? shared : fresh);
      }
      return sum;
    };
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_correct_trainer_in_a_minute) {
  const auto begin = std::chrono::steady_clock::now();
  const pg::host exec{pg::threads{1}};
  // Every record in every step: the curve is known, and the bound comes near.
  const step_claim all{};
  const auto tight = audit_gradients(exec, audited_dp_sgd<>{}, all, {.runs = 6000});
  const gaussian_trade_off truth{1};
  const double found = gaussian_trade_off{tight.gaussian_mu()}.epsilon(small);
  BOOST_TEST_MESSAGE("one step, sigma 1: mu " << tight.gaussian_mu() << ", epsilon " << found << " by the curve and "
                                              << tight.epsilon(small).second << " without, of " << truth.epsilon(small)
                                              << ", ledger " << ledger_of(all, 1).epsilon(small));
  BOOST_TEST(found > 0.75 * truth.epsilon(small));
  BOOST_TEST(found <= truth.epsilon(small));
  BOOST_TEST(tight.contradicts(truth) == nullptr);
  BOOST_TEST(tight.contradicts(certified_trade_off{ledger_of(all, 1)}) == nullptr);
  BOOST_TEST(tight.contradicts(gaussian_trade_off{0.85}) != nullptr);  // the bound is no empty one

  // Sampled steps.
  const step_claim some{.noise = 0.6, .sampling = 0.2};
  const auto sampled = audit_gradients(exec, audited_dp_sgd<>{}, some, {.runs = 4000, .steps = 10});
  const auto ledger = ledger_of(some, 10);
  BOOST_TEST_MESSAGE("ten steps, q 0.2, sigma 0.6: epsilon " << sampled.epsilon(small).second << " of "
                                                             << ledger.epsilon(small));
  BOOST_TEST(sampled.epsilon(small).second <= ledger.epsilon(small));
  BOOST_TEST(sampled.epsilon(small).second > 0.2 * ledger.epsilon(small));
  BOOST_TEST(sampled.contradicts(certified_trade_off{ledger}) == nullptr);

  // One run.
  const one_run run =
      audit_gradients_in_one_run(exec, audited_dp_sgd<>{}, {.noise = 2, .divisor = 512}, 77, {.steps = 4});
  BOOST_TEST_MESSAGE("one run of four steps, sigma 2: epsilon " << run.epsilon(small) << ", by the curve "
                                                                << gaussian_trade_off{run.gaussian_mu()}.epsilon(small)
                                                                << ", of " << truth.epsilon(small));
  BOOST_TEST(run.epsilon(small) <= truth.epsilon(small));
  BOOST_TEST(run.epsilon(small) > 0.2 * truth.epsilon(small));
  BOOST_TEST(!run.contradicts(truth));
  BOOST_TEST(run.contradicts(gaussian_trade_off{0.5}));
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  BOOST_TEST_MESSAGE("all three: " << passed.count() << " s");
  BOOST_TEST(passed.count() < 60);
}

// Every weakness is found against the curve that the ledger proves, and by the score that is meant for it.
BOOST_AUTO_TEST_CASE(planted_weaknesses_are_found) {
  const pg::host exec{pg::threads{1}};
  const step_claim all{};
  const step_claim some{.noise = 1, .sampling = 0.2};
  const std::size_t runs = std::getenv("PERGRAD_LONG_TESTS") == nullptr ? 1500 : 3000;
  const auto expect = [&](const char* what, const char* score, const auto& make, const step_claim& claim,
                          std::size_t steps) {
    const certified_trade_off proven{ledger_of(claim, steps)};
    const auto seen = audit_gradients(exec, make, claim, {.runs = runs, .steps = steps});
    const char* const by = seen.contradicts(proven);
    BOOST_TEST_MESSAGE(what << ": epsilon " << seen.epsilon(small).second << ", claimed "
                            << ledger_of(claim, steps).epsilon(small) << ", found by "
                            << (by == nullptr ? "none" : by));
    BOOST_TEST(by != nullptr, what);
    bool by_it = false;
    for (const auto& each : seen.scores()) {
      by_it = by_it || (std::string{each.name} == score && each.worlds.contradicts(proven));
    }
    BOOST_TEST(by_it, what << " is not seen by " << score);
  };
  expect("half the noise", "likelihood", less_noise{0.5}, all, 1);
  expect("0.6 of the noise", "likelihood", less_noise{0.6}, all, 1);
  expect("everybody in every step", "likelihood", more_often{}, some, 10);
  expect("no clipping", "likelihood", by_hand{forgotten::clip}, some, 10);
  expect("noise that repeats", "steps apart", by_hand{forgotten::fresh_noise}, some, 10);
  expect("noise that elements share", "elements apart", by_hand{forgotten::noise_of_elements}, all, 1);
  expect("a clip norm that is the batch's largest", "size of noise", by_hand{forgotten::constant_noise}, all, 1);
  expect("values that are not finite", "likelihood", by_hand{forgotten::not_finite}, all, 1);

  // Half the noise against its own curve, in one run, too.
  const one_run run = audit_gradients_in_one_run(exec, less_noise{0.5}, {.divisor = 512}, 5);
  BOOST_TEST(run.contradicts(gaussian_trade_off{1}));
}

// A trainer that carries something from step to step is audited run by run: else a run would show the sum of all
// before.
BOOST_AUTO_TEST_CASE(momentum_is_no_leak) {
  audited_dp_sgd<> with_momentum;
  with_momentum.options.momentum = 0.9;
  const step_claim quiet{.noise = 2};
  const auto seen = audit_gradients(pg::host{pg::threads{1}}, with_momentum, quiet, {.runs = 600});
  BOOST_TEST(!with_momentum.is_memoryless());
  BOOST_TEST(seen.contradicts(gaussian_trade_off{0.5}) == nullptr);
  BOOST_TEST(seen.gaussian_mu() <= 0.5);
}

// Without the canary in either world there is nothing to see: audits may say so in the stated part of all cases.
BOOST_AUTO_TEST_CASE(null_runs) {
  const pg::host exec{pg::threads{1}};
  const auto hides_the_canary = [](const auto& executor, auto& network, const step_claim& claim) {
    auto step = audited_dp_sgd<>{}(executor, network, claim);
    return [step](const auto& records) {
      using values = std::remove_cvref_t<decltype(records)>;
      const std::size_t width = records.input_shape().size();  // all but the last one, if there is one too many
      const std::size_t count = std::min<std::size_t>(records.size(), 20);
      const std::span<const float> inputs{records.input(0), count * width};
      return step(values{inputs, records.targets().first(count), records.input_shape()});
    };
  };
  std::size_t above = 0;
  const std::size_t audits = std::getenv("PERGRAD_LONG_TESTS") == nullptr ? 20 : 1000;
  for (std::size_t audit = 0; audit < audits; ++audit) {
    const auto seen =
        audit_gradients(exec, hides_the_canary, {.seed = 100 + audit}, {.runs = 200, .steps = 2, .confidence = 0.8});
    above += seen.epsilon(small).second > 0 ? 1U : 0U;
  }
  BOOST_TEST_MESSAGE("null runs: " << above << " of " << audits << " audits prove something, 20 % may");
  BOOST_TEST(binomial_tail(above, audits, 0.2) > 1e-6);
}

// Claims at which the trainer leaks all that it may.
BOOST_AUTO_TEST_CASE(many_audits_of_a_correct_trainer) {
  const pg::host exec{pg::threads{1}};
  std::size_t above = 0;
  std::size_t above_in_one = 0;
  const std::size_t audits = std::getenv("PERGRAD_LONG_TESTS") == nullptr ? 20 : 1000;
  for (std::size_t audit = 0; audit < audits; ++audit) {
    const auto seen =
        audit_gradients(exec, audited_dp_sgd<>{}, {.seed = 1000 + audit}, {.runs = 400, .confidence = 0.8});
    above += seen.contradicts(gaussian_trade_off{1}) != nullptr ? 1U : 0U;
    const auto run = audit_gradients_in_one_run(exec, audited_dp_sgd<>{}, {.divisor = 512, .seed = 2000 + audit},
                                                3000 + audit, {.confidence = 0.8});
    above_in_one += run.contradicts(gaussian_trade_off{1}) ? 1U : 0U;
  }
  BOOST_TEST_MESSAGE("correct trainer: " << above << " and, in one run, " << above_in_one << " of " << audits
                                         << " audits contradict it, 20 % may");
  BOOST_TEST(binomial_tail(above, audits, 0.2) > 1e-6);
  BOOST_TEST(binomial_tail(above_in_one, audits, 0.2) > 1e-6);
}

BOOST_AUTO_TEST_CASE(canaries_that_are_records) {
  using net = pg::network<pg::shape{60}, pg::linear<32>, pg::tanh, pg::linear<4>>;
  using loss = pg::cross_entropy;
  const pg::host exec{pg::threads{1}};
  const auto records = draw_samples<net, loss>(1, 100);
  const auto canaries = draw_samples<net, loss>(2, 400);
  const auto options = [](double noise) {
    pg::dp_sgd_options chosen;
    chosen.clip = pg::l2_clip_norm{1};
    chosen.noise = pg::noise_multiplier{noise};
    chosen.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
    chosen.divisor = pg::expected_batch_size{300};
    chosen.learning_rate = pg::learning_rate{5};
    return chosen;
  };
  const auto audited = [&](double noise, std::size_t steps) {
    net model{exec, pg::kaiming_uniform{3}};
    return audit_inputs_in_one_run<loss>(
        exec, model, records, canaries,
        [&](net& network, const auto& data) {
          pg::dp_sgd trainer{exec, network, loss{}, options(noise), pg::seeded_generator{4}};
          for (std::size_t t = 0; t < steps; ++t) trainer.step(data);
        },
        5);
  };
  const gaussian_trade_off claim{0.5};
  const one_run kept = audited(28.3, 200);  // mu = 0.5
  BOOST_TEST_MESSAGE("inputs, mu 0.5: epsilon " << kept.epsilon(small) << " of " << claim.epsilon(small));
  BOOST_TEST(!kept.contradicts(claim));
  BOOST_TEST(kept.epsilon(small) <= claim.epsilon(small));
  const one_run broken = audited(0.02, 200);  // the claim is still mu = 0.5
  BOOST_TEST_MESSAGE("inputs, noise forgotten: epsilon " << broken.epsilon(small));
  BOOST_TEST(broken.contradicts(claim));
  BOOST_CHECK_THROW(static_cast<void>(audit_inputs_in_one_run<loss>(
                        exec, *std::make_unique<net>(exec, pg::zeros{}), records, draw_samples<net, loss>(2, 0),
                        [](auto&, const auto&) {}, 5)),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(audits_that_cannot_be) {
  const pg::host exec{pg::threads{1}};
  BOOST_CHECK_THROW(static_cast<void>(audit_gradients(exec, audited_dp_sgd<>{}, {.noise = 0})), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(audit_gradients(exec, audited_dp_sgd<>{}, {}, {.runs = 3})),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(audit_gradients_in_one_run(exec, audited_dp_sgd<>{}, {}, 1, {.steps = 0})),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
