// expect-error: release_needs_noise<.*assignment<.*bounded_sum<.*flat_clip
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, assign(values, sum(clip(g, bound))));
#else
  evaluate_into(exec, assign(values, sum(clip(g, bound))));
#endif
}
