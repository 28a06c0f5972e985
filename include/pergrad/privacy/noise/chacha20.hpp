// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/chacha20.hpp - the ChaCha20 block function of RFC 8439, one block or many at once.
//
// State of RFC 8439 section 2.3, sixteen 32-bit words:
//     "expa" "nd 3" "2-by" "te k" | key (8 words) | block counter | nonce (3 words)
// ten double rounds of quarter rounds on columns and diagonals, then the input state is added. Block n depends on
// (key, nonce, n) alone, hence any thread, vector width or machine can make its own part of one stream. The counter has
// 32 bits and never wraps here: asking beyond block 2^32 - 1 throws.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/no_fast_math.hpp>
#include <pergrad/privacy/noise/purpose.hpp>
#include <pergrad/simd/processor.hpp>

namespace pergrad::inline v0_1 {

/// A 256-bit key as eight words (little endian, as RFC 8439 reads them).
struct chacha_key {
  std::array<std::uint32_t, 8> words{};

  friend constexpr bool operator==(const chacha_key&, const chacha_key&) noexcept = default;

  /// The key whose 32 bytes are `bytes`, in the order of RFC 8439.
  [[nodiscard]] static constexpr chacha_key from_bytes(std::span<const std::uint8_t, 32> bytes) noexcept {
    chacha_key key;
    for (std::size_t i = 0; i < 32; ++i) {
      key.words[i / 4] |= static_cast<std::uint32_t>(bytes[i]) << (8U * static_cast<unsigned>(i % 4));
    }
    return key;
  }
};

using chacha_block = std::array<std::uint32_t, 16>;

/// Blocks that one nonce can give: the block counter has 32 bits.
inline constexpr std::uint64_t chacha_blocks_per_nonce = std::uint64_t{1} << 32U;

namespace detail {

inline constexpr std::array<std::uint32_t, 4> chacha_constants{0x61707865U, 0x3320646eU, 0x79622d32U, 0x6b206574U};

}  // namespace detail

}  // namespace pergrad::inline v0_1

#define PERGRAD_TARGET_SOURCE "pergrad/privacy/noise/chacha20.inl"
#include <pergrad/simd/multi_target.inl>

namespace pergrad::inline v0_1 {

namespace detail {

/// Overwrites memory in a way that the optimizer has to keep.
inline void wipe(void* memory, std::size_t bytes) noexcept {
  std::memset(memory, 0, bytes);
  __asm__ __volatile__("" : : "r"(memory) : "memory");
}

inline void require_blocks(const char* what, std::uint64_t first, std::uint64_t count) {
  if (first > chacha_blocks_per_nonce || count > chacha_blocks_per_nonce - first) {
    throw_out_of_range(
        {"pergrad: ", what, ": blocks [", first, ", +", count, ") exceed the 2^32 blocks of one ChaCha20 nonce"});
  }
}

}  // namespace detail

/// One block of keystream, RFC 8439 section 2.3.
[[nodiscard]] constexpr chacha_block chacha20_block(const chacha_key& key, const chacha_nonce& nonce,
                                                    std::uint32_t counter) noexcept {
  std::uint32_t x[16]{};
  for (std::size_t i = 0; i < 4; ++i) x[i] = detail::chacha_constants[i];
  for (std::size_t i = 0; i < 8; ++i) x[4 + i] = key.words[i];
  x[12] = counter;
  for (std::size_t i = 0; i < 3; ++i) x[13 + i] = nonce.words[i];
  chacha_block block{};
  for (std::size_t i = 0; i < 16; ++i) block[i] = x[i];
  detail::chacha_rounds(x);
  for (std::size_t i = 0; i < 16; ++i) block[i] += x[i];
  return block;
}

/// Keystream of blocks first_block, first_block + 1, ... into `words`, in the order of RFC 8439 (the last block may be
/// cut). `Lanes` blocks are made at a time; the words do not depend on it. Throws std::out_of_range when a block number
/// would exceed 2^32 - 1.
template <int Lanes = detail::native_lanes>
void chacha20_keystream(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t first_block,
                        std::span<std::uint32_t> words) {
  using u32 = typename detail::lanes<Lanes>::u32;
  const std::size_t blocks = words.size() / 16 + (words.size() % 16 != 0 ? 1 : 0);
  detail::require_blocks("chacha20_keystream", first_block, blocks);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written whole before it is read
  std::array<std::uint32_t, std::size_t{16} * Lanes> block;
  for (std::size_t done = 0; done < blocks; done += Lanes) {
    u32 state[16];
    const auto counter = static_cast<std::uint32_t>(first_block + done);
    detail::chacha_lanes<Lanes>(key, nonce, detail::lane_numbers<Lanes>() + counter, state);
    std::memcpy(block.data(), state, sizeof state);
    const std::size_t count = std::min<std::size_t>(words.size() - 16 * done, block.size());
    for (std::size_t i = 0; i < count; ++i) words[16 * done + i] = block[(i % 16) * Lanes + i / 16];
  }
  detail::wipe(block.data(), sizeof block);
}

}  // namespace pergrad::inline v0_1
