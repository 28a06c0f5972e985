// SPDX-License-Identifier: Apache-2.0
// tests/train/adaptive_clip_test.cpp - a clip norm that follows a quantile: its formula, its noise, and what it refuses
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_adaptive_clip)

namespace {

using namespace fixture;

[[nodiscard]] pg::dp_sgd_options adaptive_options() {
  auto options = usual_options();
  options.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{5}, .quantile = 0.5, .rate = 0.3};
  return options;
}

struct run {
  pg::host exec;
  classifier net;
  pg::dp_sgd<classifier, pg::cross_entropy, pg::seeded_generator> trainer;
  explicit run(const pg::dp_sgd_options& options, std::uint64_t steps = 0, std::size_t threads = 1)
      : exec{pg::threads{threads}},
        net{exec, pg::kaiming_uniform{8}},
        trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41, steps}} {}
};

}  // namespace

// Each step is that of a trainer whose clip norm is fixed to this step's, with a histogram by that one edge; and the
// next norm follows from the two counts that were released.
BOOST_AUTO_TEST_CASE(each_step_is_one_of_a_fixed_norm) {
  const clouds data{300};
  run adaptive{adaptive_options()};
  double clip = 0.5;
  std::uint64_t generator_steps = 0;
  std::vector<double> clips;
  for (int step = 0; step < 12; ++step) {
    BOOST_TEST(adaptive.trainer.options().clip->value() == clip);
    clips.push_back(clip);
    auto options = usual_options();
    options.clip = pg::l2_clip_norm{clip};
    options.statistic = pg::step_statistic{pg::noise_multiplier{5}, pg::bin_edges{{clip}}};
    run fixed{options, generator_steps};
    std::copy(adaptive.net.parameters().begin(), adaptive.net.parameters().end(), fixed.net.parameters().begin());
    fixed.trainer.step(data.records());
    adaptive.trainer.step(data.records());
    generator_steps += 3;  // draw, noise, counts
    BOOST_TEST((parameters_of(fixed.net) == parameters_of(adaptive.net)));
    const auto counts = adaptive.trainer.last_statistic().counts();
    BOOST_TEST(counts.size() == 2U);
    BOOST_TEST(counts[0] == fixed.trainer.last_statistic().counts()[0]);
    BOOST_TEST(counts[1] == fixed.trainer.last_statistic().counts()[1]);
    const double share = std::clamp(0.5 + (counts[0] - counts[1]) / 120, 0.0, 1.0);
    clip *= std::exp(-0.3 * (share - 0.5));
  }
  BOOST_TEST((std::adjacent_find(clips.begin(), clips.end()) == clips.end()));
}

// What a step costs is one event, with the noise of gradient and counts side by side: of a smaller multiplier than the
// gradient's alone, and the same in every step whatever the norms are.
BOOST_AUTO_TEST_CASE(the_counts_are_in_the_steps_event) {
  const clouds data{300};
  run it{adaptive_options()};
  for (int step = 0; step < 5; ++step) it.trainer.step(data.records());
  const auto ledger = it.trainer.accountant().accountant().ledger();
  BOOST_TEST_REQUIRE(ledger.size() == 1U);
  BOOST_TEST(ledger[0].count == 5U);
  const double joint = 1 / std::sqrt(1 / (1.1 * 1.1) + 1 / (5.0 * 5.0));
  BOOST_TEST(ledger[0].event.noise_multiplier < 1.1);
  BOOST_TEST(std::abs(ledger[0].event.noise_multiplier / joint - 1) < 1e-14);
  BOOST_TEST(ledger[0].event.noise_multiplier <= joint);
}

// With hardly any noise it ends at the quantile of the norms of a network that hardly moves.
BOOST_AUTO_TEST_CASE(it_finds_the_quantile) {
  const clouds data{400};
  for (const double quantile : {0.2, 0.8}) {
    auto options = adaptive_options();
    options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
    options.divisor = pg::expected_batch_size{400.0};
    options.learning_rate = pg::learning_rate{1e-12};
    for (const double first : {0.003, 200.0}) {
      options.clip = pg::l2_clip_norm{first};
      options.adaptive_clip->quantile = quantile;
      run it{options};
      for (int step = 0; step < 150; ++step) it.trainer.step(data.records());
      const pg::batch<classifier, pg::cross_entropy> all{data.inputs, data.classes};
      pg::tape<classifier> tape{it.exec, pg::max_batch{400}};
      auto norms = pg::unprotected::evaluate(
          it.exec, pg::l2_norms(pg::per_sample_gradients(it.net, pg::cross_entropy{}, all, tape)));
      const double clip = it.trainer.options().clip->value();
      const auto below = std::count_if(norms.begin(), norms.end(), [&](double norm) { return norm < clip; });
      BOOST_TEST_MESSAGE("quantile " << quantile << " from " << first << ": C = " << clip << ", " << below << " below");
      // Counts of deviation 5 move the share by 5 / (400 sqrt 2), and C by a rate of 0.3 of that: three per cent cover
      // what is left of it many times.
      BOOST_TEST(std::abs(static_cast<double>(below) / 400 - quantile) < 0.03);
    }
  }
}

BOOST_AUTO_TEST_CASE(it_stays_in_its_range) {
  const clouds data{50};
  auto options = adaptive_options();
  options.clip = pg::l2_clip_norm{1e-9};
  options.adaptive_clip->rate = 1000;
  run it{options};
  for (int step = 0; step < 3; ++step) it.trainer.step(data.records());
  BOOST_TEST(it.trainer.options().clip->value() == 1e-9 * 0x1p20);
}

BOOST_AUTO_TEST_CASE(threads_change_nothing) {
  const clouds data{300};
  std::vector<float> one;
  for (const std::size_t threads : {1U, 3U}) {
    run it{adaptive_options(), 0, threads};
    for (int step = 0; step < 6; ++step) it.trainer.step(data.records());
    if (one.empty()) one = parameters_of(it.net);
    BOOST_TEST((parameters_of(it.net) == one));
  }
}

BOOST_AUTO_TEST_CASE(options_that_exclude_each_other) {
  const auto says = [](const auto& change, const std::string& text) {
    auto options = adaptive_options();
    change(options);
    BOOST_CHECK_EXCEPTION((run{options}), std::invalid_argument, [&](const std::exception& error) {
      return std::string{error.what()}.find(text) != std::string::npos;
    });
  };
  for (const auto kind :
       {pg::clipping_kind::per_layer, pg::clipping_kind::automatic, pg::clipping_kind::per_sample_adaptive}) {
    says([=](auto& o) { o.clipping = kind; }, "adaptive_clip is for clipping_kind::flat only");
  }
  says(
      [](auto& o) {
        o.statistic = pg::step_statistic{pg::noise_multiplier{1}, pg::bin_edges{{1}}};
      },
      "statistic and adaptive_clip exclude each other");
  says([](auto& o) { o.clip.reset(); }, "clip is not set");
  says([](auto& o) { o.adaptive_clip->quantile = 1.5; }, "share must be in [0, 1]");
  says([](auto& o) { o.adaptive_clip->rate = 0; }, "rate must be finite and above 0");
  auto silent = adaptive_options();
  silent.adaptive_clip->noise = pg::noise_multiplier{0};
  const pg::host exec;
  classifier net{exec, pg::kaiming_uniform{8}};
  BOOST_CHECK_EXCEPTION(
      (pg::dp_sgd{exec, net, pg::cross_entropy{}, silent}), std::invalid_argument, [](const std::exception& error) {
        return std::string{error.what()}.find("statistic, or adaptive_clip, is 0") != std::string::npos;
      });
  says([](auto& o) { o.clip = pg::l2_clip_norm{1e-26}; }, "must be in [1e-24, 1e300]");
  says([](auto& o) { o.clip = pg::l2_clip_norm{1e35}; }, "does not fit the network's scalar");
}

BOOST_AUTO_TEST_SUITE_END()
