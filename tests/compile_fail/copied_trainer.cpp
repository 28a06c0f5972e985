// expect-error: one run has one ledger
// slip: PyTorch, copy.deepcopy(optimizer)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
#ifdef COMPILE_FAIL_FIXED
  auto& other = trainer;
#else
  auto other = trainer;
#endif
  other.step(records);
}
