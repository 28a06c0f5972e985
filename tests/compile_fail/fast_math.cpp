// expect-error: -ffast-math, -Ofast and -ffinite-math-only break the clip bound
// SPDX-License-Identifier: Apache-2.0
#ifndef COMPILE_FAIL_FIXED
#define __FAST_MATH__ 1  // what -ffast-math defines
#endif
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
}
