// expect-error: write pergrad::epsilon\{3.0\}
// slip: Opacus, get_noise_multiplier(target_epsilon=3.0, ...)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  static_cast<void>(pg::calibrate_noise(pg::epsilon{3.0}, pg::delta{1e-5}, pg::sampling_probability{0.01}, 300));
#else
  static_cast<void>(pg::calibrate_noise(3.0, pg::delta{1e-5}, pg::sampling_probability{0.01}, 300));
#endif
}
