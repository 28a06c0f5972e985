// expect-error: write pergrad::privacy_budget
// slip: Opacus, target_delta before target_epsilon
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  const pg::privacy_budget budget{pg::epsilon{3.0}, pg::delta{1e-5}};
#else
  const pg::privacy_budget budget{pg::delta{1e-5}, pg::epsilon{3.0}};
#endif
  return budget.max_epsilon.value() > 0 ? 0 : 1;
}
