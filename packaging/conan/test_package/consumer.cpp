// SPDX-License-Identifier: Apache-2.0
// packaging/conan/test_package/consumer.cpp - a private step of a small network
#include <cstdint>
#include <cstdio>
#include <vector>

#include <pergrad.hpp>

namespace pg = pergrad;

int main() {
  using model = pg::network<pg::shape{4}, pg::linear<2>>;
  const pg::host exec{pg::threads{1}};
  model net{exec, pg::zeros{}};
  const std::vector<float> inputs(64 * 4, 0.5F);
  const std::vector<std::int32_t> classes(64, 1);
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::noise_multiplier{1.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.25}};
  options.divisor = pg::expected_batch_size{16};
  options.learning_rate = pg::learning_rate{0.1};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  trainer.step(pg::dataset<float, std::int32_t>{inputs, classes, pg::shape{4}});
  const double spent = trainer.epsilon(pg::delta{1e-5});
  std::printf("epsilon %.4f after a step\n", spent);
  return spent > 0 && net.parameters()[0] != 0 ? 0 : 1;
}
