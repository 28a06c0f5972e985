// expect-error: pergrad::save_parameters\(net,
// slip: PyTorch, torch.save(model.state_dict(), path)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  pg::save_parameters(net, "net.safetensors");
#else
  static_cast<void>(net.state_dict());
#endif
}
