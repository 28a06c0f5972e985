// expect-error: it refers to the executor: const pergrad::host exec
// slip: C++, a reference to what is gone
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  pg::predictor predict{exec, net};
#else
  pg::predictor predict{pg::host{}, net};
#endif
  return predict(pg::public_records{std::span{pixels}.first<64>()})[0] > 0 ? 0 : 1;
}
