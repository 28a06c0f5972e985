// expect-error: unclipped_without_a_proof<.*per_sample_gradient_leaf<
// expect-error: certified_bound\{net, loss\}
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

using net_type = pg::network<pg::shape{2}, pg::into_ball<1.0>, pg::linear<2>>;

int main() {
  const pg::host exec;
  const net_type net{exec, pg::kaiming_uniform{1}};
  const std::vector<float> inputs(2);
  const std::vector<std::int32_t> labels(1);
  const pg::batch<net_type, pg::cross_entropy> samples{inputs, labels};
  net_type::tape tape{exec, pg::max_batch{1}};
  pg::os_keyed_generator rng;
  pg::private_gradient<net_type> update{exec};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  const pg::noise_multiplier sigma{1.1};
#ifdef COMPILE_FAIL_FIXED
  const pg::certified_bound bound{net, pg::cross_entropy{}};
#else
  const pg::l2_clip_norm bound{1.0};
#endif
  evaluate_into(exec, update, sum(unclipped(g, bound)) + pg::unaccounted::gaussian_noise(sigma, rng));
}
