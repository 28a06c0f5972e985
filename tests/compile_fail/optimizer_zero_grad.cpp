// expect-error: leave it out
// slip: PyTorch, optimizer.zero_grad()
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
#ifdef COMPILE_FAIL_FIXED

#else
  optimizer.zero_grad();
#endif
}
