// expect-error: loop_draws_records<.*of_owners<
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const std::vector<std::uint32_t> owners(2);
  pg::dp_options<pg::of_owners<pg::poisson_sampling>> options;
  options.clip = bound;
  options.noise = sigma;
  options.sampling = pg::of_owners{pg::poisson_sampling{pg::sampling_probability{0.5}}, owners};
  options.divisor = pg::expected_batch_size{2};
  options.learning_rate = pg::learning_rate{0.1};
#ifdef COMPILE_FAIL_FIXED
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
#else
  pg::private_loop loop{exec, net, pg::cross_entropy{}, options};
#endif
}
