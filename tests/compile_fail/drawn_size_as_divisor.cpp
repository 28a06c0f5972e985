// expect-error: count_as_divisor<(unsigned long|long unsigned int)>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  evaluate_into(exec, update, (sum(clip(g, bound)) + gaussian_noise(sigma, rng)) / pg::expected_batch_size{64});
#else
  evaluate_into(exec, update, (sum(clip(g, bound)) + gaussian_noise(sigma, rng)) / pg::expected_batch_size{g.size()});
#endif
}
