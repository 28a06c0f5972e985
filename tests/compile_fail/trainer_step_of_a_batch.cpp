// expect-error: step_draws_from_all_records<.*batch<
// slip: Opacus, for batch in data_loader: optimizer.step()
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
#ifdef COMPILE_FAIL_FIXED
  trainer.step(records);
#else
  trainer.step(samples);
#endif
}
