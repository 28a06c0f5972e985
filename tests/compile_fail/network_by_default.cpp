// expect-error: \{exec, pergrad::kaiming_uniform\{1\}\}
// slip: PyTorch, model = Net()
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  const net_type other{exec, pg::kaiming_uniform{1}};
#else
  const net_type other;
#endif
  static_cast<void>(other.parameters());
}
