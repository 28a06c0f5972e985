// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/purpose.hpp - the list of all uses of keyed randomness, so that no two ever share a ChaCha20
// nonce.
//
// A nonce of RFC 8439 has 96 bits: here (purpose, low half of step, high half of step). The same key may serve every
// purpose and step because no pair (nonce, block counter) is drawn for two things.
#pragma once

#include <array>
#include <cstdint>

#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1 {

/// What a keystream is drawn for. Values are part of the reproducible stream: append only, never renumber.
enum class random_purpose : std::uint32_t {
  gradient_noise = 1,   ///< Gaussian noise added to a clipped sum
  record_sampling = 2,  ///< Poisson sampling of records
  initialisation = 3,   ///< initial parameters; the step counts parameter blocks
  dropout = 4,          ///< randomness inside layers
  key_derivation = 5,   ///< a key from a small seed
  auxiliary_noise = 6,  ///< noise of other private releases, such as clip counts
  shuffling = 7,        ///< order of records in non-private runs
  augmentation = 8,     ///< random transforms of inputs
};

/// Nonce of RFC 8439 as three little-endian words.
struct chacha_nonce {
  std::array<std::uint32_t, 3> words{};

  friend constexpr bool operator==(const chacha_nonce&, const chacha_nonce&) noexcept = default;
};

/// The one nonce that belongs to `purpose` and `step`.
[[nodiscard]] constexpr chacha_nonce make_nonce(random_purpose purpose, std::uint64_t step) noexcept {
  return {{static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(step & 0xffff'ffffU),
           static_cast<std::uint32_t>(step >> 32U)}};
}

/// The first word of a nonce beside this one, for what continues its stream; purposes are below 2^8, so it is nobody
/// else's. Precondition: high < 2^24 - 1.
[[nodiscard]] PERGRAD_HD constexpr std::uint32_t continued_purpose(std::uint32_t purpose, std::uint32_t high) noexcept {
  return purpose | (high + 1) << 8U;
}
[[nodiscard]] constexpr chacha_nonce continued(const chacha_nonce& nonce, std::uint32_t high) noexcept {
  return {{continued_purpose(nonce.words[0], high), nonce.words[1], nonce.words[2]}};
}

}  // namespace pergrad::inline v0_1
