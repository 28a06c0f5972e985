// expect-error: temporary_operand<.*batch<.*static_network<float, .*linear<10>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#else
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch_type{pixels, labels}, tape);
#endif
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
  pg::unprotected::evaluate_into(exec, numbers, l2_norms(g) / 2.0);
}
