// expect-error: a seed of what\? \{exec, pergrad::kaiming_uniform
// slip: PyTorch, manual_seed(1)
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
  const net_type other{exec, 1};
#endif
  return other.parameters().empty() ? 1 : 0;
}
