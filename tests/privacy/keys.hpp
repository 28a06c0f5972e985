// SPDX-License-Identifier: Apache-2.0
// tests/privacy/keys.hpp - the keys of a seed, from what generator.hpp says of them: generators hand none out
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/noise/chacha20.hpp>
#include <pergrad/privacy/noise/purpose.hpp>

/// The first half of the ChaCha20 block under the seed as (low, high, 0, ...), for a nonce of key derivation.
inline pergrad::chacha_key key_of_seed(std::uint64_t seed, pergrad::detail::randomness kind) {
  pergrad::chacha_key start;
  start.words[0] = static_cast<std::uint32_t>(seed & 0xffff'ffffU);
  start.words[1] = static_cast<std::uint32_t>(seed >> 32U);
  const auto nonce = pergrad::make_nonce(pergrad::random_purpose::key_derivation, static_cast<std::uint64_t>(kind));
  const pergrad::chacha_block block = pergrad::chacha20_block(start, nonce, 0);
  pergrad::chacha_key key;
  for (std::size_t i = 0; i < key.words.size(); ++i) key.words[i] = block[i];
  return key;
}
