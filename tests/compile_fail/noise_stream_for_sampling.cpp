// expect-error: (no matching function for call|could not convert|no viable conversion|cannot convert)
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const pg::poisson_sampling half{pg::sampling_probability{0.5}};
  const pg::seeded_generator seeded{1};
  std::vector<std::uint64_t> bits(2);
#ifdef COMPILE_FAIL_FIXED
  half.mark(seeded.stream<pg::detail::randomness::sampling>(0), 0, bits);
#else
  half.mark(seeded.stream<pg::detail::randomness::noise>(0), 0, bits);
#endif
}
