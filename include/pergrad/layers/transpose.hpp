// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/transpose.hpp - exchanges the two axes of a sequence: (positions, features) and (channels, positions)
#pragma once

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// y[j, i] = x[i, j]. Between layers that take (positions, features) and those that take (channels, positions), such as
/// `conv1d`. No value moves: both are the same sequence in memory. PyTorch: `x.transpose(1, 2)`.
struct transpose {
  static constexpr const char* name = "transpose";
  static constexpr bool is_reshape = true;
  static constexpr bool is_transpose = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    shape out{in.e1, in.e0};
    out.set_varying_axis(in.varying_axis() == 0 ? 0 : 3 - in.varying_axis());
    return out;
  }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_two_axes;
  }
};

}  // namespace pergrad::inline v0_1
