// expect-error: a private step draws its batch itself
// slip: Opacus, optimizer.step()
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
#ifdef COMPILE_FAIL_FIXED
  trainer.step(records);
#else
  trainer.step();
#endif
}
