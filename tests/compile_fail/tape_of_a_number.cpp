// expect-error: net_type::tape tape\{exec, pergrad::max_batch\{256\}\}
// slip: Opacus, max_physical_batch_size=256
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  net_type::tape mine{exec, pg::max_batch{256}};
#else
  net_type::tape mine{exec, 256};
#endif
  return static_cast<int>(mine.capacity());
}
