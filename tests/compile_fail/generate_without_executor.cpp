// expect-error: needs_an_executor<.*function::generate,
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/generate.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

using net_type = pg::network<pg::token_ids(4, 9), pg::embedding<6>, pg::linear<9>>;

std::vector<std::int32_t> text(const pg::host& exec, const net_type& net, const std::vector<std::int32_t>& prompt) {
#ifdef COMPILE_FAIL_FIXED
  return pg::generate(exec, net, pg::public_records{prompt}, {.steps = 3});
#else
  return pg::generate(net, pg::public_records{prompt}, pg::generation{.steps = 3});
#endif
}
