// expect-error: loss_rejects_the_networks_output<.*cross_entropy.*gets<.*of_shape<10, 1, 1>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<10, 3>, pg::adaptive_avg_pool2d<1>, pg::flatten>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<10, 3>, pg::adaptive_avg_pool2d<1>>;
#endif

int main() {
  const pg::host exec;
  net_type net{exec, pg::kaiming_uniform{1}};
  const std::vector<float> pixels(2 * 64);
  const std::vector<std::int32_t> labels(2);
  const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::noise_multiplier{1.1};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.divisor = pg::expected_batch_size{2};
  options.learning_rate = pg::learning_rate{0.1};
  options.budget = pg::privacy_budget{pg::epsilon{1.0}, pg::delta{1e-5}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  while (trainer.within_budget()) trainer.step(records);
  return trainer.epsilon(pg::delta{1e-5}) + pg::unprotected::metrics(trainer).mean_loss > 1 ? 1 : 0;
}
