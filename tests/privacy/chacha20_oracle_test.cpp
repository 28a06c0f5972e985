// SPDX-License-Identifier: Apache-2.0
// tests/privacy/chacha20_oracle_test.cpp - libsodium's ChaCha20 gives the same keystream for random keys and nonces.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <sodium.h>
#include <span>
#include <vector>

#include <pergrad/privacy/noise/chacha20.hpp>

BOOST_AUTO_TEST_SUITE(privacy_chacha20_oracle)

BOOST_AUTO_TEST_CASE(keystream_equals_libsodium) {
  BOOST_REQUIRE(sodium_init() >= 0);
  constexpr unsigned seed = 20240501;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 engine{seed};
  for (int turn = 0; turn < 200; ++turn) {
    std::array<std::uint8_t, 32> key_bytes{};
    std::array<std::uint8_t, 12> nonce_bytes{};
    for (auto& byte : key_bytes) byte = static_cast<std::uint8_t>(engine());
    for (auto& byte : nonce_bytes) byte = static_cast<std::uint8_t>(engine());
    pergrad::chacha_nonce nonce;
    for (std::size_t i = 0; i < 12; ++i) {
      nonce.words[i / 4] |= static_cast<std::uint32_t>(nonce_bytes[i]) << (8U * static_cast<unsigned>(i % 4));
    }
    const std::size_t count = 1 + static_cast<std::size_t>(engine() % 3000);
    const auto first = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(engine() & 0xffff'ffffU, pergrad::chacha_blocks_per_nonce - (count + 15) / 16));

    std::vector<std::uint8_t> wanted(4 * count, 0);
    crypto_stream_chacha20_ietf_xor_ic(wanted.data(), wanted.data(), wanted.size(), nonce_bytes.data(), first,
                                       key_bytes.data());
    std::vector<std::uint32_t> words(count);
    pergrad::chacha20_keystream(pergrad::chacha_key::from_bytes(key_bytes), nonce, first, words);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      wrong += static_cast<std::uint8_t>(words[i / 4] >> (8U * static_cast<unsigned>(i % 4))) != wanted[i] ? 1U : 0U;
    }
    BOOST_TEST(wrong == 0U, "first block " << first << ", " << count << " words");
  }
}

BOOST_AUTO_TEST_SUITE_END()
