// expect-error: release_needs_noise<.*released_gradient<.*bounded_sum<.*flat_clip
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
#ifdef COMPILE_FAIL_FIXED
  optimizer.step(exec, net, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng), pg::expected_batch_size{2});
#else
  optimizer.step(exec, net, update, sum(clip(g, bound)), pg::expected_batch_size{2});
#endif
}
