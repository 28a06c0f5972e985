// expect-error: loss_rejects_the_networks_output<.*mean_squared_error.*gets<.*of_varying_length<.*of_shape<2, 4>, 2>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::variable(pg::shape{4, 3}), pg::transpose, pg::conv1d<2, 1>, pg::transpose>;
#else
using net_type = pg::network<pg::variable(pg::shape{4, 3}), pg::transpose, pg::conv1d<2, 1>>;
#endif

int main() {
  const pg::host exec;
  net_type net{exec, pg::kaiming_uniform{1}};
  net_type::tape tape{exec, pg::max_batch{2}};
  const std::vector<float> inputs(2 * 12);
  const std::vector<float> targets(2 * 8);
  const std::vector<std::uint32_t> lengths{1, 4};
  const pg::batch<net_type, pg::mean_squared_error> samples{inputs, targets, lengths};
  const auto g = pg::per_sample_gradients(net, pg::mean_squared_error{}, samples, tape);
  std::vector<double> norms(2);
  pg::unprotected::evaluate_into(exec, norms, l2_norms(g));
}
