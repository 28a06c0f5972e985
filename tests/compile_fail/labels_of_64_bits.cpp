// expect-error: records_of_another_type<.*dataset<float, int>.*dataset<float, long
// slip: PyTorch, CrossEntropyLoss takes LongTensor
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
  const std::vector<std::int64_t> long_labels(2);
  [[maybe_unused]] const std::vector<std::int32_t> short_labels(long_labels.begin(), long_labels.end());
#ifdef COMPILE_FAIL_FIXED
  const pg::dataset<float, std::int32_t> mine{pixels, short_labels, net_type::input_shape};
#else
  const pg::dataset<float, std::int64_t> mine{pixels, long_labels, net_type::input_shape};
#endif
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  trainer.step(mine);
}
