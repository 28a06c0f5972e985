// expect-error: network_is_const<.*static_network<float
// slip: C++, a network that is declared const
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  net_type mine{exec, pg::zeros{}};
#else
  const net_type mine{exec, pg::zeros{}};
#endif
  pg::dp_sgd trainer{exec, mine, pg::cross_entropy{}, options};
  while (trainer.within_budget()) trainer.step(records);
}
