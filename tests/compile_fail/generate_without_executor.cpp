// expect-error: needs_an_executor<.*function::generate,
// SPDX-License-Identifier: Apache-2.0
#include "generate_program.inc"

std::vector<std::int32_t> text(const pg::host& exec, const net_type& net, const std::vector<std::int32_t>& prompt) {
#ifdef COMPILE_FAIL_FIXED
  return pg::generate(exec, net, pg::public_records{prompt}, {.steps = 3});
#else
  return pg::generate(net, pg::public_records{prompt}, pg::generation{.steps = 3});
#endif
}
