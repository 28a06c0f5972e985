// expect-error: steps of this sampler depend on those before
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>

int main() {
  pergrad::os_keyed_generator generator;
#ifdef COMPILE_FAIL_FIXED
  const pergrad::poisson_sampling sampling{pergrad::sampling_probability{0.02}};
#else
  const pergrad::min_separation_sampling sampling{pergrad::sampling_probability{0.02}, pergrad::round_steps{8}};
#endif
  return static_cast<int>(pergrad::unaccounted::draw(sampling, generator, 100).size());
}
