// expect-error: private_step_needs_a_noised_sum<.*bounded_total<.*static_network<float, .*linear<10>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::bounded_total<net_type> total{exec};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  evaluate_into(exec, accumulate(total, sum(clip(g, bound))));
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}, 0.9};
#ifdef COMPILE_FAIL_FIXED
  optimizer.step(exec, net, total + gaussian_noise(sigma, rng), pg::expected_batch_size{2});
#else
  optimizer.step(exec, net, total, pg::expected_batch_size{2});
#endif
}
