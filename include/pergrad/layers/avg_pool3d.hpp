// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/avg_pool3d.hpp - mean of each window of a volume, padding counted; every input gets an equal
// share of the gradient
#pragma once

#include <pergrad/layers/shared/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `avg_pool3d<Kernel, Options...>` on `{channels, depth, height, width}`; options `stride<>` (default: the kernel),
/// `padding<>` (zeros that count in the mean). PyTorch: `nn.AvgPool3d` with its default `count_include_pad=True`.
template <extent Kernel, class... Options>
struct avg_pool3d : detail::sliding_windows<3, Kernel, Options...>, detail::mean_of_window {
  static constexpr const char* name = "avg_pool3d";
};

}  // namespace pergrad::inline v0_1
