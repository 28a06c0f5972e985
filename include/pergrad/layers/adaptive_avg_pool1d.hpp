// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/adaptive_avg_pool1d.hpp - means over windows that cut any sequence into a fixed number of
// (overlapping) parts
//
// Output row i of n sees input rows floor(i h / n) .. ceil((i + 1) h / n) - 1, as in PyTorch; other axes likewise.
#pragma once

#include <cstddef>

#include <pergrad/layers/shared/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `adaptive_avg_pool1d<Positions>` on `{channels, positions}`. PyTorch: `nn.AdaptiveAvgPool1d`.
template <std::size_t Positions>
struct adaptive_avg_pool1d : detail::adaptive_windows<1, extent{Positions, 1}>, detail::mean_of_window {
  static constexpr const char* name = "adaptive_avg_pool1d";
};

}  // namespace pergrad::inline v0_1
