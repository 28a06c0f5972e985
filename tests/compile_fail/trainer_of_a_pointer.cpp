// expect-error: not_a_network<.*static_network<float
// slip: C++, std::unique_ptr<net_type>
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <memory>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
  const auto mine = std::make_unique<net_type>(exec, pg::zeros{});
#ifdef COMPILE_FAIL_FIXED
  pg::dp_sgd trainer{exec, *mine, pg::cross_entropy{}, options};
#else
  pg::dp_sgd trainer{exec, mine, pg::cross_entropy{}, options};
#endif
  while (trainer.within_budget()) trainer.step(records);
}
