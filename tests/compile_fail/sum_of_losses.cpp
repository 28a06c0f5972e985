// expect-error: cannot_be_summed<.*function::sum, .*loss_of<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, numbers, losses(g));
#else
  pg::unprotected::evaluate_into(exec, numbers, sum(losses(g)));
#endif
}
