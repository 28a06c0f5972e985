// expect-error: numbers_of_another_type<.*span<const float.*span<const int.*numbers_given<.*vector<float.*vector<unsigned
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<10>>;

int main() {
  const std::vector<float> pixels(2 * 64);
#ifdef COMPILE_FAIL_FIXED
  const std::vector<std::int32_t> labels(2);
#else
  const std::vector<std::uint32_t> labels(2);
#endif
  const pg::batch<net_type, pg::cross_entropy> samples{pixels, labels};
  return static_cast<int>(samples.size());
}
