// expect-error: option_of_another_type<.*l2_clip_norm, double
// slip: Opacus, make_private(max_grad_norm=1.0)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::dp_sgd_options made;
#ifdef COMPILE_FAIL_FIXED
  made.clip = pg::l2_clip_norm{1.0};
#else
  made.clip = 1.0;
#endif
}
