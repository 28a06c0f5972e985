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
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
  const pg::unprotected::gradient<net_type> gradient{exec};
#ifdef COMPILE_FAIL_FIXED
  pg::unprotected::step(optimizer, exec, net, gradient);
#else
  pg::unprotected::step(optimizer, exec, std::as_const(net), gradient);
#endif
}
