// expect-error: private_step_needs_a_noised_sum<.*plain_sum<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, assign(values, sum(g)), assign(numbers, losses(g)));
#else
  pg::unprotected::evaluate_into(exec, assign(update, sum(g)), assign(numbers, losses(g)));
#endif
}
