// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/conv3d.hpp - 3-d convolution of a volume
//
//     y[o, d, i, j] = b[o] + sum_{c, m, k, l} W[o, c, m, k, l] x[c, d s + m r - p, i s + k r - p, j s + l r - p]
//
// Its per-sample gradient is in layers/shared/convolution.hpp.
#pragma once

#include <cstddef>

#include <pergrad/layers/shared/convolution.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `conv3d<Channels, Kernel, Options...>` on `{channels, depth, height, width}`. Kernel: one number, or `extent{depth,
/// height, width}`. Options in any order: `stride<>`, `padding<>`, `dilation<>`, `groups<>`, `no_bias`. PyTorch:
/// `nn.Conv3d` with zero padding; parameters: weight `[Channels, channels / groups, depth, height, width]`, then bias.
template <std::size_t Channels, extent Kernel, class... Options>
struct conv3d : detail::convolution<3, Channels, Kernel, Options...> {
  static constexpr const char* name = "conv3d";
};

}  // namespace pergrad::inline v0_1
