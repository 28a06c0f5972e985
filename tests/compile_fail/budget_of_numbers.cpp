// expect-error: pergrad::privacy_budget\{pergrad::epsilon\{3.0\}
// slip: Opacus, target_epsilon=3.0, target_delta=1e-5
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::dp_sgd_options made;
#ifdef COMPILE_FAIL_FIXED
  made.budget = {pg::epsilon{3.0}, pg::delta{1e-5}};
#else
  made.budget = {3.0, 1e-5};
#endif
}
