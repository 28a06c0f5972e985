// expect-error: needs_an_executor<.*function::evaluate_into, .*released_gradient<.*static_network<float, .*linear<10>
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
  evaluate_into(update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
#endif
}
