// expect-error: destination_does_not_fit<.*vector<float.*span<double.*norm_of<
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
  pg::unprotected::evaluate_into(exec, values, l2_norms(g));
#endif
}
