// expect-error: temporary_array<.*vector<float
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

std::vector<float> load_images() { return std::vector<float>(2 * 64); }
std::vector<std::int32_t> load_labels() { return std::vector<std::int32_t>(2); }

int main() {
#ifdef COMPILE_FAIL_FIXED
  const auto images = load_images();
  const auto classes = load_labels();
  const pg::dataset<float, std::int32_t> records{images, classes, net_type::input_shape};
  const pg::dataset<float, std::int32_t> part{std::span{images}.first(64),
                                              std::span<const std::int32_t>{classes}.first(1), net_type::input_shape};
  return static_cast<int>(records.size() + part.size());
#else
  const pg::dataset<float, std::int32_t> records{load_images(), load_labels(), net_type::input_shape};
  return static_cast<int>(records.size());
#endif
}
