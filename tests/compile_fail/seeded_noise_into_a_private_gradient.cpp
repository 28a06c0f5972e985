// expect-error: noise_from_a_seed<.*released_gradient<.*true>.*, .*seeded_generator>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  pg::seeded_generator seeded{1};
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::rehearsed_gradient<net_type> rehearsed{exec};
  evaluate_into(exec, rehearsed, sum(clip(g, bound)) + gaussian_noise(sigma, seeded));
#else
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, seeded));
#endif
}
