// expect-error: (is private within this context|is a private member of)
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  pg::bounded_total<net_type> total{exec};
  pg::detail::run_request<float> request;
  static_cast<void>(request);
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::evaluate_into(exec, values, sum(g));
#else
  sum(g).attach(request, values, false);
  g.run<pg::detail::evaluation_needs{}>(exec, request);
#endif
}
