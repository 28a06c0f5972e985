// expect-error: loss_rejects_the_networks_output<.*cross_entropy.*gets<.*of_shape<10, 1, 1>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;
using pg::unaccounted::gaussian_noise;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<10, 3>, pg::adaptive_avg_pool2d<1>, pg::flatten>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<10, 3>, pg::adaptive_avg_pool2d<1>>;
#endif

int main() {
  const pg::host exec;
  net_type net{exec, pg::kaiming_uniform{1}};
  net_type::tape tape{exec, pg::max_batch{2}};
  const std::vector<float> pixels(2 * 64);
  const std::vector<std::int32_t> labels(2);
  const pg::batch<net_type, pg::cross_entropy> samples{pixels, labels};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  pg::os_keyed_generator rng;
  pg::private_gradient<net_type> update{exec};
  evaluate_into(exec, update, sum(clip(g, pg::l2_clip_norm{1.0})) + gaussian_noise(pg::noise_multiplier{1.1}, rng));
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
  optimizer.step(exec, net, update, pg::expected_batch_size{2});
  const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};
  return pg::evaluate_classifier(exec, net, pg::public_records{records}).accuracy > 0 ? 1 : 0;
}
