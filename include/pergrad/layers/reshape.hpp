// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/reshape.hpp - the same values, in PyTorch's order, under another shape
#pragma once

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `reshape<shape{...}>` of as many values as the input has. PyTorch: `nn.Unflatten`, `x.reshape(...)`. An executor
/// copies only where the next layer needs another order in memory.
template <shape Output>
struct reshape {
  static constexpr const char* name = "reshape";
  static constexpr bool is_reshape = true;
  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return Output; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    // Numbers become no ids, and nobody knows the lengths of what is cut anew.
    if (Output.ids != 0 || Output.varying_axis() != 0) return detail::mistake::option_not_offered;
    return Output.size() == in.size() ? detail::mistake::none : detail::mistake::reshape_changes_size;
  }
};

}  // namespace pergrad::inline v0_1
