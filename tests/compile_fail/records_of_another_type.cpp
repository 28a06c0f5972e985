// expect-error: numbers_of_another_type<.*span<const float.*span<const int.*numbers_given<.*vector<double.*vector<int
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

int main() {
#ifdef COMPILE_FAIL_FIXED
  const std::vector<float> pixels(2 * 64);
#else
  const std::vector<double> pixels(2 * 64);
#endif
  const std::vector<std::int32_t> labels(2);
  const pg::dataset<float, std::int32_t> records{pixels, labels, pg::shape{1, 8, 8}};
  return static_cast<int>(records.size());
}
