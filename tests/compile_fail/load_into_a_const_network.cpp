// expect-error: declare the network without const
// slip: C++, a network that is declared const
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  pg::load_parameters(net, "net.safetensors");
#else
  pg::load_parameters(std::as_const(net), "net.safetensors");
#endif
}
