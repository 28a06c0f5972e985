// expect-error: release_needs_a_private_gradient<.*bounded_total<.*static_network<float
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::bounded_total<net_type> total{exec};
  evaluate_into(exec, accumulate(total, sum(clip(g, bound))));
#else
  pg::bounded_total<net_type> total{exec};
  evaluate_into(exec, accumulate(total, sum(clip(g, bound)) + gaussian_noise(sigma, rng)));
#endif
}
