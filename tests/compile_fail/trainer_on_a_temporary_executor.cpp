// expect-error: = delete;  // name the executor
// slip: C++, a reference to what is gone
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
  pg::dp_sgd trainer{pg::host{}, net, pg::cross_entropy{}, options};
#endif
  trainer.step(records);
}
