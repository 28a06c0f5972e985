// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/max_pool2d.hpp - largest value of each window of an image; its gradient goes to the first input that
// equals it
#pragma once

#include <pergrad/layers/shared/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `max_pool2d<Kernel, Options...>` on `{channels, height, width}`; options `stride<>` (default: the kernel),
/// `padding<>` (counts as minus infinity). PyTorch: `nn.MaxPool2d` with its tie rule: first in row order.
template <extent Kernel, class... Options>
struct max_pool2d : detail::sliding_windows<2, Kernel, Options...>, detail::maximum_of_window {
  static constexpr const char* name = "max_pool2d";
};

}  // namespace pergrad::inline v0_1
