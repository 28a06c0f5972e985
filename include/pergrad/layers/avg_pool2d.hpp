// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/avg_pool2d.hpp - mean of each window of an image, padding counted; every input gets an equal
// share of the gradient
#pragma once

#include <pergrad/layers/shared/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `avg_pool2d<Kernel, Options...>` on `{channels, height, width}`; options `stride<>` (default: the kernel),
/// `padding<>` (zeros that count in the mean). PyTorch: `nn.AvgPool2d` with its default `count_include_pad=True`.
template <extent Kernel, class... Options>
struct avg_pool2d : detail::sliding_windows<2, Kernel, Options...>, detail::mean_of_window {
  static constexpr const char* name = "avg_pool2d";
};

}  // namespace pergrad::inline v0_1
