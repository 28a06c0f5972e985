// expect-error: temporary_array<.*vector<int
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

std::vector<float> load_images() { return std::vector<float>(2 * 64); }
std::vector<std::int32_t> load_labels() { return std::vector<std::int32_t>(2); }

int main() {
#ifdef COMPILE_FAIL_FIXED
  const auto classes = load_labels();
  return static_cast<int>(batch_type{pixels, classes}.size());
#else
  return static_cast<int>(batch_type{pixels, load_labels()}.size());
#endif
}
