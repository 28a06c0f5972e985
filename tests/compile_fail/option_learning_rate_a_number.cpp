// expect-error: option_of_another_type<.*learning_rate, double
// slip: PyTorch, optim.SGD(lr=0.1)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::dp_sgd_options made;
#ifdef COMPILE_FAIL_FIXED
  made.learning_rate = pg::learning_rate{0.1};
#else
  made.learning_rate = 0.1;
#endif
}
