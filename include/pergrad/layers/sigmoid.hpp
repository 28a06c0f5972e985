// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/sigmoid.hpp - logistic function  y = 1 / (1 + e^-x);  dy/dx = y (1 - y)
#pragma once

#include <pergrad/detail/host_device.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.Sigmoid`.
struct sigmoid {
  static constexpr const char* name = "sigmoid";
  static constexpr bool on_device = true;
  static constexpr bool on_vectors = true;
  static constexpr bool derivative_from_output = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::sigmoid(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return y * (1 - y);
  }
};

}  // namespace pergrad::inline v0_1
