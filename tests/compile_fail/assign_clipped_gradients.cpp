// expect-error: has_no_meaning<.*function::assign, .*clipped_gradients<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, assign(values, sum(clip(g, bound))), assign(numbers, losses(g)));
#else
  pg::unprotected::evaluate_into(exec, assign(values, clip(g, bound)), assign(numbers, losses(g)));
#endif
}
