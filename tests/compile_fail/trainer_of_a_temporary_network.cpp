// expect-error: temporary_operand<.*static_network<float, .*linear<10>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

const pg::dp_sgd_options options;
const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};

int main() {
#ifdef COMPILE_FAIL_FIXED
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
#else
  pg::dp_sgd trainer{exec, net_type{exec, pg::zeros{}}, pg::cross_entropy{}, options};
#endif
  while (trainer.within_budget()) trainer.step(records);
}
