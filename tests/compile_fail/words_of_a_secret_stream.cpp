// expect-error: (is private within this context|is a private member of)
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  static_cast<void>(pg::seeded_generator{1}.stream<pg::detail::randomness::sampling>(0));
#else
  static_cast<void>(rng.stream<pg::detail::randomness::sampling>(0));
#endif
}
