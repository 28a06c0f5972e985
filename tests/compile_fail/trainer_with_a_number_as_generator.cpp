// expect-error: not_made_of_this<.*function::dp_sgd, int
// slip: PyTorch, torch.manual_seed(42)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{42}};
#else
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, 42};
#endif
  while (trainer.within_budget()) trainer.step(records);
}
