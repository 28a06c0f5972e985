// expect-error: correlated_noise_needs_a_promise<.*banded_noise, .*poisson_sampling
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/correlated_noise.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

#ifdef COMPILE_FAIL_FIXED
using sampler = pg::cyclic_poisson_sampling;
#else
using sampler = pg::poisson_sampling;
#endif

int main() {
  net_type net{exec, pg::kaiming_uniform{1}};
  const pg::dp_options<sampler, pg::banded_noise> options;
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
}
