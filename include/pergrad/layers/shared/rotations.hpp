// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/rotations.hpp - sines and cosines of t w_k, w_k = base^(-2k / width), of positions t
#pragma once

#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/simd/math.hpp>
#include <pergrad/simd/rounded.hpp>

namespace pergrad::inline v0_1::detail {

/// Of x >= 1, at compile time, to about 1e-16 of it.
[[nodiscard]] constexpr double natural_logarithm(double x) noexcept {
  double halvings = 0;
  for (; x > 1.5; x /= 2) ++halvings;
  const double s = (x - 1) / (x + 1), square = s * s;
  double series = 0;
  for (int n = 41; n > 0; n -= 2) series = series * square + 1.0 / n;
  return halvings * 0x1.62e42fefa39efp-1 + 2 * s * series;
}

/// A logarithm in two parts.
struct log_of_base {
  double high = 0;
  double low = 0;
};

/// base^(-2k / width).
[[nodiscard]] PERGRAD_HD inline double frequency(std::ptrdiff_t k, std::ptrdiff_t width, log_of_base base) noexcept {
  const double share = -2 * static_cast<double>(k) / static_cast<double>(width);
  const double power = share * base.high;
  const double low = rounded::fma(share, base.high, -power) + share * base.low;
  return math::exp(power) * (1 + low);
}
/// sin w and cos w for 0 <= w <= 1, by their series.
PERGRAD_HD inline void turn_by(double w, double& sine, double& cosine) noexcept {
  const double square = w * w;
  double of_sine = 1;
  double of_cosine = 1;
  for (int n = 10; n > 0; --n) {
    of_sine = 1 - square / (2 * n * (2 * n + 1)) * of_sine;
    of_cosine = 1 - square / (2 * n * (2 * n - 1)) * of_cosine;
  }
  sine = w * of_sine;
  cosine = of_cosine;
}

/// `put(t, k, sine, cosine)` of all positions t and of all frequencies k < (width + 1) / 2, in double: from one
/// position to the next, (cos, sin) turns by the angle w_k. Errors of the turning add up to about t units in the last
/// place of a double, which is less than what a float holds for t up to 10^8.
template <class Team, class Put>
PERGRAD_HD void each_rotation(const Team& team, std::ptrdiff_t positions, std::ptrdiff_t width, log_of_base base,
                              const Put& put) {
  constexpr int together = 4;  // frequencies side by side, to hide the latency of their chains
  const std::ptrdiff_t count = (width + 1) / 2;
  team.each((count + together - 1) / together, [&](std::ptrdiff_t group) {
    const std::ptrdiff_t first = group * together;
    double sine[together];
    double cosine[together];
    double turn_sine[together];
    double turn_cosine[together];
    for (int k = 0; k < together; ++k) {
      sine[k] = 0;
      cosine[k] = 1;
      turn_by(frequency(first + k, width, base), turn_sine[k], turn_cosine[k]);
    }
    for (std::ptrdiff_t t = 0; t < positions; ++t) {
      for (int k = 0; k < together; ++k) {
        if (first + k < count) put(t, first + k, sine[k], cosine[k]);
        const double before = sine[k];
        sine[k] = before * turn_cosine[k] + cosine[k] * turn_sine[k];
        cosine[k] = cosine[k] * turn_cosine[k] - before * turn_sine[k];
      }
    }
  });
}

}  // namespace pergrad::inline v0_1::detail
