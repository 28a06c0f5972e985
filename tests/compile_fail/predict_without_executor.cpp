// expect-error: needs_an_executor<.*function::predict,
// slip: PyTorch, model(x)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  static_cast<void>(pg::predict(exec, net, pg::public_records{pixels}));
#else
  static_cast<void>(pg::predict(net, pg::public_records{pixels}));
#endif
}
