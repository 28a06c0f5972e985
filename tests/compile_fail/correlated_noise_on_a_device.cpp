// expect-error: correlated_noise_on_a_device<
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/correlated_noise.hpp>
#include <pergrad/pergrad.hpp>
// behind it: the way to an error is shorter then
#include <pergrad/cuda/run/trainer.hpp>

namespace pg = pergrad;

using net_type = pg::network<pg::shape{8}, pg::linear<4>, pg::relu, pg::linear<3>>;

int main() {
  const pg::emulated exec;
  net_type net{exec, pg::kaiming_uniform{1}};
#ifdef COMPILE_FAIL_FIXED
  const pg::dp_options<pg::cyclic_poisson_sampling> options;
#else
  const pg::dp_options<pg::cyclic_poisson_sampling, pg::banded_noise> options;
#endif
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
}
