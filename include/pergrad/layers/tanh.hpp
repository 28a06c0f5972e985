// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/tanh.hpp - hyperbolic tangent  y = tanh x;  dy/dx = 1 - y^2
#pragma once

#include <pergrad/detail/host_device.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.Tanh`. Bounded activations help private training (Papernot et al. 2021, arXiv:2007.14191).
struct tanh {
  static constexpr const char* name = "tanh";
  static constexpr bool on_device = true;
  static constexpr bool on_vectors = true;
  static constexpr bool derivative_from_output = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::tanh(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return 1 - y * y;
  }
};

}  // namespace pergrad::inline v0_1
