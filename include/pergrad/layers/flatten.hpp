// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/flatten.hpp - the same values as one row of features, in PyTorch's (channels, height, width) order
#pragma once

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.Flatten`. No value moves: an executor reads the image through the next layer's view.
struct flatten {
  static constexpr const char* name = "flatten";
  static constexpr bool is_reshape = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.size()}; }
};

}  // namespace pergrad::inline v0_1
