// expect-error: temporary_destination<.*vector<double
// expect-error: what is computed would be lost with this temporary
// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, assign(numbers, l2_norms(g)), assign(std::span{numbers}, losses(g)));
#else
  pg::unprotected::evaluate_into(exec, assign(std::vector<double>(2), l2_norms(g)));
#endif
}
