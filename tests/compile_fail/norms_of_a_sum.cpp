// expect-error: needs_per_sample_gradients<.*function::l2_norms, .*bounded_sum<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, numbers, l2_norms(g) / 2.0);
#else
  pg::unprotected::evaluate_into(exec, numbers, l2_norms(sum(clip(g, bound))) / 2.0);
#endif
}
