// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/max_pool1d.hpp - largest value of each window of a sequence; its gradient goes to the first input that
// equals it
#pragma once

#include <cstddef>

#include <pergrad/layers/shared/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `max_pool1d<Kernel, Options...>` on `{channels, positions}`; options `stride<>` (default: the kernel),
/// `padding<>` (counts as minus infinity). PyTorch: `nn.MaxPool1d` with its tie rule: first in row order.
template <std::size_t Kernel, class... Options>
struct max_pool1d : detail::sliding_windows<1, extent{Kernel}, Options...>, detail::maximum_of_window {
  static constexpr const char* name = "max_pool1d";
};

}  // namespace pergrad::inline v0_1
