// SPDX-License-Identifier: Apache-2.0
// tests/attacks/planted.hpp - noise that attacks must break, planted beside the library
//
//   former      what releases drew before: Box & Muller with an angle of 24 bits, a float z, one fused multiply-add
//   textbook    the same as PyTorch's normal on a CPU has it: u and angle of 24 bits, rounded product, rounded sum
//   summed      four of these added up, by two, as Opacus' secure mode has it
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

enum class kind { former, textbook, summed, unrounded, coarse, half, repeated };

/// Standard Gaussians; elements i and i + 256 of a tile of 512 are a pair of `pair_of(first word, second word)`.
template <class Pair>
std::vector<double> standard(std::size_t count, std::mt19937_64& words, const Pair& pair_of) {
  std::vector<double> z(count + 512);
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 512 >= 256) continue;
    const std::uint64_t word = words();
    const auto pair = pair_of(static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32U));
    z[i] = static_cast<double>(pair.first);
    z[i + 256] = static_cast<double>(pair.second);
  }
  return z;
}

/// The released numbers of a sum.
template <class Scalar>
std::vector<double> release(kind which, std::span<const double> sum, const setting& known, std::mt19937_64& words) {
  const auto deviation = static_cast<Scalar>(known.deviation);
  const double steps = known.deviation / known.grid;
  std::vector<double> released(sum.begin(), sum.end());
  const auto each = [&](const std::vector<double>& z, const auto& value) {
    for (std::size_t i = 0; i < sum.size(); ++i) released[i] = static_cast<double>(static_cast<Scalar>(value(i, z[i])));
  };
  if (which == kind::former) {
    each(standard(sum.size(), words, former_pair), [&](std::size_t i, double z) {
      return std::fma(deviation, static_cast<Scalar>(z), static_cast<Scalar>(sum[i]));
    });
  } else if (which == kind::textbook || which == kind::summed) {
    std::vector<Scalar> noise(sum.size());
    for (int term = 0; term < (which == kind::summed ? 4 : 1); ++term) {
      const auto z = standard(sum.size(), words, textbook_pair);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const volatile Scalar one = deviation * static_cast<Scalar>(z[i]);
        noise[i] += one;
      }
    }
    each({noise.begin(), noise.end()}, [&](std::size_t i, double x) {
      return static_cast<Scalar>(which == kind::summed ? x / 2 : x) + static_cast<Scalar>(sum[i]);
    });
  } else {
    std::normal_distribution<double> normal;
    const auto ideal_pair = [&](std::uint32_t, std::uint32_t) {
      const double one = normal(words);
      return std::pair{one, normal(words)};
    };
    const auto z =
        which == kind::coarse ? standard(sum.size(), words, former_pair) : standard(sum.size(), words, ideal_pair);
    const double share = which == kind::half ? 0.5 : 1;
    each(z, [&](std::size_t i, double x) {
      const double place = sum[i] / known.grid;
      const double noise = std::nearbyint(share * steps * x);
      return which == kind::unrounded ? sum[i] + known.grid * noise : known.grid * (std::nearbyint(place) + noise);
    });
  }
  return released;
}

}  // namespace planted
