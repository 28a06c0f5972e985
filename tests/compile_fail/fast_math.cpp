// expect-error: -ffast-math, -Ofast and -ffinite-math-only break the clip bound
// SPDX-License-Identifier: Apache-2.0
// compiled with: -ffast-math
// compiled with: -ffinite-math-only
#include <vector>

#include <pergrad/pergrad.hpp>

// Its twin under COMPILE_FAIL_FIXED is the same program without these flags.
namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
}
