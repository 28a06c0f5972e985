// expect-error: needs_per_sample_gradients<.*function::with_randomness, .*clipped_gradients<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  evaluate_into(exec, update, sum(clip(with_randomness(g, rng), bound)) + gaussian_noise(sigma, rng));
#else
  evaluate_into(exec, update, sum(with_randomness(clip(g, bound), rng)) + gaussian_noise(sigma, rng));
#endif
}
