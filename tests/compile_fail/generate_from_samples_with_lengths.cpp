// expect-error: generate: samples of this network have lengths
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/generate.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::token_ids(4, 9), pg::embedding<6>, pg::linear<9>>;
#else
using net_type = pg::network<pg::variable(pg::token_ids(4, 9)), pg::embedding<6>, pg::linear<9>>;
#endif

std::vector<std::int32_t> text(const pg::host& exec, const net_type& net) {
  const std::vector<std::int32_t> prompt{1};
  return pg::generate(exec, net, pg::public_records{prompt}, {.steps = 3});
}
