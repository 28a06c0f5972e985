// expect-error: has_no_meaning<.*function::weighted_sum, .*per_sample_gradient_leaf<.*plain_sum<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

const std::vector<float> numbers_of_samples(2);

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, values, weighted_sum(g, numbers_of_samples));
#else
  pg::unprotected::evaluate_into(exec, values, weighted_sum(g, sum(g)));
#endif
}
