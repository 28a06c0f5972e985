// expect-error: option_of_another_type<.*noise_multiplier, double
// slip: Opacus, make_private(noise_multiplier=1.1)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::dp_sgd_options made;
#ifdef COMPILE_FAIL_FIXED
  made.noise = pg::noise_multiplier{1.1};
#else
  made.noise = 1.1;
#endif
}
