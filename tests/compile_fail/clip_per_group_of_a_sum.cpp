// expect-error: cannot_be_clipped<.*function::clip_per_group, .*plain_sum<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  evaluate_into(exec, update,
                sum(clip_per_group(g, std::vector<pg::l2_clip_norm>{bound})) + gaussian_noise(sigma, rng));
#else
  evaluate_into(exec, update,
                sum(clip_per_group(sum(g), std::vector<pg::l2_clip_norm>{bound})) + gaussian_noise(sigma, rng));
#endif
}
