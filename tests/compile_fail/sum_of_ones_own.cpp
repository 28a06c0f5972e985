// expect-error: (cannot derive from 'final' base|base '.*' is marked 'final')
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
  using sum_type = std::remove_cvref_t<decltype(sum(clip(g, bound)))>;
  struct own_sum : sum_type {};
#endif
}
