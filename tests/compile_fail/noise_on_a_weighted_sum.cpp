// expect-error: noise_on_an_unclipped_sum<.*weighted_gradient_sum<.*norm_of<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
#else
  evaluate_into(exec, update, weighted_sum(g, min(1.0, 1.0 / l2_norms(g))) + gaussian_noise(sigma, rng));
#endif
}
