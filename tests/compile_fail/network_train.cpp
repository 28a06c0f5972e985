// expect-error: leave it out
// slip: Opacus, model.train() before the first batch
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED

#else
  net.train();
#endif
}
