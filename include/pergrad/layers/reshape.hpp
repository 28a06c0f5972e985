// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/reshape.hpp - the same values under another shape
#pragma once

#include <pergrad/concepts.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// One row of features, in PyTorch's (channels, height, width) order. PyTorch: `nn.Flatten`. No value moves: an
/// executor reads the image through the next layer's view.
struct flatten {
  static constexpr const char* name = "flatten";
  static constexpr bool is_reshape = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.size()}; }
};

namespace detail {

/// `Output` names the shape, for messages.
template <class Output>
struct reshape_to {
  static constexpr const char* name = "reshape";
  static constexpr bool is_reshape = true;
  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return Output::value; }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    // Numbers become no ids, and nobody knows the lengths of what is cut anew.
    if (Output::value.ids != 0 || Output::value.varying_axis() != 0) return mistake::option_not_offered;
    return Output::value.size() == in.size() ? mistake::none : mistake::reshape_changes_size;
  }
};

}  // namespace detail

/// `reshape<shape{...}>` of as many values as the input has, in PyTorch's order. PyTorch: `nn.Unflatten`,
/// `x.reshape(...)`. An executor copies only where the next layer needs another order in memory.
template <shape Output>
using reshape = detail::reshape_to<detail::shape_name<Output>>;

/// y[j, i] = x[i, j]. Between layers that take (positions, features) and those that take (channels, positions), such as
/// `conv1d`. No value moves: both are the same sequence in memory. PyTorch: `x.transpose(1, 2)`.
struct transpose : detail::keeps_every_length {
  static constexpr const char* name = "transpose";
  static constexpr bool is_reshape = true;
  static constexpr bool is_transpose = true;
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    shape out{in.e1, in.e0};
    out.set_varying_axis(in.varying_axis() == 0 ? 0 : 3 - in.varying_axis());
    return out;
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return in.rank() == 2 ? detail::mistake::none : detail::mistake::needs_two_axes;
  }
};

}  // namespace pergrad::inline v0_1
