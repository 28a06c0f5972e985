// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/batch_norm.hpp - names that explain why they are missing
#pragma once

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Batch normalisation mixes the samples of a batch; a network with it does not compile and the error says what to use.
struct batch_norm {
  static constexpr bool mixes_samples = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
};

}  // namespace detail

/// Not available: use `group_norm`, which looks at one sample.
struct batch_norm1d : detail::batch_norm {};
/// Not available: use `group_norm`, which looks at one sample.
struct batch_norm2d : detail::batch_norm {};
/// Not available: use `group_norm`, which looks at one sample.
struct batch_norm3d : detail::batch_norm {};

}  // namespace pergrad::inline v0_1
