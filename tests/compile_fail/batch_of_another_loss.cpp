// expect-error: batch_does_not_fit<.*static_network<float, .*linear<10>.*cross_entropy.*batch<.*static_network<float,
// .*linear<10>.*mean_squared_error SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

const std::vector<float> wishes(2 * 10);
const pg::batch<net_type, pg::mean_squared_error> others{pixels, wishes};

int main() {
#ifdef COMPILE_FAIL_FIXED
  const auto g = pg::per_sample_gradients(net, pg::mean_squared_error{}, others, tape);
#else
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, others, tape);
#endif
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
  pg::unprotected::evaluate_into(exec, numbers, l2_norms(g) / 2.0);
}
