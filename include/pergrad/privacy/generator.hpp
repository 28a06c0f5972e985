// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/generator.hpp - where the key of all randomness comes from: the operating system, or a seed.
//
// A generator is a ChaCha20 key and a count of logical steps; noise, sampling and dropout are functions of (key,
// purpose, step, element), see noise.hpp. Only `os_keyed_generator` gives differential privacy. `seeded_generator`
// repeats a run: WHOEVER KNOWS OR GUESSES THE SEED CAN SUBTRACT ALL NOISE, so its runs carry NO privacy guarantee
// whatever the accountant says, and its type tells so (`is_private == false`).
#pragma once

#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/chacha20.hpp>
#include <pergrad/privacy/purpose.hpp>

#if defined(__linux__)
#include <sys/random.h>
#else
#include <unistd.h>
#endif

namespace pergrad::inline v0_1 {

/// Source of a key and of step numbers, of which each is given out once.
template <class Generator>
concept random_generator = requires(Generator& generator, const Generator& fixed) {
  { fixed.key() } -> std::convertible_to<const chacha_key&>;
  { generator.next_step() } -> std::same_as<std::uint64_t>;
  { fixed.step() } -> std::same_as<std::uint64_t>;
  { Generator::is_private } -> std::convertible_to<bool>;
};

namespace detail {

/// Fills memory from the operating system's generator. Throws std::runtime_error when it fails.
[[gnu::noinline]] inline void operating_system_random(void* memory, std::size_t bytes) {
#if defined(__linux__)
  auto* at = static_cast<unsigned char*>(memory);
  while (bytes > 0) {
    const auto got = ::getrandom(at, bytes, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw_runtime_error({"pergrad: getrandom gave no key, errno ", errno});
    }
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
#else
  if (::getentropy(memory, bytes) != 0) {
    throw_runtime_error({"pergrad: getentropy gave no key, errno ", errno});
  }
#endif
}

/// Counts up without wrapping, as a step used twice would repeat its noise.
inline std::uint64_t take_step(std::uint64_t& next) {
  if (next == std::numeric_limits<std::uint64_t>::max()) {
    throw std::overflow_error("pergrad: generator has given out all of its 2^64 - 1 steps");
  }
  return next++;
}

}  // namespace detail

/// Generator with a 256-bit key from the operating system. Movable, not copyable (a copy would repeat noise), without
/// any way to save the key, which is overwritten on destruction. A forked process must make its own generator.
class os_keyed_generator {
 public:
  static constexpr bool is_private = true;

  /// Draws the key. Throws std::runtime_error when the operating system gives none.
  os_keyed_generator() { detail::operating_system_random(key_.words.data(), sizeof key_.words); }
  os_keyed_generator(const os_keyed_generator&) = delete;
  os_keyed_generator& operator=(const os_keyed_generator&) = delete;
  os_keyed_generator(os_keyed_generator&& other) noexcept { take(other); }
  os_keyed_generator& operator=(os_keyed_generator&& other) noexcept {
    if (this != &other) take(other);
    return *this;
  }
  ~os_keyed_generator() { detail::wipe(&key_, sizeof key_); }

  /// The key. Throws std::logic_error after the generator was moved from.
  [[nodiscard]] const chacha_key& key() const {
    require_key();
    return key_;
  }

  /// Gives out the next logical step: 0, 1, 2, ... Throws std::overflow_error instead of giving one twice and
  /// std::logic_error after the generator was moved from.
  [[nodiscard]] std::uint64_t next_step() {
    require_key();
    return detail::take_step(next_step_);
  }

  /// Number of steps given out.
  [[nodiscard]] std::uint64_t step() const noexcept { return next_step_; }

 private:
  void take(os_keyed_generator& other) noexcept {
    key_ = other.key_;
    next_step_ = other.next_step_;
    has_key_ = std::exchange(other.has_key_, false);
    detail::wipe(&other.key_, sizeof other.key_);
  }

  void require_key() const {
    if (!has_key_) throw std::logic_error("pergrad: os_keyed_generator was used after it was moved from");
  }

  chacha_key key_;
  std::uint64_t next_step_ = 0;
  bool has_key_ = true;
};

/// Generator for experiments that must be repeated. ITS RUNS ARE NOT PRIVATE, however large the noise: the key has at
/// most the 64 bits of the seed and the seed is known. Same seed, same stream on every machine.
class seeded_generator {
 public:
  static constexpr bool is_private = false;

  /// Key: the first half of the ChaCha20 block under the seed as (low, high, 0, ...) for the key-derivation nonce.
  /// `first_step` resumes a run that had given out that many steps.
  constexpr explicit seeded_generator(std::uint64_t seed, std::uint64_t first_step = 0) noexcept
      : seed_{seed}, next_step_{first_step} {
    chacha_key start;
    start.words[0] = static_cast<std::uint32_t>(seed & 0xffff'ffffU);
    start.words[1] = static_cast<std::uint32_t>(seed >> 32U);
    const chacha_block block = chacha20_block(start, make_nonce(random_purpose::key_derivation, 0), 0);
    for (std::size_t i = 0; i < key_.words.size(); ++i) key_.words[i] = block[i];
  }

  [[nodiscard]] constexpr const chacha_key& key() const noexcept { return key_; }
  [[nodiscard]] constexpr std::uint64_t seed() const noexcept { return seed_; }

  /// Gives out the next logical step: 0, 1, 2, ... Throws std::overflow_error instead of giving one twice.
  [[nodiscard]] std::uint64_t next_step() { return detail::take_step(next_step_); }

  /// Number of steps given out.
  [[nodiscard]] constexpr std::uint64_t step() const noexcept { return next_step_; }

 private:
  chacha_key key_;
  std::uint64_t seed_;
  std::uint64_t next_step_;
};

static_assert(random_generator<os_keyed_generator> && random_generator<seeded_generator>);

}  // namespace pergrad::inline v0_1
