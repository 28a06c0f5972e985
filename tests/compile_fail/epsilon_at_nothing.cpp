// expect-error: at which delta: trainer.epsilon\(pergrad::delta
// slip: jax_privacy, epsilon of an accountant
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
#ifdef COMPILE_FAIL_FIXED
  return trainer.epsilon(pg::delta{1e-5}) > 0 ? 0 : 1;
#else
  trainer.epsilon();
#endif
}
