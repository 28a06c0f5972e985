// expect-error: operand_does_not_fit<.*function::weighted_sum, .*span<const float.*vector<double
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, values, weighted_sum(g, std::vector<float>{1, 2}));
#else
  pg::unprotected::evaluate_into(exec, values, weighted_sum(g, numbers));
#endif
}
