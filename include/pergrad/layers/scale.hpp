// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/scale.hpp - multiplication by a constant  y = a x;  dy/dx = a
#pragma once

#include <array>
#include <ratio>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/activations.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

/// `scale<std::ratio<1, 4>>` on any shape: one factor for every value, not a parameter. The ratio is
/// rounded once to the network's own type.
template <class Ratio>
struct scale : detail::activation_from_output {
  static constexpr const char* name = "scale";
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{Ratio::num, Ratio::den}; }

  [[nodiscard]] static constexpr detail::mistake check(shape /*in*/) noexcept {
    return detail::is_ratio<Ratio> ? detail::mistake::none : detail::mistake::option_not_offered;
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return x * factor<Value>();
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value /*y*/) noexcept {
    return math::splat<Value>(factor<Value>());
  }

 private:
  /// A constant and no function's result: in functions for devices nvcc takes `long double` for `double`, and says so.
  template <class Element>
  static constexpr Element constant = static_cast<Element>(static_cast<long double>(Ratio::num) /
                                                           static_cast<long double>(Ratio::den));
  template <class Value>
  [[nodiscard]] PERGRAD_HD static constexpr math::element_t<Value> factor() noexcept {
    return constant<math::element_t<Value>>;
  }
};

}  // namespace pergrad::inline v0_1
