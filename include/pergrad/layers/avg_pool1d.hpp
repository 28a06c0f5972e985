// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/avg_pool1d.hpp - mean of each window of a sequence, padding counted; every input gets an equal
// share of the gradient
#pragma once

#include <cstddef>

#include <pergrad/layers/shared/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `avg_pool1d<Kernel, Options...>` on `{channels, positions}`; options `stride<>` (default: the kernel),
/// `padding<>` (zeros that count in the mean). PyTorch: `nn.AvgPool1d` with its default `count_include_pad=True`.
template <std::size_t Kernel, class... Options>
struct avg_pool1d : detail::sliding_windows<1, extent{Kernel}, Options...>, detail::mean_of_window {
  static constexpr const char* name = "avg_pool1d";
};

}  // namespace pergrad::inline v0_1
