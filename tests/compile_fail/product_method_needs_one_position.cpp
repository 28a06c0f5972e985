// expect-error: product_method_needs_one_position<.*entries<0.*count<36
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, numbers, l2_norms(pg::with_method<pg::norm_method::product, 3>(g)));
#else
  pg::unprotected::evaluate_into(exec, numbers, l2_norms(pg::with_method<pg::norm_method::product, 0>(g)));
#endif
}
