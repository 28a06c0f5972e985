// expect-error: optimizer_of_no_network<.*learning_rate
// slip: PyTorch, optim.SGD(model.parameters(), lr=0.1)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
#else
  pg::sgd optimizer{net, pg::learning_rate{0.1}};
#endif
  optimizer.step(exec, net, update, pg::expected_batch_size{2});
}
