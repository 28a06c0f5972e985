// expect-error: temporary_array<.*vector<unsigned int
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

std::vector<float> load_images() { return std::vector<float>(2 * 64); }
std::vector<std::int32_t> load_labels() { return std::vector<std::int32_t>(2); }

int main() {
  const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};
#ifdef COMPILE_FAIL_FIXED
  const std::vector<std::uint32_t> ids{0};
  const batch_type chosen{records, ids};
#else
  const batch_type chosen{records, std::vector<std::uint32_t>{0}};
#endif
}
