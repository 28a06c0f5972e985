// expect-error: option_of_another_type<.*expected_batch_size, int
// slip: Opacus, DPOptimizer(expected_batch_size=256)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::dp_sgd_options made;
#ifdef COMPILE_FAIL_FIXED
  made.divisor = pg::expected_batch_size{256};
#else
  made.divisor = 256;
#endif
}
