// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/relu.hpp - rectified linear unit  y = max(x, 0);  dy/dx = 1 where y > 0, else 0 (0 at 0, as PyTorch)
#pragma once

#include <pergrad/detail/host_device.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.ReLU`. A NaN stays a NaN, so that a sample with one is found and dropped.
struct relu {
  static constexpr const char* name = "relu";
  static constexpr bool on_device = true;
  static constexpr bool on_vectors = true;
  static constexpr bool derivative_from_output = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::select(x < Value{}, Value{}, x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return math::select(y > Value{}, Value{} + 1, Value{});
  }
};

}  // namespace pergrad::inline v0_1
