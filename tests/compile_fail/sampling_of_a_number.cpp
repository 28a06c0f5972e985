// expect-error: write pergrad::poisson_sampling\{pergrad::sampling_probability
// slip: Opacus, DPDataLoader(sample_rate=0.01)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::dp_sgd_options made;
#ifdef COMPILE_FAIL_FIXED
  made.sampling = pg::poisson_sampling{pg::sampling_probability{0.01}};
#else
  made.sampling = pg::poisson_sampling{0.01};
#endif
}
