// expect-error: a record has a shape:
// slip: PyTorch, TensorDataset(x, y)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  const pg::dataset mine{pixels, labels, net_type::input_shape};
#else
  const pg::dataset mine{pixels, labels};
#endif
  return static_cast<int>(mine.size());
}
