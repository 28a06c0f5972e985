// expect-error: release_needs_noise<.*vector<float.*plain_sum<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, values, sum(g));
#else
  evaluate_into(exec, values, sum(g));
#endif
}
