// expect-error: (is private within this context|is a private member of)
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  pg::bounded_total<net_type> total{exec};
  evaluate_into(exec, accumulate(total, sum(clip(g, bound))));
#ifdef COMPILE_FAIL_FIXED
  evaluate_into(exec, update, total + gaussian_noise(sigma, rng));
#else
  static_cast<void>(pg::detail::total_access::sum_of(total));
#endif
}
