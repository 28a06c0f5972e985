// expect-error: needs_an_executor<.*function::evaluate_classifier,
// slip: PyTorch, accuracy(model, loader)
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "training_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  return pg::evaluate_classifier(exec, net, pg::public_records{records}).accuracy > 1 ? 1 : 0;
#else
  return pg::evaluate_classifier(net, pg::public_records{records}).accuracy > 1 ? 1 : 0;
#endif
}
