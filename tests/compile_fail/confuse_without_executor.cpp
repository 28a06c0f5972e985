// expect-error: needs_an_executor<.*function::confuse,
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};
#ifdef COMPILE_FAIL_FIXED
  return pg::confuse(exec, net, pg::public_records{records}).accuracy() > 1 ? 1 : 0;
#else
  return pg::confuse(net, pg::public_records{records}).accuracy() > 1 ? 1 : 0;
#endif
}
