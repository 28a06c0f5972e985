// expect-error: the executor says where
// slip: PyTorch, model.to("cuda")
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  net_type there{exec, pg::kaiming_uniform{1}};
#else
  net.to("cuda");
#endif
}
