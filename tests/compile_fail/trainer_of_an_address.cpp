// expect-error: not_a_network<.*static_network<float
// slip: C++, &net
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
#else
  pg::dp_sgd trainer{exec, &net, pg::cross_entropy{}, options};
#endif
  while (trainer.within_budget()) trainer.step(records);
}
