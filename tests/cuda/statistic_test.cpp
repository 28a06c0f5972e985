// SPDX-License-Identifier: Apache-2.0
// tests/cuda/statistic_test.cpp - the statistic of a device trainer's step is the host's
#include <cstddef>
#include <cstdint>
#include <vector>

#include "device_fixture.hpp"

BOOST_AUTO_TEST_SUITE(cuda_statistic)

BOOST_AUTO_TEST_CASE(losses_of_a_step_are_counted) {
  namespace pg = pergrad;
  using network = pg::network<pg::shape{4}, pg::linear<5>, pg::tanh, pg::linear<3>>;
  std::vector<float> inputs(60 * 4);
  std::vector<std::int32_t> classes(60);
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<float>(i % 17) / 8 - 1;
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<std::int32_t>(i % 3);
  const pg::dataset<float, std::int32_t> records{inputs, classes, network::input_shape};
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1};
  options.noise = pg::noise_multiplier{1};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.divisor = pg::expected_batch_size{30};
  options.learning_rate = pg::learning_rate{0.1};
  options.max_batch = pg::max_batch{8};
  options.statistic = pg::step_statistic{pg::noise_multiplier{0}, pg::bin_edges{{0.8, 1.1, 1.4}}, pg::step_value::loss};
  const auto counts = [&](const auto& executor) {
    network net{executor, pg::kaiming_uniform{2}};
    pg::dp_sgd trainer{executor, net, pg::cross_entropy{}, options, pg::seeded_generator{4}};
    trainer.step(records);
    const auto found = trainer.last_statistic().counts();
    return std::vector<double>(found.begin(), found.end());
  };
  const auto wanted = counts(pg::host{pg::threads{1}});
  BOOST_TEST(wanted[0] + wanted[1] + wanted[2] + wanted[3] > 10);
  BOOST_TEST(counts(pg::emulated{}) == wanted, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
