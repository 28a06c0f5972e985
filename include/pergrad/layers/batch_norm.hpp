// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/batch_norm.hpp - a name that explains why it is missing
#pragma once

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// Batch normalisation mixes the samples of a batch; a network with it does not compile and the error says what to use.
struct batch_norm2d {
  static constexpr bool mixes_samples = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
};

}  // namespace pergrad::inline v0_1
