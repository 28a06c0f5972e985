// expect-error: a copy is made by a word: net\.clone\(\)
// slip: PyTorch, copy.deepcopy(model)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  const net_type other = net.clone();
#else
  const net_type other = net;
#endif
  static_cast<void>(other.parameters());
}
