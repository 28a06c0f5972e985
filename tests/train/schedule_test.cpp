// SPDX-License-Identifier: Apache-2.0
// tests/train/schedule_test.cpp - numbers that change from step to step: each step is the one of its numbers, the
// ledger has each, and the budget covers all before the first
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_schedule)

namespace {

using namespace fixture;

constexpr std::uint64_t steps = 12;
[[nodiscard]] double noise_at(std::uint64_t step) { return 1.5 * std::pow(0.9, static_cast<double>(step / 4)); }
[[nodiscard]] double clip_at(std::uint64_t step) { return 0.4 + 0.01 * static_cast<double>(step); }
[[nodiscard]] double sampling_at(std::uint64_t step) { return step < 6 ? 0.1 : 0.3; }
[[nodiscard]] double rate_at(std::uint64_t step) { return 0.25 / static_cast<double>(step + 1); }

[[nodiscard]] pg::dp_sgd_options scheduled_options() {
  pg::dp_sgd_options options;
  options.divisor = pg::expected_batch_size{60};
  options.max_batch = pg::max_batch{16};
  options.schedules.steps = steps;
  options.schedules.noise = pg::schedule::exponential(1.5, 0.9, 4);
  options.schedules.clip = pg::schedule{clip_at};
  options.schedules.sampling = pg::schedule{sampling_at};
  options.schedules.learning_rate = pg::schedule{rate_at};
  return options;
}
[[nodiscard]] pg::dp_sgd_options options_of_step(std::uint64_t step) {
  auto options = usual_options();
  options.noise = pg::noise_multiplier{noise_at(step)};
  options.clip = pg::l2_clip_norm{clip_at(step)};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{sampling_at(step)}};
  options.learning_rate = pg::learning_rate{rate_at(step)};
  return options;
}

struct run {
  pg::host exec{pg::threads{2}};
  classifier net{exec, pg::kaiming_uniform{8}};
  pg::dp_sgd<classifier, pg::cross_entropy, pg::seeded_generator> trainer;
  explicit run(const pg::dp_sgd_options& options, std::uint64_t given_out = 0)
      : trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41, given_out}} {}
};

/// What the first `count` steps cost, entered by hand.
[[nodiscard]] pg::privacy_accountant ledger_of(std::uint64_t count) {
  pg::privacy_accountant ledger;
  for (std::uint64_t step = 0; step < count; ++step) {
    ledger.record(
        pg::poisson_sampling{pg::sampling_probability{sampling_at(step)}}.event(pg::noise_multiplier{noise_at(step)}),
        1);
  }
  return ledger;
}

struct text_file {
  std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_schedule_" + std::to_string(::getpid()))).string();
  explicit text_file(const std::string& text) { std::ofstream{path} << text; }
  ~text_file() { std::filesystem::remove(path); }
};

template <class Function>
void says(const Function& function, const std::string& text) {
  try {
    function();
    BOOST_ERROR("no error: " + text);
  } catch (const std::exception& error) {
    BOOST_TEST(std::string{error.what()}.find(text) != std::string::npos, error.what());
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_step_is_the_one_of_its_numbers) {
  const clouds data{300};
  run scheduled{scheduled_options()};
  for (std::uint64_t step = 0; step < steps; ++step) {
    run one{options_of_step(step), 2 * step};
    std::copy(scheduled.net.parameters().begin(), scheduled.net.parameters().end(), one.net.parameters().begin());
    BOOST_TEST(scheduled.trainer.within_budget());
    scheduled.trainer.step(data.records());
    one.trainer.step(data.records());
    BOOST_TEST((parameters_of(scheduled.net) == parameters_of(one.net)));
    BOOST_TEST(scheduled.trainer.options().noise->value() == noise_at(std::min(step + 1, steps - 1)));
  }
}

// After every step, also of a run that stops there: the ledger is that of its steps, entry by entry.
BOOST_AUTO_TEST_CASE(the_ledger_has_the_steps_that_were_taken) {
  const clouds data{300};
  for (const bool has_budget : {false, true}) {
    auto options = scheduled_options();
    if (has_budget) options.budget = pg::privacy_budget{pg::epsilon{20}, pg::delta{1e-5}};
    run it{options};
    for (std::uint64_t step = 0; step < steps; ++step) {
      it.trainer.step(data.records());
      const auto expected = ledger_of(step + 1);
      std::size_t kinds = 0;
      for (const auto& each : it.trainer.accountant().accountant().ledger()) {
        if (each.count == 0) continue;  // declared, not taken
        ++kinds;
        std::uint64_t count = 0;
        for (const auto& other : expected.accountant().ledger()) count += other.event == each.event ? other.count : 0;
        BOOST_TEST(each.count == count);
      }
      BOOST_TEST(kinds == expected.accountant().ledger().size());
      if (step % 5 == 0 || step == steps - 1) {
        BOOST_TEST(it.trainer.epsilon(pg::delta{1e-5}) == expected.epsilon(pg::delta{1e-5}));
      }
    }
  }
}

// A budget of exactly what the whole costs allows it; one that lacks a thousandth, or one step, does not begin.
BOOST_AUTO_TEST_CASE(the_budget_covers_the_whole_schedule) {
  const clouds data{60};
  const double whole = ledger_of(steps).epsilon(pg::delta{1e-5});
  BOOST_TEST(ledger_of(steps - 1).epsilon(pg::delta{1e-5}) < 0.999 * whole);
  auto options = scheduled_options();
  options.budget = pg::privacy_budget{pg::epsilon{whole}, pg::delta{1e-5}};
  run it{options};
  for (std::uint64_t step = 0; step < steps; ++step) {
    BOOST_TEST(it.trainer.within_budget());
    it.trainer.step(data.records());
  }
  BOOST_TEST(it.trainer.epsilon(pg::delta{1e-5}) <= whole);
  BOOST_TEST(!it.trainer.within_budget());
  BOOST_CHECK_THROW(it.trainer.step(data.records()), pg::budget_exhausted);
  options.budget = pg::privacy_budget{pg::epsilon{0.999 * whole}, pg::delta{1e-5}};
  says([&] { run{options}; }, "the steps of the schedules cost more than the option budget allows");
}

// Without a budget, and with a filter, a schedule ends as well: there are no numbers of another step.
BOOST_AUTO_TEST_CASE(a_schedule_ends) {
  const clouds data{60};
  for (const bool is_filter : {false, true}) {
    auto options = scheduled_options();
    if (is_filter) {
      options.plan = pg::run_plan::on_the_way;
      options.budget = pg::privacy_budget{pg::epsilon{50}, pg::delta{1e-5}};
    }
    run it{options};
    for (std::uint64_t step = 0; step < steps; ++step) it.trainer.step(data.records());
    BOOST_TEST(!it.trainer.within_budget());
    says([&] { it.trainer.step(data.records()); }, "no step behind number 12");
    BOOST_TEST(it.trainer.steps() == steps);
  }
}

// A step that was paid and failed is over: those behind it are there as before.
BOOST_AUTO_TEST_CASE(a_step_that_fails_ends_no_run_of_a_budget) {
  const clouds data{120};
  auto options = scheduled_options();
  options.budget = pg::privacy_budget{pg::epsilon{200}, pg::delta{1e-5}};
  options.schedules.noise = pg::schedule::exponential(1.5, 0.95);  // each step has an event of its own
  pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{8}};
  pg::dp_sgd trainer{exec, net, fixture::failing{}, options, pg::seeded_generator{41}};
  std::uint64_t taken = 0;
  for (; trainer.within_budget(); ++taken) {
    fixture::failing::is_told = taken == 3;
    if (taken == 3) {
      BOOST_CHECK_THROW(trainer.step(data.records()), std::domain_error);
    } else {
      trainer.step(data.records());
    }
  }
  BOOST_TEST(taken == steps);
}

// What a function answers is asked once a step, before the first: what it answers later is of no account.
BOOST_AUTO_TEST_CASE(a_function_is_asked_beforehand) {
  const clouds data{60};
  auto options = usual_options();
  options.noise.reset();
  options.schedules.steps = 3;
  int asked = 0;
  options.schedules.noise = pg::schedule{[&](std::uint64_t) { return ++asked <= 3 ? 2.0 : 0.1; }};
  run it{options};
  BOOST_TEST(asked == 3);
  for (int step = 0; step < 3; ++step) it.trainer.step(data.records());
  BOOST_TEST(asked == 3);
  BOOST_TEST_REQUIRE(it.trainer.accountant().accountant().ledger().size() == 1U);
  BOOST_TEST(it.trainer.accountant().accountant().ledger()[0].event.noise_multiplier == 2.0);
}

BOOST_AUTO_TEST_CASE(exponential_and_by_steps) {
  const auto smooth = pg::schedule::exponential(2, 0.5);
  const auto stairs = pg::schedule::exponential(2, 0.5, 3);
  for (std::uint64_t step = 0; step < 10; ++step) {
    BOOST_TEST(smooth(step) == 2 * std::pow(0.5, static_cast<double>(step)));
    BOOST_TEST(stairs(step) == 2 * std::pow(0.5, static_cast<double>(step / 3)));
  }
  BOOST_CHECK_THROW(static_cast<void>(pg::schedule::exponential(1, 1, 0)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(from_a_file) {
  const text_file file{"1.5\n1.25 \r\n1e0"};
  const auto schedule = pg::schedule::from_file(file.path);
  BOOST_TEST(schedule(0) == 1.5);
  BOOST_TEST(schedule(1) == 1.25);
  BOOST_TEST(schedule(2) == 1.0);
  says([&] { static_cast<void>(schedule(3)); }, "has numbers of 3 steps, and step 3 has none");
  for (const char* const text : {"1\ntwo\n", "1\n\n3\n", "1\n2 3\n", "1\nnan\n"}) {
    const text_file bad{text};
    says([&] { static_cast<void>(pg::schedule::from_file(bad.path)); }, "line 2 of " + bad.path + " is not one number");
  }
  const std::string zeros(200, '0');  // a line of any length is one line
  const text_file long_line{"1." + zeros + "\n2\n"};
  BOOST_TEST(pg::schedule::from_file(long_line.path)(0) == 1.0);
  BOOST_TEST(pg::schedule::from_file(long_line.path)(1) == 2.0);
  for (const std::string& text : {std::string{"1\n2\0 3\n", 7}, std::string{"1\n1e-400\n"}, "1\n1" + zeros + zeros}) {
    const text_file bad{text};
    says([&] { static_cast<void>(pg::schedule::from_file(bad.path)); }, "line 2 of " + bad.path + " is not one number");
  }
  const text_file negative{"1\n-1\n"};
  auto options = scheduled_options();
  options.schedules.steps = 2;
  options.schedules.noise = pg::schedule::from_file(negative.path);
  says([&] { run{options}; }, "of step 1 in a schedule from " + negative.path);
  says([] { static_cast<void>(pg::schedule::from_file("/nowhere/at/all")); }, "cannot open /nowhere/at/all");
}

BOOST_AUTO_TEST_CASE(options_that_exclude_each_other) {
  const auto refused = [](const auto& change, const std::string& text) {
    auto options = scheduled_options();
    change(options);
    says([&] { run{options}; }, text);
  };
  refused([](auto& o) { o.schedules.steps = 0; }, "the option schedules.steps is not set");
  refused(
      [](auto& o) {
        o = usual_options();
        o.schedules.steps = 3;
      },
      "the option schedules.steps is set, and there is no schedule");
  refused([](auto& o) { o.schedules.steps = std::uint64_t{1} << 40U; }, "schedules.steps must be at most 10000000");
  refused([](auto& o) { o.noise = pg::noise_multiplier{1}; }, "the option noise and a schedule of it");
  refused([](auto& o) { o.clip = pg::l2_clip_norm{1}; }, "the option clip and a schedule of it");
  refused([](auto& o) { o.learning_rate = pg::learning_rate{1}; }, "the option learning_rate and a schedule of it");
  refused([](auto& o) { o.sampling = pg::poisson_sampling{pg::sampling_probability{1}}; },
          "the option sampling and a schedule of it");
  refused([](auto& o) { o.clipping = pg::clipping_kind::per_group; }, "not for clipping per group");
  refused([](auto& o) { o.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{5}}; },
          "adaptive_clip and a schedule of clip exclude each other");
  // Every step would fail, or train nothing, behind its entry in the ledger.
  refused(
      [](auto& o) {
        o.noise = pg::noise_multiplier{1e10};
        o.schedules.noise.reset();
        o.schedules.clip.reset();
        o.clip = pg::l2_clip_norm{1};
      },
      "must be in [2^4, 2^46]");
  refused([](auto& o) { o.divisor = pg::expected_batch_size{1e300}; }, "scalar takes divisor for infinity");
  refused([](auto& o) { o.divisor = pg::expected_batch_size{1e-60}; }, "scalar takes divisor for 0");
  refused(
      [](auto& o) {
        o.learning_rate = pg::learning_rate{1e-60};
        o.schedules.learning_rate.reset();
      },
      "scalar takes learning_rate for 0");
  refused(
      [](auto& o) { o.schedules.learning_rate = pg::schedule{[](std::uint64_t i) { return i == 11 ? 1e-60 : 1.0; }}; },
      "scalar takes learning_rate for 0, got 1e-60, of step 11 in a schedule");
  refused(
      [](auto& o) {
        o.optimizer = pg::optimizer_kind::adam;
        o.adam.stability = HUGE_VAL;
      },
      "scalar takes adam's stability for infinity");
  for (const double bad : {1e-50, 1e50}) {
    refused(
        [&](auto& o) {
          o.optimizer = pg::optimizer_kind::adam;
          o.adam.noise_floor = bad;
        },
        bad < 1 ? "scalar takes adam's noise_floor for 0, got 1e-50"
                : "scalar takes adam's noise_floor for infinity, got 1e+50");
  }
  refused([](auto& o) { o.weight_decay = 1e300; }, "takes 1 - learning_rate * weight_decay for infinity");
  refused(
      [](auto& o) {
        o.optimizer = pg::optimizer_kind::adam;
        o.adam.weight_decay = 1e300;
      },
      "takes 1 - learning_rate * weight_decay for infinity");
  // Numbers of a later step are looked at before the first one.
  refused([](auto& o) { o.schedules.noise = pg::schedule{[](std::uint64_t i) { return i == 11 ? -1.0 : 1.0; }}; },
          "noise_multiplier must be finite and not negative");
  refused([](auto& o) { o.schedules.noise = pg::schedule{[](std::uint64_t i) { return i == 11 ? 1e-9 : 1.0; }}; },
          "must be in [2^4, 2^46]");
  refused([](auto& o) { o.schedules.clip = pg::schedule{[](std::uint64_t i) { return i == 11 ? 1e39 : 1.0; }}; },
          "does not fit the network's scalar");
  refused([](auto& o) { o.schedules.sampling = pg::schedule{[](std::uint64_t i) { return i == 11 ? 1.5 : 1.0; }}; },
          "sampling_probability must be in [0, 1]");
}

BOOST_AUTO_TEST_SUITE_END()
