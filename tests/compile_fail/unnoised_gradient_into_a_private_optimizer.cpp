// expect-error: private_step_needs_a_noised_sum<.*unprotected::gradient<.*static_network<float, .*linear<10>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
  optimizer.step(exec, net, update, pg::expected_batch_size{2});
#else
  pg::unprotected::gradient<net_type> gradient{exec};
  pg::unprotected::evaluate_into(exec, gradient, sum(clip(g, bound)));
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
  optimizer.step(exec, net, gradient, pg::expected_batch_size{2});
#endif
}
