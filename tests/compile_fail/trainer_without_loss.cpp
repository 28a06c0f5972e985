// expect-error: not_made_of_this<.*function::dp_sgd,
// slip: Opacus, make_private(module, optimizer, data_loader): the criterion comes later
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
  pg::dp_sgd trainer{exec, net, options};
#endif
  while (trainer.within_budget()) trainer.step(records);
}
