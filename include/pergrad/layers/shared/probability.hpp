// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/probability.hpp - the probability with which a layer drops a value, as a template argument
#pragma once

#include <concepts>
#include <cstdint>

#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1 {

/// Written as a number: `dropout<0.1>`. Kept as the simplest fraction that is this number in its type, as messages and
/// files show it. Numbers outside of [0, 1) are an error of the layer that gets them.
struct probability {
  std::intmax_t numerator = 0;
  std::intmax_t denominator = 1;

  // Implicit, so that a template argument is a number.
  template <std::floating_point Real>
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr probability(Real value) noexcept {
    const double size = static_cast<double>(value < 0 ? -value : value);
    if (!(size < 1)) {
      numerator = size < 0x1p53 ? static_cast<std::intmax_t>(value) : 1;
      return;
    }
    // Continued fractions: no other is nearer with a denominator that is as small.
    constexpr std::intmax_t most = std::intmax_t{1} << 53U;
    fraction before{0, 1};
    fraction last{1, 0};
    for (double rest = size; rest < 0x1p53;) {
      const auto whole = static_cast<std::intmax_t>(rest);
      if (last.denominator != 0 && whole > (most - before.denominator) / last.denominator) break;
      const fraction next{whole * last.numerator + before.numerator, whole * last.denominator + before.denominator};
      before = last;
      last = next;
      const double left = rest - static_cast<double>(whole);
      const double found = static_cast<double>(last.numerator) / static_cast<double>(last.denominator);
      if (left == 0 || static_cast<double>(static_cast<Real>(found)) == size) break;
      rest = 1 / left;
    }
    numerator = value < 0 ? -last.numerator : last.numerator;
    denominator = last.denominator;
  }
#if PERGRAD_WRITES_MEMBERS
  constexpr probability(std::intmax_t of, std::intmax_t in) noexcept : numerator{of}, denominator{in} {}
#endif
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr probability(int value) noexcept : probability{static_cast<double>(value)} {}

  /// Whether it is in [0, 1).
  [[nodiscard]] constexpr bool holds() const noexcept { return numerator >= 0 && numerator < denominator; }
  /// 2^32 p: what has this probability is that 32 random bits are below. Precondition: holds().
  [[nodiscard]] constexpr std::uint32_t threshold() const noexcept {
    std::uint32_t bits = 0;
    std::intmax_t rest = numerator;
    for (int bit = 0; bit < 32; ++bit) {
      rest *= 2;
      bits = 2 * bits + (rest >= denominator ? 1U : 0U);
      rest -= rest >= denominator ? denominator : 0;
    }
    return bits;
  }
  /// 1 / (1 - p), by which what is kept is multiplied.
  [[nodiscard]] constexpr double scale() const noexcept {
    return static_cast<double>(denominator) / static_cast<double>(denominator - numerator);
  }

 private:
  struct fraction {
    std::intmax_t numerator;
    std::intmax_t denominator;
  };
};

}  // namespace pergrad::inline v0_1
