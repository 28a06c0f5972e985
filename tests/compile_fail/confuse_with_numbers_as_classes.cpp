// expect-error: records_of_another_type<.*dataset<float, int>, .*dataset<float, float>
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};
  return pg::confuse(exec, net, pg::public_records{records}, 10).accuracy() > 1 ? 1 : 0;
#else
  const std::vector<float> classes(2);
  const pg::dataset<float, float> records{pixels, classes, net_type::input_shape};
  return pg::confuse(exec, net, pg::public_records{records}, 10).accuracy() > 1 ? 1 : 0;
#endif
}
