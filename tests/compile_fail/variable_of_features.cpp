// expect-error: variable_needs_positions<.*gets<.*of_varying_length<.*of_shape<8>, 1>
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::variable(pg::shape{8, 1}), pg::lstm<3, pg::last_output>, pg::linear<2>>;
#else
using net_type =
    pg::network<pg::variable(pg::shape{8}), pg::reshape<pg::shape{8, 1}>, pg::lstm<3, pg::last_output>, pg::linear<2>>;
#endif

int main() {
  const pg::host exec;
  net_type net{exec, pg::kaiming_uniform{1}};
  net_type::tape tape{exec, pg::max_batch{2}};
  const std::vector<float> inputs(2 * net_type::input_shape.size());
  const std::vector<std::int32_t> labels(2);
  const std::vector<std::uint32_t> lengths{1, 4};
  const pg::batch<net_type, pg::cross_entropy> samples{inputs, labels, lengths};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  std::vector<double> norms(2);
  pg::unprotected::evaluate_into(exec, norms, l2_norms(g));
}
