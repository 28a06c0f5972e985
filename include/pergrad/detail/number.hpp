// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/number.hpp - a number as an option of a layer or a loss: `leaky_relu<0.2>`
//
// clang takes no double as a template argument before version 18, but an object that holds one.
#pragma once

#include <limits>

namespace pergrad::inline v0_1::detail {

/// Two are the same argument if their bits are the same. The member is public because a template argument's has to be.
struct number {
  double value;

  // NOLINTNEXTLINE(google-explicit-constructor): a double is what is written there
  consteval number(double given) noexcept : value{given} {}
  /// Finite and not negative.
  [[nodiscard]] constexpr bool is_size() const noexcept {
    return value >= 0 && value <= std::numeric_limits<double>::max();
  }
};

}  // namespace pergrad::inline v0_1::detail
