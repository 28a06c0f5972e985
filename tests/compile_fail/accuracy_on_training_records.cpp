// expect-error: records_may_be_private<.*dataset<float, int>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};
#ifdef COMPILE_FAIL_FIXED
  return pg::evaluate_classifier(exec, net, pg::public_records{records}).accuracy +
                     pg::unprotected::evaluate_classifier(exec, net, records).mean_loss >
                 1
             ? 1
             : 0;
#else
  return pg::evaluate_classifier(exec, net, records).accuracy > 1 ? 1 : 0;
#endif
}
