// expect-error: has_no_meaning<.*function::divided_by, .*bounded_sum<.*int>
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
  evaluate_into(exec, update, sum(clip(g, bound)) / 64 + gaussian_noise(sigma, rng));
#endif
}
