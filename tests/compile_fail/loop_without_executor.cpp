// expect-error: needs_an_executor<.*function::private_loop,
// slip: Opacus, make_private(module=model, ...)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  pg::private_loop loop{exec, net, pg::cross_entropy{}, options};
#else
  pg::private_loop loop{net, pg::cross_entropy{}, options};
#endif
  auto step = loop.begin(records);
  while (step.next()) evaluate_into(exec, accumulate(step, sum(clip(step.gradients(), bound))));
}
