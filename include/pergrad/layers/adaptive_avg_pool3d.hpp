// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/adaptive_avg_pool3d.hpp - means over windows that cut any volume into a fixed number of (overlapping)
// parts
//
// Output row i of n sees input rows floor(i h / n) .. ceil((i + 1) h / n) - 1, as in PyTorch; other axes likewise.
#pragma once

#include <cstddef>

#include <pergrad/layers/shared/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `adaptive_avg_pool3d<Depth, Height, Width>` on `{channels, depth, height, width}`. PyTorch: `nn.AdaptiveAvgPool3d`.
template <std::size_t Depth, std::size_t Height = Depth, std::size_t Width = Height>
struct adaptive_avg_pool3d : detail::adaptive_windows<3, extent{Depth, Height, Width}>, detail::mean_of_window {
  static constexpr const char* name = "adaptive_avg_pool3d";
};

}  // namespace pergrad::inline v0_1
