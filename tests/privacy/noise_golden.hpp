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
inline constexpr std::uint64_t expected = 0xde976cb8c157df9aULL;

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

/// Words that random draws never show: every leading-zero count of the 64-bit uniform, both ends of the range, the seam
/// at 1/sqrt(2), and angles on and beside every axis.
inline std::vector<std::array<std::uint32_t, 3>> special_words() {
  std::vector<std::array<std::uint32_t, 3>> words;
  const std::array<std::uint32_t, 8> angles{0U,           0x1fff'ffffU, 0x2000'0000U, 0x4000'0000U,
                                            0x7fff'ffffU, 0x8000'0000U, 0xdfff'ffffU, 0xffff'ffffU};
  std::size_t turn = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    const std::uint64_t seam = bit < 31 ? power : (std::uint64_t{0xb504f333U} << 32U) >> (63U - bit);
    for (const std::uint64_t u : {power, power - 1, power | (power >> 1U), power | 0x5555U, seam, seam - 1, seam + 1}) {
      words.push_back({static_cast<std::uint32_t>(u >> 32U), static_cast<std::uint32_t>(u & 0xffff'ffffU),
                       angles[turn++ % angles.size()]});
    }
  }
  for (const std::uint32_t high : {0xffff'ffffU, 0xb504'f333U, 0xb504'f334U, 0x8000'0000U, 0x7fff'ffffU}) {
    for (const std::uint32_t angle : angles) words.push_back({high, 0xffff'ffffU, angle});
  }
  return words;
}

template <int Lanes>
void hash_special_words(fnv& hash) {
  using detail_lanes = pergrad::detail::lanes<Lanes>;
  for (const auto& word : special_words()) {
    typename detail_lanes::f32 along_cosine{};
    typename detail_lanes::f32 along_sine{};
    pergrad::detail::box_muller<Lanes>(pergrad::detail::splat_u32<Lanes>(word[0]),
                                       pergrad::detail::splat_u32<Lanes>(word[1]),
                                       pergrad::detail::splat_u32<Lanes>(word[2]), along_cosine, along_sine);
    std::array<float, static_cast<std::size_t>(Lanes)> cosines{};
    std::array<float, static_cast<std::size_t>(Lanes)> sines{};
    std::memcpy(cosines.data(), &along_cosine, sizeof along_cosine);
    std::memcpy(sines.data(), &along_sine, sizeof along_sine);
    hash.add(cosines.back());
    hash.add(sines.back());
  }
}

/// Hash of special words, 1,000,003 standard Gaussians, and scaled sums in float and double.
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
