// SPDX-License-Identifier: Apache-2.0
// tests/optim/parameter_average_test.cpp - the average of parameters against its definition, a weighted sum in double
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(optim_parameter_average)

namespace {

namespace pg = pergrad;
using network = pg::network<pg::shape{90}, pg::linear<70>, pg::tanh, pg::linear<3>>;

/// Other parameters behind every step.
void move(network& net, int step) {
  for (std::size_t i = 0; i < net.parameters().size(); ++i) {
    net.parameters()[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i) + step) * (1 + step % 3));
  }
}

}  // namespace

// sum_i decay^(t - i) w_i / sum_i decay^(t - i): nothing of the parameters from before the first step.
BOOST_AUTO_TEST_CASE(is_the_weighted_sum) {
  for (const std::size_t threads : {1U, 3U}) {
    for (const double decay : {0.5, 0.9, 0.9999}) {
      const pg::host exec{pg::threads{threads}};
      network net{exec, pg::kaiming_uniform{1}};
      pg::parameter_average average{net, decay};
      BOOST_TEST(average.network().parameters()[7] == net.parameters()[7]);
      std::vector<double> sums(net.parameters().size());
      double weights = 0;
      for (int step = 1; step <= 20; ++step) {
        move(net, step);
        average.update(exec, net);
        weights = decay * weights + 1;
        double worst = 0;
        for (std::size_t i = 0; i < sums.size(); ++i) {
          sums[i] = decay * sums[i] + static_cast<double>(net.parameters()[i]);
          worst = std::max(worst, std::abs(sums[i] / weights - static_cast<double>(average.network().parameters()[i])));
        }
        // Each update rounds the way to w, its share and the sum; numbers are at most 3.
        BOOST_TEST(worst <= 3 * 4 * 6e-8 * step);
        if (step == 1) BOOST_TEST(average.network().parameters()[7] == net.parameters()[7]);
      }
      BOOST_TEST(average.updates() == 20U);
    }
  }
}

// Whatever the rounding of the shares: a run that has come to rest is not moved by thousands of updates.
BOOST_AUTO_TEST_CASE(parameters_that_stay_are_their_average) {
  for (const double decay : {0.9, 0.999, 0.99999}) {
    const pg::host exec{pg::threads{1}};
    network net{exec, pg::kaiming_uniform{2}};
    pg::parameter_average average{net, decay};
    move(net, 1);
    for (int step = 0; step < 2000; ++step) average.update(exec, net);
    BOOST_TEST(std::ranges::equal(average.network().parameters(), net.parameters()));
  }
}

BOOST_AUTO_TEST_CASE(goes_on_where_it_was) {
  const pg::host exec{pg::threads{2}};
  network net{exec, pg::kaiming_uniform{1}};
  pg::parameter_average whole{net, 0.9};
  for (int step = 1; step <= 3; ++step) {
    move(net, step);
    whole.update(exec, net);
  }
  pg::parameter_average part{whole.network().clone(), whole.decay(), whole.updates()};
  move(net, 4);
  whole.update(exec, net);
  part.update(exec, net);
  for (std::size_t i = 0; i < net.parameters().size(); ++i) {
    BOOST_TEST_REQUIRE(part.network().parameters()[i] == whole.network().parameters()[i]);
  }
}

// A trainer's average is made before a checkpoint is read, weights are loaded, or another rank's arrive.
BOOST_AUTO_TEST_CASE(what_is_not_trained_is_the_networks) {
  using half_frozen = pg::network<pg::shape{9}, pg::frozen<pg::linear<7>>, pg::tanh, pg::linear<3>>;
  const pg::host exec{pg::threads{1}};
  half_frozen net{exec, pg::kaiming_uniform{1}};
  const auto trainer_of = [&](half_frozen& its_net) {
    pg::dp_sgd_options options;
    options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
    options.noise = pg::noise_multiplier{1};
    options.clip = pg::l2_clip_norm{1};
    options.divisor = pg::expected_batch_size{4};
    options.learning_rate = pg::learning_rate{0.1};
    options.average_decay = 0.9;
    return pg::dp_sgd{exec, its_net, pg::cross_entropy{}, options, pg::seeded_generator{3}};
  };
  const std::vector<float> inputs(8 * 9, 0.5F);
  const std::vector<std::int32_t> labels(8);
  const pg::dataset<float, std::int32_t> records{inputs, labels, half_frozen::input_shape};
  auto trainer = trainer_of(net);
  net.frozen_parameters()[5] = 3;
  trainer.step(records);
  BOOST_TEST(trainer.average().frozen_parameters()[5] == 3);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_average_" + std::to_string(::getpid()))).string();
  pg::save_checkpoint(trainer, path);
  half_frozen other{exec, pg::kaiming_uniform{2}};
  auto later = trainer_of(other);
  pg::load_checkpoint(later, path);
  std::filesystem::remove(path);
  const auto wanted = trainer.average().all_parameters();
  const auto found = later.average().all_parameters();
  BOOST_TEST(std::equal(wanted.begin(), wanted.end(), found.begin(), found.end()));
}

BOOST_AUTO_TEST_CASE(a_decay_that_is_none) {
  const pg::host exec{pg::threads{1}};
  const network net{exec, pg::kaiming_uniform{1}};
  for (const double bad : {0.0, 1.0, -0.5, 1.5, std::nan("")}) {
    BOOST_CHECK_THROW((pg::parameter_average{net, bad}), std::invalid_argument);
  }
}

BOOST_AUTO_TEST_SUITE_END()
