// expect-error: records_of_another_type<.*dataset<float, int>, .*dataset<double, int>
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};
  return pg::evaluate_classifier(exec, net, pg::public_records{records}).accuracy > 1 ? 1 : 0;
#else
  const std::vector<double> wide(2 * 64);
  const pg::dataset<double, std::int32_t> records{wide, labels, net_type::input_shape};
  return pg::evaluate_classifier(exec, net, pg::public_records{records}).accuracy > 1 ? 1 : 0;
#endif
}
