// expect-error: records_of_another_type<.*span<(float const|const float).*dataset<float, int>
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  return pg::predict(exec, net, pg::public_records{pixels}).size() > 1;
#else
  const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};
  return pg::predict(exec, net, pg::public_records{records}).size() > 1;
#endif
}
