// expect-error: sum_of_another_network<.*released_gradient<.*noised_sum<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

using other_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<10>>;

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
#else
  pg::private_gradient<other_type> smaller{exec};
  evaluate_into(exec, smaller, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
#endif
}
