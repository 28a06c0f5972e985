// expect-error: option_of_another_type<.*privacy_budget, .*epsilon
// slip: Opacus, make_private_with_epsilon(target_epsilon=3.0)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::dp_sgd_options made;
#ifdef COMPILE_FAIL_FIXED
  made.budget = pg::privacy_budget{pg::epsilon{3.0}, pg::delta{1e-5}};
#else
  made.budget = pg::epsilon{3.0};
#endif
}
