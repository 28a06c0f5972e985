// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/lstm_gate.cu - a user's private training of an LSTM classifier of words, to be compiled in good time
#include <cstdint>
#include <cstdio>
#include <vector>

#include <pergrad.hpp>

namespace pg = pergrad;

using words = pg::network<pg::variable(pg::token_ids(64, 1000)), pg::embedding<16>, pg::lstm<32>,
                          pg::mean_over_positions, pg::linear<2>>;

int main() {
  const pg::cuda device;
  words net{device, pg::kaiming_uniform{1}};
  const std::vector<std::int32_t> ids(64 * 100);
  const std::vector<std::int32_t> labels(100);
  const pg::dataset<std::int32_t, std::int32_t> records{ids, labels, words::input_shape};
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1};
  options.noise = pg::noise_multiplier{1};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.1}};
  options.divisor = pg::expected_batch_size{10};
  options.learning_rate = pg::learning_rate{0.1};
  pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options};
  for (int step = 0; step < 10; ++step) trainer.step(records);
  std::printf("epsilon %.3f\n", trainer.epsilon(pg::delta{1e-5}));
}
