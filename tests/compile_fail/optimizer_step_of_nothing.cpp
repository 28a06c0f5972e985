// expect-error: needs_an_executor<.*function::step, void
// slip: PyTorch, optimizer.step()
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
#ifdef COMPILE_FAIL_FIXED
  optimizer.step(exec, net, update, pg::expected_batch_size{2});
#else
  optimizer.step();
#endif
}
