// expect-error: on_the_host_only<.*emulated
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>
// behind it: the way to an error is shorter then
#include <pergrad/cuda/run/trainer.hpp>

namespace pg = pergrad;

using net_type = pg::network<pg::shape{8}, pg::linear<4>, pg::relu, pg::linear<3>>;

int main() {
  const pg::emulated exec;
  net_type net{exec, pg::kaiming_uniform{1}};
#ifdef COMPILE_FAIL_FIXED
  pg::dp_sgd_options options;
#else
  pg::dp_options<pg::with_views<pg::poisson_sampling>> options;
#endif
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
}
