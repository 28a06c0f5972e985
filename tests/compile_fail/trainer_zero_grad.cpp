// expect-error: a step keeps no gradients: leave it out
// slip: PyTorch, optimizer.zero_grad()
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
  trainer.zero_grad();
#endif
}
