// expect-error: write pergrad::delta\{1e-5\}
// slip: Opacus, get_epsilon(delta=1e-5)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
  const pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
#ifdef COMPILE_FAIL_FIXED
  return trainer.epsilon(pg::delta{1e-5}) > 1 ? 1 : 0;
#else
  return trainer.epsilon(1e-5) > 1 ? 1 : 0;
#endif
}
