// SPDX-License-Identifier: Apache-2.0
// pergrad/graph/shape_text.hpp - a shape for people
#pragma once

#include <cstddef>
#include <string>

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

[[nodiscard]] inline std::string to_text(shape of) {
  std::string text = "{";
  for (std::size_t axis = 0; axis < of.rank(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(of[axis]);
  return text + "}";
}

}  // namespace pergrad::inline v0_1::detail
