// SPDX-License-Identifier: Apache-2.0
// tests/certify/training_test.cpp - sums, noise and trainers that take a proof in the place of clipping
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/testing/audit/two_worlds.hpp>

#include "kept_data_set.hpp"

BOOST_AUTO_TEST_SUITE(certify_training)

namespace {

namespace pg = pergrad;

using loss = pg::cross_entropy;
using net_type = pg::network<pg::shape{1, 8, 8}, pg::into_ball<4.0>, pg::conv2d<4, 3>, pg::tanh, pg::flatten,
                             pg::linear<16>, pg::tanh, pg::linear<3>>;
using dense = pg::network<pg::shape{6}, pg::into_ball<10.0>, pg::linear<2>>;

/// Records without any sense, some of them spoilt: too long, infinite, not a number.
template <class Network>
struct noise_records {
  std::vector<float> inputs;
  std::vector<std::int32_t> classes;
  explicit noise_records(std::size_t count) : inputs(count * Network::input_shape.size()), classes(count) {
    std::mt19937 random{9};
    for (float& each : inputs) each = std::normal_distribution<float>{}(random);
    for (std::size_t i = 0; i < count; ++i) {
      classes[i] = static_cast<std::int32_t>(i % Network::output_shape.size());
      float& first = inputs[i * Network::input_shape.size()];
      if (i % 7 == 1) first = 1e30F;
      if (i % 7 == 2) first = std::numeric_limits<float>::infinity();
      if (i % 7 == 3) first = std::nanf("");
    }
  }
  [[nodiscard]] const pg::dataset<float, std::int32_t>& records() const {
    return data_set_.of(inputs, classes, Network::input_shape);
  }

 private:
  kept_data_set<float> data_set_;
};

pg::dp_sgd_options usual_options() {
  pg::dp_sgd_options options;
  options.clipping = pg::clipping_kind::certified;
  options.certified = pg::certified_training_of<net_type>(loss{}, pg::l2_clip_norm{40.0});
  options.noise = pg::noise_multiplier{1.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.25}};
  options.divisor = pg::expected_batch_size{10};
  options.learning_rate = pg::learning_rate{0.5};
  options.max_batch = pg::max_batch{16};
  return options;
}

double standard_deviation(std::span<const float> values) {
  double sum = 0;
  for (const float each : values) sum += static_cast<double>(each) * static_cast<double>(each);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_sum_without_norms_is_the_ordinary_one) {
  const pg::host exec{pg::threads{2}};
  const noise_records<net_type> data{40};
  const auto records = data.records();
  net_type net{exec, pg::kaiming_uniform{3}};
  const pg::certified_bound proof{net, loss{}};
  BOOST_TEST(proof.bound().value() >= pg::certify(net, loss{}).bound);
  std::vector<std::uint32_t> drawn(32);
  for (std::uint32_t i = 0; i < 32; ++i) drawn[i] = i;
  const pg::batch<net_type, loss> batch{records, std::span<const std::uint32_t>{drawn}};
  pg::tape<net_type> tape{exec, pg::max_batch{32}};
  const auto g = per_sample_gradients(net, loss{}, batch, tape);
  const auto sum_of = sum(unclipped(g, proof));
  BOOST_TEST(sum_of.sensitivity() == proof.bound().value());
  const auto proven = pg::unprotected::evaluate(exec, sum_of);
  const auto plain = pg::unprotected::evaluate(exec, sum(g));
  const auto clipped = pg::unprotected::evaluate(exec, sum(clip(g, proof.bound())));  // nothing is longer than K
  double most = 0;
  for (const float each : plain) most = std::max(most, std::fabs(static_cast<double>(each)));
  BOOST_TEST(most > 0.1);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    BOOST_REQUIRE_SMALL(static_cast<double>(proven[i] - plain[i]), 1e-5 * most);
    BOOST_REQUIRE_SMALL(static_cast<double>(proven[i] - clipped[i]), 1e-5 * most);
  }
}

BOOST_AUTO_TEST_CASE(a_proof_is_of_these_weights) {
  const pg::host exec{pg::threads{1}};
  const noise_records<dense> data{4};
  const auto records = data.records();
  dense net{exec, pg::kaiming_uniform{3}};
  const dense other = net.clone();
  const std::vector<std::uint32_t> drawn{0, 1};
  const pg::batch<dense, loss> batch{records, std::span<const std::uint32_t>{drawn}};
  pg::tape<dense> tape{exec, pg::max_batch{2}};
  const auto g = per_sample_gradients(net, loss{}, batch, tape);
  const pg::certified_bound proof{net, loss{}};
  const pg::certified_bound of_other{other, loss{}};
  BOOST_CHECK_NO_THROW(static_cast<void>(unclipped(g, proof)));
  BOOST_CHECK_NO_THROW(static_cast<void>(unclipped(g, proof, pg::l2_clip_norm{1e6})));
  BOOST_CHECK_THROW(static_cast<void>(unclipped(g, proof, pg::l2_clip_norm{1.0})), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(unclipped(g, of_other)), std::logic_error);
  const auto early = sum(unclipped(g, proof));
  BOOST_CHECK_NO_THROW(static_cast<void>(pg::unprotected::evaluate(exec, early)));
  net.parameters()[3] += 1e-3F;
  BOOST_CHECK_THROW(static_cast<void>(pg::unprotected::evaluate(exec, early)), std::logic_error);
  BOOST_CHECK_THROW(static_cast<void>(unclipped(g, proof)), std::logic_error);

  using open = pg::network<pg::shape{6}, pg::linear<2>>;
  const open unbounded{exec, pg::kaiming_uniform{3}};
  BOOST_CHECK_EXCEPTION((pg::certified_bound{unbounded, loss{}}), std::invalid_argument, [](const auto& error) {
    return std::string{error.what()}.find("into_ball") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(no_step_leaves_a_bound_above_its_limit) {
  const pg::host exec{pg::threads{2}};
  const noise_records<net_type> data{40};
  net_type net{exec, pg::kaiming_uniform{3}};
  BOOST_TEST(pg::certify(net, loss{}).bound > 40.0);
  auto options = usual_options();
  pg::dp_sgd trainer{exec, net, loss{}, options, pg::seeded_generator{5}};
  for (int step = 0; step < 8; ++step) {
    if (step == 4) net.parameters()[0] = 1000;  // weights are public: anybody may change them
    const std::vector<float> before{net.parameters().begin(), net.parameters().end()};
    trainer.step(data.records());
    const double bound = pg::certify(net, loss{}).bound;
    BOOST_TEST(bound <= 40.0);
    BOOST_TEST(bound > 1.0);
    BOOST_TEST(!std::equal(before.begin(), before.end(), net.parameters().begin()));
    BOOST_TEST(trainer.options().clip->value() >= bound);  // what the next step's noise is scaled by
    BOOST_TEST(trainer.options().clip->value() <= 40.0);
    for (const float each : net.parameters()) BOOST_REQUIRE(std::isfinite(each));
  }
}

BOOST_AUTO_TEST_CASE(limits_are_nearly_reached) {
  // Weights that are far too large end near the limit: projecting takes no more than it must.
  const pg::host exec{pg::threads{1}};
  net_type net{exec, pg::kaiming_uniform{3}};
  for (float& each : net.parameters()) each *= 100;
  const auto training = pg::certified_training_of<net_type>(loss{}, pg::l2_clip_norm{40.0});
  const double bound = pg::detail::proof_maker::prove(training, net);
  BOOST_TEST(bound <= 40.0);
  BOOST_TEST(bound >= 30.0);
  // And those that are small stay what they are.
  net_type small{exec, pg::kaiming_uniform{3}};
  for (float& each : small.parameters()) each *= 0.05F;
  const net_type before = small.clone();
  BOOST_TEST(pg::detail::proof_maker::prove(training, small) < 40.0);
  BOOST_TEST(std::equal(before.parameters().begin(), before.parameters().end(), small.parameters().begin()));
}

BOOST_AUTO_TEST_CASE(the_noise_of_a_step_is_that_of_its_proof) {
  const pg::host exec{pg::threads{1}};
  // Gradients of zeros but for biases, next to the noise of K.
  const std::vector<float> inputs(net_type::input_shape.size());
  const std::vector<std::int32_t> classes{0};
  const pg::dataset<float, std::int32_t> records{inputs, classes, net_type::input_shape};
  net_type net{exec, pg::kaiming_uniform{3}};
  pg::dp_sgd trainer{exec, net, loss{}, usual_options(), pg::seeded_generator{5}};
  for (int step = 0; step < 3; ++step) {
    trainer.step(records);
    const double next = trainer.options().clip->value();
    const double used =
        pg::detail::proof_maker::prove(pg::certified_training_of<net_type>(loss{}, pg::l2_clip_norm{40.0}), net);
    BOOST_TEST(next >= used);
    BOOST_TEST(next <= used * (1 + 1e-9));
    trainer.step(records);
    // 9,691 parameters: the deviation is known to 1 %.
    BOOST_TEST(std::fabs(standard_deviation(trainer.last_update().values()) / next - 1) < 0.05);
  }
}

BOOST_AUTO_TEST_CASE(a_clip_norm_is_no_larger_than_the_proof) {
  const pg::host exec{pg::threads{1}};
  const noise_records<dense> data{20};
  dense net{exec, pg::kaiming_uniform{3}};
  pg::dp_sgd_options options = usual_options();
  options.clipping = pg::clipping_kind::flat;
  options.certified = pg::certified_clip_of<dense>(loss{});
  options.clip = pg::l2_clip_norm{1000.0};
  pg::dp_sgd trainer{exec, net, loss{}, options, pg::seeded_generator{5}};
  trainer.step(data.records());
  const double most = pg::certified_bound{net, loss{}}.bound().value();
  BOOST_TEST(trainer.options().clip->value() == most);
  BOOST_TEST(std::fabs(most - std::sqrt(2.0 * 101)) < 0.01);

  dense again{exec, pg::kaiming_uniform{3}};
  options.clip = pg::l2_clip_norm{1.0};
  pg::dp_sgd tighter{exec, again, loss{}, options, pg::seeded_generator{5}};
  tighter.step(data.records());
  BOOST_TEST(tighter.options().clip->value() == 1.0);
}

BOOST_AUTO_TEST_CASE(a_loop_by_hand_takes_a_proof) {
  const pg::host exec{pg::threads{1}};
  const noise_records<dense> data{20};
  const auto records = data.records();
  dense net{exec, pg::kaiming_uniform{3}};
  const pg::l2_clip_norm bound{15.0};
  pg::private_options options;
  options.clip = bound;
  options.noise = pg::noise_multiplier{1.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.25}};
  options.divisor = pg::expected_batch_size{5};
  options.max_batch = pg::max_batch{4};
  pg::private_loop loop{exec, net, loss{}, options, pg::seeded_generator{5}};
  pg::unprotected::rehearsed_gradient<dense> update{exec};
  pg::sgd<dense> optimizer{pg::learning_rate{0.1}};
  for (int k = 0; k < 3; ++k) {
    const pg::certified_bound proof{net, loss{}};
    auto step = loop.begin(records);
    while (step.next()) pg::evaluate_into(exec, accumulate(step, sum(unclipped(step.gradients(), proof, bound))));
    optimizer.step(exec, net, std::move(step));
  }
  BOOST_TEST(loop.steps() == 3U);
}

BOOST_AUTO_TEST_CASE(options_that_do_not_go_together_are_refused) {
  const pg::host exec{pg::threads{1}};
  net_type net{exec, pg::kaiming_uniform{3}};
  const auto refused = [&](const pg::dp_sgd_options& options, const char* what) {
    BOOST_CHECK_EXCEPTION((pg::dp_sgd{exec, net, loss{}, options, pg::seeded_generator{5}}), std::invalid_argument,
                          [&](const auto& error) { return std::string{error.what()}.find(what) != std::string::npos; });
  };
  auto options = usual_options();
  options.certified = {};
  refused(options, "option certified is not set");
  options = usual_options();
  options.clip = pg::l2_clip_norm{1.0};
  refused(options, "option clip is not for certified");
  options = usual_options();
  options.certified = pg::certified_clip_of<net_type>(loss{});
  refused(options, "needs a limit");
  options = usual_options();
  options.certified = pg::certified_training_of<dense>(loss{}, pg::l2_clip_norm{40.0});
  refused(options, "another network");
  options = usual_options();
  options.clipping = pg::clipping_kind::per_layer;
  refused(options, "clipping_kind::certified and");
  options = usual_options();
  options.clipping = pg::clipping_kind::automatic;
  refused(options, "clipping_kind::certified and");
  options = usual_options();
  options.schedules.steps = 4;
  options.schedules.clip = pg::schedule{[](std::uint64_t /*step*/) { return 1.0; }};
  refused(options, "excludes adaptive_clip, individual and a schedule of clip");
  options = usual_options();
  options.individual = pg::individual_accounting{};
  refused(options, "excludes adaptive_clip, individual and a schedule of clip");
  options = usual_options();
  options.clipping = pg::clipping_kind::flat;
  options.clip = pg::l2_clip_norm{1.0};
  options.certified = pg::certified_clip_of<net_type>(loss{});
  options.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{1.0}};
  refused(options, "excludes adaptive_clip, individual and a schedule of clip");
  const std::vector<std::uint32_t> owners(40);
  pg::dp_options<pg::of_owners<pg::poisson_sampling>> of_owners;
  static_cast<pg::training_choices&>(of_owners) = usual_options();
  of_owners.sampling = pg::of_owners{pg::poisson_sampling{pg::sampling_probability{0.25}}, owners};
  BOOST_CHECK_EXCEPTION((pg::dp_sgd{exec, net, loss{}, of_owners, pg::seeded_generator{5}}), std::invalid_argument,
                        [](const auto& error) {
                          return std::string{error.what()}.find("for records and independent noise on the host") !=
                                 std::string::npos;
                        });
  options = usual_options();
  options.certified = pg::certified_training_of<net_type>(loss{}, pg::l2_clip_norm{1e-3});
  const noise_records<net_type> data{4};
  pg::dp_sgd trainer{exec, net, loss{}, options, pg::seeded_generator{5}};
  BOOST_CHECK_THROW(trainer.step(data.records()), std::invalid_argument);  // no weights have so small a bound
}

// What a checkpoint does not hold is a function of weights: K and the projection, which a step ends with.
BOOST_AUTO_TEST_CASE(a_run_in_two_parts_has_the_bits_of_one) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_certified_" + std::to_string(::getpid()) + ".run")).string();
  const pg::host exec{pg::threads{2}};
  const noise_records<net_type> data{40};
  auto clipped = usual_options();
  clipped.clipping = pg::clipping_kind::flat;
  clipped.certified = pg::certified_clip_of<net_type>(loss{});
  clipped.clip = pg::l2_clip_norm{1e4};
  auto with_momentum = usual_options();
  with_momentum.momentum = 0.9;
  for (const pg::dp_sgd_options& options : {usual_options(), with_momentum, clipped}) {
    net_type whole{exec, pg::kaiming_uniform{1}}, parted{exec, pg::kaiming_uniform{1}}, resumed{exec, pg::zeros{}};
    pg::dp_sgd all{exec, whole, loss{}, options, pg::seeded_generator{5}};
    for (int step = 0; step < 7; ++step) all.step(data.records());
    {
      pg::dp_sgd first{exec, parted, loss{}, options, pg::seeded_generator{5}};
      for (int step = 0; step < 3; ++step) first.step(data.records());
      pg::save_checkpoint(first, path);
    }
    pg::dp_sgd second{exec, resumed, loss{}, options, pg::seeded_generator{5}};
    pg::load_checkpoint(second, path);
    BOOST_TEST(second.steps() == 3U);
    for (int step = 3; step < 7; ++step) second.step(data.records());
    BOOST_TEST(std::equal(whole.parameters().begin(), whole.parameters().end(), resumed.parameters().begin()));
    BOOST_TEST(all.options().clip->value() == second.options().clip->value());
    BOOST_TEST(all.epsilon(pg::delta{1e-5}) == second.epsilon(pg::delta{1e-5}));
    std::filesystem::remove(path);
  }
}

BOOST_AUTO_TEST_CASE(the_misprint_of_paper_003_is_found) {
  // Noise of variance sigma² K, as its Algorithm 1 prints, in the place of sigma² K². The canary's gradient is nearly
  // K.
  const pg::host exec{pg::threads{1}};
  dense net{exec, pg::kaiming_uniform{3}};
  std::fill(net.parameters().begin(), net.parameters().end(), 0.0F);
  net.parameters()[0] = 20;
  const std::vector<float> inputs{10, 0, 0, 0, 0, 0};
  const std::vector<std::int32_t> classes{1};
  const pg::dataset<float, std::int32_t> records{inputs, classes, dense::input_shape};
  const pg::certified_bound proof{net, loss{}};
  const double bound = proof.bound().value();
  pg::tape<dense> tape{exec, pg::max_batch{1}};
  const std::vector<std::uint32_t> canary{0};
  const auto gradient_of = [&](std::span<const std::uint32_t> drawn, auto&& use) {
    const pg::batch<dense, loss> batch{records, drawn};
    use(per_sample_gradients(net, loss{}, batch, tape));
  };
  std::vector<float> direction;
  gradient_of(canary, [&](const auto& g) { direction = pg::unprotected::evaluate(exec, sum(g)); });

  constexpr double sigma = 1;
  constexpr std::size_t runs = 3000;
  const auto audited = [&](double multiplier) {
    pg::seeded_generator generator{77};
    pg::unprotected::rehearsed_gradient<dense> update{exec};
    std::vector<double> scores[2];
    for (std::size_t run = 0; run < 2 * runs; ++run) {
      gradient_of(std::span{canary}.first(run % 2), [&](const auto& g) {
        pg::evaluate_into(
            exec, update,
            sum(unclipped(g, proof)) + pg::unaccounted::gaussian_noise(pg::noise_multiplier{multiplier}, generator));
      });
      double score = 0;
      for (std::size_t i = 0; i < direction.size(); ++i) {
        score += static_cast<double>(direction[i]) * static_cast<double>(update.values()[i]);
      }
      scores[run % 2].push_back(score);
    }
    return pg::testing::two_worlds{scores[1], scores[0], 0.999}.gaussian_mu();
  };
  const double right = audited(sigma);
  const double misprinted = audited(sigma / std::sqrt(bound));
  BOOST_TEST_MESSAGE("mu is 1 / sigma = 1: proven of sigma K " << right << ", of sigma sqrt(K) " << misprinted);
  BOOST_TEST(right <= 1 / sigma);
  BOOST_TEST(right >= 0.7 / sigma);  // the canary shows nearly all there is
  BOOST_TEST(misprinted > 2 / sigma);
}

BOOST_AUTO_TEST_SUITE_END()
