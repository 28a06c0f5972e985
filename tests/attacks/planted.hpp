// SPDX-License-Identifier: Apache-2.0
// tests/attacks/planted.hpp - noise that attacks must break, planted beside the library
//
//   former      what releases before 0.4 drew: Box & Muller with an angle of 24 bits, a float z, one fused multiply-add
//   textbook    the same as PyTorch's normal on a CPU has it: u and angle of 24 bits, rounded product, rounded sum
//   unrounded   the library's grid, but a sum that nobody rounded to it
//   coarse      the library's grid and rounding, but sigma z of a float z
//   half        ideal noise of half the deviation
//   repeated    ideal noise, the same in every release
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "attacks/attacks.hpp"

namespace planted {

using attacks::setting;

/// Two Gaussians from two words, in the former arithmetic but for the radius, which one pair shares.
inline std::pair<float, float> former_pair(std::uint32_t first, std::uint32_t second) {
  const double u = (static_cast<double>(first) * 256 + (second >> 23U & 0xffU) + 0.5) * 0x1p-40;
  const auto radius = static_cast<float>(std::sqrt(-2 * std::log(u)));
  const float g = static_cast<float>((second & 0x007f'fffeU) | 1U) * 0x1p-23F - 0.5F;
  const float g2 = g * g;
  float s = -0x1.2d9b40p-8F;
  s = std::fma(s, g2, 0x1.465ec4p-4F);
  s = std::fma(s, g2, -0x1.4abbbap-1F);
  s = std::fma(s, g2, 0x1.921fb6p+0F);
  s *= g;
  float c = 0x1.d9c2e8p-11F;
  c = std::fma(c, g2, -0x1.55c57ap-6F);
  c = std::fma(c, g2, 0x1.03c1dcp-2F);
  c = std::fma(c, g2, -0x1.3bd3ccp+0F);
  c = std::fma(c, g2, 1.0F);
  if ((second & 1U) != 0) c = -c;
  const bool swapped = second >> 31U != 0;
  return {radius * (swapped ? s : c), radius * (swapped ? c : s)};
}

inline std::pair<float, float> textbook_pair(std::uint32_t first, std::uint32_t second) {
  const float u = 1 - static_cast<float>(first & 0xff'ffffU) * 0x1p-24F;
  const float angle = 2 * std::numbers::pi_v<float> * (static_cast<float>(second & 0xff'ffffU) * 0x1p-24F);
  const float radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

enum class kind { former, textbook, unrounded, coarse, half, repeated };

/// The released numbers of a sum. Elements i and i + 256 of a tile of 512 are a pair.
template <class Scalar>
std::vector<double> release(kind which, std::span<const double> sum, const setting& known, std::mt19937_64& words) {
  std::vector<float> z(sum.size() + 512);
  std::vector<double> ideal(z.size());
  std::normal_distribution<double> normal;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (i % 512 >= 256) continue;
    const std::uint64_t word = words();
    const auto first = static_cast<std::uint32_t>(word);
    const auto second = static_cast<std::uint32_t>(word >> 32U);
    const auto pair = which == kind::textbook ? textbook_pair(first, second) : former_pair(first, second);
    z[i] = pair.first;
    z[i + 256] = pair.second;
    if (which == kind::unrounded || which == kind::half || which == kind::repeated) {
      ideal[i] = normal(words);
      ideal[i + 256] = normal(words);
    }
  }
  const auto deviation = static_cast<Scalar>(known.deviation);
  std::vector<double> released(sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const auto x = static_cast<Scalar>(sum[i]);
    const auto wide = static_cast<Scalar>(z[i]);
    const double place = std::nearbyint(sum[i] / known.grid);
    const double steps = known.deviation / known.grid;
    Scalar value{};
    switch (which) {
      case kind::former:
        value = std::fma(deviation, wide, x);
        break;
      case kind::textbook: {
        const volatile Scalar noise = deviation * wide;
        value = noise + x;
        break;
      }
      case kind::unrounded:
        value = static_cast<Scalar>(sum[i] + known.grid * std::nearbyint(steps * ideal[i]));
        break;
      case kind::coarse:
        value = static_cast<Scalar>(known.grid * (place + std::nearbyint(steps * static_cast<double>(z[i]))));
        break;
      case kind::repeated:
        value = static_cast<Scalar>(known.grid * (place + std::nearbyint(steps * ideal[i])));
        break;
      case kind::half:
        value = static_cast<Scalar>(known.grid * (place + std::nearbyint(steps / 2 * ideal[i])));
        break;
    }
    released[i] = static_cast<double>(value);
  }
  return released;
}

}  // namespace planted
