// SPDX-License-Identifier: Apache-2.0
// tests/privacy/rounded_gaussian_golden.hpp - one hash over a large block of noise, the same on every compiler, flag
// and machine
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <pergrad/privacy/noise/rounded_gaussian.hpp>

namespace noise_golden {

/// What `noise_hash` gives for every vector width, found with g++ 12 and pinned.
inline constexpr std::uint64_t expected = 0xe8d5c7b8af9e0301ULL;

/// FNV-1a, 64 bits, over little-endian words.
class fnv {
 public:
  void add(std::int64_t value) noexcept {
    auto word = static_cast<std::uint64_t>(value);
    for (unsigned byte = 0; byte < 8; ++byte) {
      state_ ^= (word >> (8U * byte)) & 0xffU;
      state_ *= 0x100000001b3ULL;
    }
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

/// Bits that random draws never show: every number of leading zeros of U, both of its ends, and angles on and beside
/// every axis and seam.
template <class Visitor>
void for_each_special_pair(const Visitor& visit) {
  constexpr std::array<std::uint32_t, 6> places{0U, 1U, 0x1fff'ffffU, 0x2000'0000U, 0x2aaa'aaaaU, 0x3fff'ffffU};
  std::uint32_t turn = 0;
  const auto add = [&](std::uint32_t high, std::uint32_t low, std::uint32_t more) {
    pergrad::detail::gaussian_bits bits{};
    for (int i = 0; i < pergrad::detail::gaussian_bits::words; ++i) {
      bits.u[i] = i == 0 ? high : i == 1 ? low : more;
      bits.v[i] = i == 0 ? (turn % 4) << 30U | places[turn % 6] : i == 1 ? more : ~more;
    }
    ++turn;
    visit(bits);
  };
  for (unsigned bit = 0; bit < 32; ++bit) {
    const std::uint32_t power = std::uint32_t{1} << bit;
    for (const std::uint32_t pattern : {power, power - 1, power | 0x5555U, ~power, ~power + 1}) {
      add(pattern, 0x5555'5555U, 0x1234'5678U);
      add(0, pattern, 0x8765'4321U);
      add(0, 0, pattern);
      add(~0U, pattern, 0);
      add(~0U, ~0U, pattern);
    }
  }
}

/// Hash of special pairs made exactly, and of 1,000 tiles for each of a few standard deviations, the first of which
/// settle all of their roundings at once and the last few of which settle none.
template <int Lanes>
std::uint64_t noise_hash() {
  pergrad::chacha_key key;
  for (std::uint32_t i = 0; i < 8; ++i) key.words[i] = 0x9e3779b9U * (i + 1);
  const auto nonce = pergrad::make_nonce(pergrad::random_purpose::gradient_noise, 0x0123456789abcdefULL);
  fnv hash;
  for_each_special_pair([&](const pergrad::detail::gaussian_bits& bits) {
    std::int64_t k[2];
    pergrad::detail::exact_pair(bits, 0x1.8p30, k);
    hash.add(k[0]);
    hash.add(k[1]);
  });
  alignas(64) double k[pergrad::detail::gaussian_block];
  const auto add_tiles = [&](std::uint64_t first, std::uint64_t count, double sigma) {
    for (std::uint64_t tile = first; tile < first + count; ++tile) {
      pergrad::detail::fill_rounded_gaussians<Lanes>(key, nonce, tile, sigma, k);
      for (const double each : k) hash.add(static_cast<std::int64_t>(each));
    }
  };
  add_tiles(0, 1000, 16);
  add_tiles(77, 1000, 0x1.23456789abcdep20);
  add_tiles((std::uint64_t{1} << 26U) - 20, 20, 0x1p32);  // the last tiles of a nonce
  add_tiles(5, 20, 0x1p38);
  add_tiles(5, 1, 0x1p46);
  return hash.value();
}

}  // namespace noise_golden
