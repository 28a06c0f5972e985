// SPDX-License-Identifier: Apache-2.0
// tests/privacy/noise_reference.hpp - the Gaussians once more in long double, sharing no code with the library
//
// ChaCha20 as RFC 8439 section 2.3 writes it, the uniform as an exact sum of bits, logarithm and angle from libm.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace noise_reference {

using block = std::array<std::uint32_t, 16>;

inline block chacha20(const std::array<std::uint32_t, 8>& key, const std::array<std::uint32_t, 3>& nonce,
                      std::uint32_t counter) {
  block start{0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
  for (std::size_t i = 0; i < 8; ++i) start[4 + i] = key[i];
  start[12] = counter;
  for (std::size_t i = 0; i < 3; ++i) start[13 + i] = nonce[i];
  block x = start;
  const auto step = [&x](std::size_t to, std::size_t from, std::size_t turned, unsigned bits) {
    x[to] += x[from];
    const std::uint32_t both = x[turned] ^ x[to];
    x[turned] = (both << bits) | (both >> (32 - bits));
  };
  const auto quarter = [&](std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
    step(a, b, d, 16);
    step(c, d, b, 12);
    step(a, b, d, 8);
    step(c, d, b, 7);
  };
  for (int round = 0; round < 20; ++round) {
    const std::size_t shift = round % 2 == 0 ? 0 : 1;
    for (std::size_t i = 0; i < 4; ++i) {
      quarter(i, 4 + (i + shift) % 4, 8 + (i + 2 * shift) % 4, 12 + (i + 3 * shift) % 4);
    }
  }
  for (std::size_t i = 0; i < 16; ++i) x[i] += start[i];
  return x;
}

/// -2 ln u of a pair's words.
inline long double squared_radius(const std::array<std::uint32_t, 3>& words) {
  const long double eight = (words[1] / 0x80'0000U) % 0x100U;
  long double u = words[0] * 0x1p-32L + eight * 0x1p-40L;
  // The odd last bit is the middle of two cells of the third word, or of the cell of the eight bits.
  u += words[0] < 0x1'0000U ? (words[2] - words[2] % 2 + 1.0L) * 0x1p-72L : 0x1p-41L;
  return -2 * std::log(u);
}

/// Cosine and sine of a pair's angle: bits 22 to 1 place it within 45 degrees of an axis; bit 31 says whether that is
/// the second axis, bit 0 whether it is turned round.
inline std::array<long double, 2> direction(std::uint32_t second) {
  const long double turn = ((second % 0x80'0000U) / 2 + 0.5L) * 0x1p-22L - 0.5L;
  const long double angle = std::acos(-1.0L) / 2 * turn;
  std::array<long double, 2> on_axes{std::cos(angle), std::sin(angle)};
  if (second % 2 == 1) on_axes[0] = -on_axes[0];
  if (second >= 0x8000'0000U) std::swap(on_axes[0], on_axes[1]);
  return on_axes;
}

/// Words of the pair that has element `element`: the third is only made where the first is small.
inline std::array<std::uint32_t, 3> words_of(const std::array<std::uint32_t, 8>& key,
                                             const std::array<std::uint32_t, 3>& nonce, std::uint64_t element) {
  const std::uint64_t tile = element / 512;
  const std::uint64_t pair = element % 256;
  std::array<std::uint32_t, 3> words{};
  for (std::uint64_t part = 0; part < (words[0] < 0x1'0000U ? 3U : 2U); ++part) {
    words[part] = chacha20(key, nonce, static_cast<std::uint32_t>(48 * tile + 16 * part + pair % 16))[pair / 16];
  }
  return words;
}

inline long double gaussian(const std::array<std::uint32_t, 8>& key, const std::array<std::uint32_t, 3>& nonce,
                            std::uint64_t element) {
  const auto words = words_of(key, nonce, element);
  return std::sqrt(squared_radius(words)) * direction(words[1])[element % 512 / 256];
}

}  // namespace noise_reference
