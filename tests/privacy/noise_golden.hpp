// SPDX-License-Identifier: Apache-2.0
// tests/privacy/noise_golden.hpp - one hash over a large block of noise, the same on every compiler, flag and machine.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <pergrad/privacy/noise.hpp>

namespace noise_golden {

/// What `noise_hash` gives for every vector width, found with g++ 12 and pinned.
inline constexpr std::uint64_t expected = 0x77abe67e91637a81ULL;

/// FNV-1a, 64 bits, over little-endian words.
class fnv {
 public:
  void add(std::uint32_t word) noexcept {
    for (unsigned byte = 0; byte < 4; ++byte) {
      state_ ^= (word >> (8U * byte)) & 0xffU;
      state_ *= 0x100000001b3ULL;
    }
  }
  void add(float value) noexcept { add(std::bit_cast<std::uint32_t>(value)); }
  void add(double value) noexcept {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    add(static_cast<std::uint32_t>(bits & 0xffff'ffffU));
    add(static_cast<std::uint32_t>(bits >> 32U));
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

/// Words that random draws never show: every number of leading zeros of the uniform's 72 bits, both ends of its range,
/// the seams at 1/2 and at `first_long_radius`, and angles on and beside every axis.
inline std::vector<std::array<std::uint32_t, 3>> special_words() {
  std::vector<std::array<std::uint32_t, 3>> words;
  const std::array<std::uint32_t, 7> places{0U, 0x1fU, 0x3f'ffffU, 0x40'0000U, 0x40'0001U, 0x2a'aaaaU, 0x7f'ffffU};
  std::size_t turn = 0;
  const auto add = [&](std::uint32_t first, std::uint32_t eight, std::uint32_t third) {
    const auto quarter = static_cast<std::uint32_t>(turn % 2) << 31U;
    words.push_back({first, quarter | ((eight & 0xffU) << 23U) | places[turn % places.size()], third});
    ++turn;
  };
  for (unsigned bit = 0; bit < 32; ++bit) {
    const std::uint32_t power = 1U << bit;
    for (const std::uint32_t pattern : {power, power - 1, power | (power >> 1U), power | 0x5555U, ~power, ~power + 1}) {
      add(pattern, 0x55U, pattern);                // the 32 bits of the first word
      if (bit < 8) add(0, pattern, 0x8000'0001U);  // the eight of the second
      if (bit < 8) add(0xffff'ffffU, pattern, 0);  // the same next to 1
      add(0, 0, pattern);                          // the third word
    }
  }
  for (const std::uint32_t first : {0U, 0xffffU, 0x1'0000U, 0x7fff'ffffU, 0x8000'0000U, 0xffff'ffffU}) {
    for (const std::uint32_t eight : {0U, 1U, 0x7fU, 0x80U, 0xffU}) {
      for (const std::uint32_t third : {0U, 1U, 0x7fff'ffffU, 0xffff'ffffU}) add(first, eight, third);
    }
  }
  return words;
}

/// The number under the logarithm as the library describes it, from three words.
template <int Lanes>
typename pergrad::detail::lanes<Lanes>::f32 uniform_of(const std::array<std::uint32_t, 3>& words) {
  namespace detail = pergrad::detail;
  if (words[0] < detail::first_long_radius) {
    return detail::splat_f32<Lanes>(detail::long_uniform(words[0], words[1], words[2]));
  }
  return detail::short_uniform<Lanes>(detail::splat_u32<Lanes>(words[0]), detail::splat_u32<Lanes>(words[1]));
}

template <int Lanes>
void hash_special_words(fnv& hash) {
  using detail_lanes = pergrad::detail::lanes<Lanes>;
  for (const auto& words : special_words()) {
    typename detail_lanes::f32 along_cosine{};
    typename detail_lanes::f32 along_sine{};
    pergrad::detail::box_muller<Lanes>(uniform_of<Lanes>(words), pergrad::detail::splat_u32<Lanes>(words[1]),
                                       along_cosine, along_sine);
    std::array<float, static_cast<std::size_t>(Lanes)> cosines{};
    std::array<float, static_cast<std::size_t>(Lanes)> sines{};
    std::memcpy(cosines.data(), &along_cosine, sizeof along_cosine);
    std::memcpy(sines.data(), &along_sine, sizeof along_sine);
    hash.add(cosines.back());
    hash.add(sines.back());
  }
}

/// Hash of special words, 1,000,003 standard Gaussians (with 8 pairs or so that have a third word), a tile whose pair
/// 107 has a first word, 3, so small that the third one decides, and scaled sums in float and double.
template <int Lanes>
std::uint64_t noise_hash() {
  pergrad::chacha_key key;
  for (std::uint32_t i = 0; i < 8; ++i) key.words[i] = 0x9e3779b9U * (i + 1);
  constexpr std::uint64_t step = 0x0123456789abcdefULL;
  constexpr auto purpose = pergrad::random_purpose::gradient_noise;
  fnv hash;
  hash_special_words<Lanes>(hash);
  std::vector<float> z(1'000'003);
  pergrad::fill_gaussian<float, Lanes>(key, purpose, step, 77, std::span{z});
  for (const float value : z) hash.add(value);
  pergrad::fill_gaussian<float, Lanes>(key, purpose, step, std::uint64_t{252906} * 512, std::span{z}.first(512));
  for (const float value : std::span{z}.first(512)) hash.add(value);
  std::vector<float> single(10'007);
  std::vector<double> twice(10'007);
  for (std::size_t i = 0; i < single.size(); ++i) {
    single[i] = static_cast<float>(i) * 0.25F;
    twice[i] = static_cast<double>(i) * 0.1;
  }
  pergrad::add_gaussian<float, Lanes>(key, purpose, step + 1, 3, 0.7, std::span{single});
  pergrad::add_gaussian<double, Lanes>(key, purpose, step + 1, 3, 0.7, std::span{twice});
  for (const float value : single) hash.add(value);
  for (const double value : twice) hash.add(value);
  return hash.value();
}

}  // namespace noise_golden
