// expect-error: temporary_array<.*vector<float
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

std::vector<float> load_images() { return std::vector<float>(2 * 64); }

int main() {
#ifdef COMPILE_FAIL_FIXED
  const auto images = load_images();
  const pg::public_records test{images};
#else
  const pg::public_records test{load_images()};
#endif
  return predict(exec, net, test).size() > 1;
}
