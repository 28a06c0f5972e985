// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/softplus.hpp - smooth rectifier  y = log(1 + e^x);  dy/dx = sigmoid(x)
#pragma once

#include <pergrad/detail/host_device.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.Softplus` with beta 1 (computed exactly: PyTorch's switch to y = x above its threshold 20 differs by
/// 2e-9).
struct softplus {
  static constexpr const char* name = "softplus";
  static constexpr bool on_device = true;
  static constexpr bool on_vectors = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::softplus(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value x, Value /*y*/) noexcept {
    return math::sigmoid(x);
  }
};

}  // namespace pergrad::inline v0_1
