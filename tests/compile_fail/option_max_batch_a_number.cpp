// expect-error: Number = int
// expect-error: a plain number does not say what it stands for: pergrad::max_batch\{256\}
// slip: Opacus, BatchMemoryManager(max_physical_batch_size=256)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::dp_sgd_options made;
#ifdef COMPILE_FAIL_FIXED
  made.max_batch = pg::max_batch{256};
#else
  made.max_batch = 256;
#endif
}
