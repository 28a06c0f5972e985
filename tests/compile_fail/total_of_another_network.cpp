// expect-error: sum_of_another_network<.*bounded_total<.*bounded_sum<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

using other_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<10>>;

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  pg::bounded_total<net_type> total{exec};
#else
  pg::bounded_total<other_type> total{exec};
#endif
  evaluate_into(exec, accumulate(total, sum(clip(g, bound))));
}
