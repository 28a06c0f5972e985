// expect-error: layer_without_a_bound<.*lstm_cell
// expect-error: in the place of attention and of recurrent layers take conv1d
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::token_ids(9, 50), pg::embedding<4>, pg::mean_over_positions, pg::linear<2>>;
#else
using net_type = pg::network<pg::token_ids(9, 50), pg::embedding<4>, pg::lstm<3, pg::last_output>, pg::linear<2>>;
#endif

int main() {
  const pg::host exec;
  const net_type net{exec, pg::layer_default{1}};
  return static_cast<int>(pg::certify(net, pg::cross_entropy{}).bound);
}
