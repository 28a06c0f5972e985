// expect-error: release_needs_noise<.*vector<double.*norm_of<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, numbers, l2_norms(g));
#else
  evaluate_into(exec, numbers, l2_norms(g));
#endif
}
