// expect-error: ids_into_a_float_layer<.*at_layer<0>.*gets<.*\{0, 9, 0, 0, 0, 50\}
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::token_ids(9, 50), pg::embedding_bag<4>, pg::residual<>, pg::linear<2>>;
#else
using net_type = pg::network<pg::token_ids(9, 50), pg::residual<>, pg::embedding_bag<4>, pg::linear<2>>;
#endif

int main() {
  const pg::host exec;
  net_type net{exec, pg::layer_default{1}};
  const std::vector<std::int32_t> ids(9);
  const std::vector<std::int32_t> labels(1);
  const pg::batch<net_type, pg::cross_entropy> samples{ids, labels};
  net_type::tape tape{exec, pg::max_batch{1}};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  return static_cast<int>(pg::unprotected::evaluate(exec, losses(g)).size());
}
