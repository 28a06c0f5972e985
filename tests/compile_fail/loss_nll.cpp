// expect-error: loss_of_pytorch_not_offered<.*nll_loss
// slip: PyTorch, nn.NLLLoss
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  const pg::batch<net_type, pg::cross_entropy> mine{pixels, labels};
#else
  const pg::batch<net_type, pg::nll_loss> mine{pixels, labels};
#endif
  return static_cast<int>(mine.size());
}
