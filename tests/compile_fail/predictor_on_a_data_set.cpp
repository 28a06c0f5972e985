// expect-error: records_of_another_type<.*span<(float const|const float).*dataset<float, int>
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::predictor predict_one{exec, net};
#ifdef COMPILE_FAIL_FIXED
  return predict_one(pg::public_records{std::span{pixels}.first(64)}).size() > 1;
#else
  const pg::dataset<float, std::int32_t> records{pixels, labels, net_type::input_shape};
  return predict_one(pg::public_records{records}).size() > 1;
#endif
}
