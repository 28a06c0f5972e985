// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/conv2d.hpp - 2-d convolution
//
//     y[o, i, j] = b[o] + sum_{c, k, l} W[o, c, k, l] x[c, i s + k r - p, j s + l r - p]
//
// Its per-sample gradient is in layers/shared/convolution.hpp.
#pragma once

#include <cstddef>

#include <pergrad/layers/shared/convolution.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `conv2d<Channels, Kernel, Options...>` on `{channels, height, width}`. Kernel: one number, or `extent{height,
/// width}`. Options in any order: `stride<>`, `padding<>`, `dilation<>`, `groups<>`, `no_bias`. PyTorch: `nn.Conv2d`
/// with zero padding; parameters: weight `[Channels, channels / groups, height, width]`, then bias.
template <std::size_t Channels, extent Kernel, class... Options>
struct conv2d : detail::convolution<2, Channels, Kernel, Options...> {
  static constexpr const char* name = "conv2d";
};

}  // namespace pergrad::inline v0_1
