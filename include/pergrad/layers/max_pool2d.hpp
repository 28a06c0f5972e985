// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/max_pool2d.hpp - largest value of each window; its gradient goes to the first input that equals it
#pragma once

#include <limits>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/math.hpp>
#include <pergrad/detail/pooling.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `max_pool2d<Kernel, Options...>` on `{channels, height, width}`; options `stride<>` (default: the kernel),
/// `padding<>` (counts as minus infinity). PyTorch: `nn.MaxPool2d` with its tie rule: first in row order.
template <extent Kernel, class... Options>
struct max_pool2d : detail::sliding_windows<Kernel, Options...> {
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value start() noexcept {
    return Value{} - std::numeric_limits<math::element_t<Value>>::infinity();
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value combine(Value best, Value x) noexcept {
    return math::select(x > best, x, math::select(x != x, x, best));  // a NaN wins and stays, as in PyTorch
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value finish(Value best, math::element_t<Value> /*divisor*/) noexcept {
    return best;
  }
  /// The part of `dy` that belongs to input x. `remaining` is dy before the window's first input, what is left after
  /// it.
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value share(Value x, Value y, Value& remaining,
                                              math::element_t<Value> /*divisor*/) noexcept {
    const Value part = math::select(x == y, remaining, Value{});
    remaining = math::select(x == y, Value{}, remaining);
    return part;
  }
};

}  // namespace pergrad::inline v0_1
