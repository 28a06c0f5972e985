// expect-error: has_no_meaning<.*function::evaluate, .*clipped_gradients<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  return pg::unprotected::evaluate(exec, materialise(clip(g, bound))).empty() ? 1 : 0;
#else
  return pg::unprotected::evaluate(exec, clip(g, bound)).empty() ? 1 : 0;
#endif
}
