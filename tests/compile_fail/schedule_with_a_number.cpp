// expect-error: write pergrad::learning_rate\{0.1\}
// slip: PyTorch, lr_scheduler: group['lr'] = 0.05
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
#ifdef COMPILE_FAIL_FIXED
  optimizer.set_learning_rate(pg::learning_rate{0.05});
#else
  optimizer.set_learning_rate(0.05);
#endif
}
