// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/gelu.hpp - Gaussian error linear unit  y = x Phi(x);  dy/dx = Phi(x) + x phi(x)   (Hendrycks & Gimpel
// 2016)
#pragma once

#include <pergrad/detail/host_device.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

/// PyTorch: `nn.GELU`, the exact form with erf.
struct gelu {
  static constexpr const char* name = "gelu";
  static constexpr bool on_device = true;
  static constexpr bool on_vectors = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return x * cdf(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value x, Value /*y*/) noexcept {
    using element = math::element_t<Value>;
    constexpr auto inverse_root_two_pi = static_cast<element>(0.39894228040143267793994605993438);
    return cdf(x) + x * (math::exp(x * x * static_cast<element>(-0.5)) * inverse_root_two_pi);
  }

 private:
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value cdf(Value x) noexcept {
    using element = math::element_t<Value>;
    constexpr auto inverse_root_two = static_cast<element>(0.70710678118654752440084436210485);
    return (math::erf(x * inverse_root_two) + 1) * static_cast<element>(0.5);
  }
};

}  // namespace pergrad::inline v0_1
