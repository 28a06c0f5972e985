// expect-error: a copy is made by a word: other = net\.clone\(\)
// slip: PyTorch, ema.load_state_dict(model.state_dict())
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  net_type other{exec, pg::zeros{}};
#ifdef COMPILE_FAIL_FIXED
  other = net.clone();
#else
  other = net;
#endif
}
