// expect-error: layer_is_not_on_devices_yet<.*layer_norm
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/cuda/executor.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{8}, pg::linear<4>, pg::linear<3>>;
#else
using net_type = pg::network<pg::shape{8}, pg::linear<4>, pg::layer_norm<>, pg::linear<3>>;
#endif
using loss_type = pg::cross_entropy;

int main() {
  const pg::emulated exec;
  net_type net{exec, pg::kaiming_uniform{1}};
  const std::vector<float> inputs(2 * 8);
  const std::vector<loss_type::target<float>> targets(2);
  const pg::batch<net_type, loss_type> samples{inputs, targets};
  net_type::tape tape{exec, pg::max_batch{2}};
  std::vector<double> losses(2);
  const auto gradients = pg::per_sample_gradients(net, loss_type{}, samples, tape);
  pg::unprotected::evaluate_into(exec, losses, pg::losses(gradients));
}
