// expect-error: needs_per_sample_gradients<.*function::variance, .*clipped_gradients<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, values, variance(g));
#else
  pg::unprotected::evaluate_into(exec, values, variance(clip(g, bound)));
#endif
}
