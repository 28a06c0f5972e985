// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/batch_norm.hpp - names that explain why they are missing
//
// A batch norm's output for one sample depends on all others, so no per-sample gradient exists (see docs/privacy.md).
// What takes its place: group_norm or instance_norm, or frozen<channel_affine> for one with fixed statistics.
#pragma once

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// Batch normalisation mixes the samples of a batch; a network with it does not compile and the error says what to use.
struct batch_norm1d {
  static constexpr bool mixes_samples = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
};
/// As `batch_norm1d`.
struct batch_norm2d : batch_norm1d {};
/// As `batch_norm1d`.
struct batch_norm3d : batch_norm1d {};

}  // namespace pergrad::inline v0_1
