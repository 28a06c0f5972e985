// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/adaptive_avg_pool2d.hpp - means over windows that cut any image into a fixed number of (overlapping)
// parts
//
// Output row i of n sees input rows floor(i h / n) .. ceil((i + 1) h / n) - 1, as in PyTorch; other axes likewise.
#pragma once

#include <cstddef>

#include <pergrad/layers/shared/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `adaptive_avg_pool2d<Height, Width>` on `{channels, height, width}`. PyTorch: `nn.AdaptiveAvgPool2d`.
template <std::size_t Height, std::size_t Width = Height>
struct adaptive_avg_pool2d : detail::adaptive_windows<2, extent{Height, Width}>, detail::mean_of_window {
  static constexpr const char* name = "adaptive_avg_pool2d";
};

}  // namespace pergrad::inline v0_1
