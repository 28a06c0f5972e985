// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/conv1d.hpp - 1-d convolution along a sequence
//
//     y[o, i] = b[o] + sum_{c, k} W[o, c, k] x[c, i s + k r - p]
//
// Its per-sample gradient is in layers/shared/convolution.hpp.
#pragma once

#include <cstddef>

#include <pergrad/layers/shared/convolution.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `conv1d<Channels, Kernel, Options...>` on `{channels, positions}`; put `transpose` before it if the sequence is
/// (positions, features). Options in any order: `stride<>`, `padding<>`, `dilation<>`, `groups<>`, `no_bias`. PyTorch:
/// `nn.Conv1d` with zero padding; parameters: weight `[Channels, channels / groups, Kernel]`, then bias.
template <std::size_t Channels, std::size_t Kernel, class... Options>
struct conv1d : detail::convolution<1, Channels, extent{Kernel}, Options...> {
  static constexpr const char* name = "conv1d";
};

}  // namespace pergrad::inline v0_1
