// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/generator.hpp - where the keys of all randomness come from: the operating system, or a seed
//
// A generator is a ChaCha20 key for each kind of secret randomness and a count of steps; noise, sampling and dropout
// are functions of (key, purpose, step, element). Keys never leave the room of those that draw with them: no function
// hands one out, a stream is of one kind, and those who read it, or ask a secret generator for one, are named below.
// Only `os_keyed_generator` gives differential privacy. `seeded_generator` repeats a run: WHOEVER KNOWS OR GUESSES THE
// SEED CAN SUBTRACT ALL NOISE, so its runs carry NO privacy guarantee whatever the accountant says, and its type tells
// so
// (`is_private`).
//
// Keys of the operating system's lie in a page of their own that is left out of core dumps, that a forked child finds
// empty, and that is overwritten before it is given back. A child would repeat the parent's noise, so a generator
// refuses to work there. What no program can see is a snapshot of a virtual machine: whoever restores one twice has two
// programs with one key, whose difference of releases has no noise. Make the generator after the machine was restored.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/noise/chacha20.hpp>
#include <pergrad/privacy/noise/purpose.hpp>

#if defined(__linux__)
#include <sys/random.h>
#endif
#include <sys/mman.h>

#include <unistd.h>

namespace pergrad::inline v0_1 {

class os_keyed_generator;
class seeded_generator;
class poisson_sampling;
struct layer_randomness;
namespace detail {
template <class Scalar>
class release_gate;
template <class Sampling, class Noise>
class private_run;
class sampling_words;
struct shared_key;
}  // namespace detail
namespace on_device {
struct stream_upload;
}

/// Where randomness may come from: one of the two generators of this library. No other type is, as a generator sees the
/// moment of a release.
template <class Generator>
concept random_generator = std::same_as<Generator, os_keyed_generator> || std::same_as<Generator, seeded_generator>;

namespace unaccounted {
template <class Sampling, random_generator Generator>
std::vector<std::uint32_t> draw(const Sampling& sampling, Generator& generator, std::uint32_t record_count);
}

namespace detail {

/// Kinds of randomness. Each has a key of its own: who learns one of them knows nothing of the others.
enum class randomness : unsigned char { noise, sampling, layers };
using key_ring = std::array<chacha_key, 3>;

/// The words of one step of one kind of randomness. Only those who draw from it can read it, and they are named here.
template <randomness Kind>
class secret_stream {
 public:
  secret_stream() = default;
  friend bool operator==(const secret_stream&, const secret_stream&) noexcept = default;

 private:
  friend class pergrad::os_keyed_generator;
  friend class pergrad::seeded_generator;
  template <class Scalar>
  friend class release_gate;
  friend class pergrad::poisson_sampling;
  friend class sampling_words;
  friend struct pergrad::layer_randomness;
  friend struct on_device::stream_upload;

  secret_stream(const chacha_key& key, std::uint64_t step) noexcept : key_{&key}, step_{step} {}
  static constexpr random_purpose purpose = Kind == randomness::noise      ? random_purpose::gradient_noise
                                            : Kind == randomness::sampling ? random_purpose::record_sampling
                                                                           : random_purpose::dropout;
  [[nodiscard]] const chacha_key& key() const noexcept { return *key_; }
  [[nodiscard]] chacha_nonce nonce() const noexcept { return make_nonce(purpose, step_); }

  const chacha_key* key_ = nullptr;  ///< in its generator
  std::uint64_t step_ = 0;
};

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

/// Counts up without wrapping, as a step used twice would repeat its noise. Any number of threads may call it.
inline std::uint64_t take_step(std::atomic<std::uint64_t>& next) {
  std::uint64_t step = next.load(std::memory_order_relaxed);
  do {
    if (step == std::numeric_limits<std::uint64_t>::max()) {
      throw std::overflow_error("pergrad: generator has given out all of its 2^64 - 1 steps");
    }
  } while (!next.compare_exchange_weak(step, step + 1, std::memory_order_relaxed));
  return step;
}

/// Keys in a page of their own; see the head of this file.
class key_page {
 public:
  /// Draws the keys. Throws std::runtime_error when the operating system gives none or no memory.
  key_page() {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw_runtime_error({"pergrad: no memory for a key, errno ", errno});
    content_ = new (memory) content;
#if defined(MADV_DONTDUMP)
    ::madvise(memory, bytes, MADV_DONTDUMP);
#endif
#if defined(MADV_WIPEONFORK)
    ::madvise(memory, bytes, MADV_WIPEONFORK);
#endif
    try {
      operating_system_random(&content_->keys, sizeof content_->keys);
    } catch (...) {
      give_back();
      throw;
    }
    content_->process = ::getpid();
  }
  key_page(const key_page&) = delete;
  key_page& operator=(const key_page&) = delete;
  key_page(key_page&& other) noexcept : content_{std::exchange(other.content_, nullptr)} {}
  key_page& operator=(key_page&& other) noexcept {
    if (this != &other) {
      give_back();
      content_ = std::exchange(other.content_, nullptr);
    }
    return *this;
  }
  ~key_page() { give_back(); }

  /// The keys. Throws std::logic_error after the page was moved from, and in a process that did not draw them.
  [[nodiscard]] const key_ring& keys() const {
    require();
    return content_->keys;
  }
  [[nodiscard]] std::uint64_t next_step() {
    require();
    return take_step(content_->next_step);
  }
  [[nodiscard]] std::uint64_t step() const noexcept {
    return content_ == nullptr ? 0 : content_->next_step.load(std::memory_order_relaxed);
  }

 private:
  friend struct shared_key;
  static constexpr std::size_t bytes = 4096;
  struct content {
    key_ring keys;
    ::pid_t process = 0;
    std::atomic<std::uint64_t> next_step{0};
  };
  static_assert(sizeof(content) <= bytes);

  void require() const {
    if (content_ == nullptr)
      detail::throw_logic_error({"pergrad: os_keyed_generator was used after it was moved from"});
    if (content_->process != ::getpid()) {  // 0 where the kernel has wiped the page
      detail::throw_logic_error(
          {"pergrad: os_keyed_generator was used in a forked process, which would repeat its noise: make one there"});
    }
  }
  void give_back() noexcept {
    if (content_ == nullptr) return;
    wipe(content_, sizeof *content_);
    ::munmap(content_, bytes);
    content_ = nullptr;
  }

  content* content_ = nullptr;
};

}  // namespace detail

/// Generator with 256-bit keys from the operating system. Movable, not copyable (a copy would repeat noise), without
/// any way to read or save a key. Threads may share it. In a forked process it throws std::logic_error: make one there.
class os_keyed_generator {
 public:
  static constexpr bool is_private = true;

  /// Draws the keys. Throws std::runtime_error when the operating system gives none.
  os_keyed_generator() = default;

  /// Number of steps given out.
  [[nodiscard]] std::uint64_t step() const noexcept { return page_.step(); }
  /// Gives out the next step: 0, 1, 2, ..., each once. Throws std::overflow_error behind the last one, and
  /// std::logic_error after the generator was moved from and in a forked process.
  [[nodiscard]] std::uint64_t next_step() { return page_.next_step(); }

 private:
  template <class Scalar>
  friend class detail::release_gate;
  template <class Sampling, class Noise>
  friend class detail::private_run;
  friend struct layer_randomness;
  friend struct detail::shared_key;
  template <class Sampling, random_generator Generator>
  friend std::vector<std::uint32_t> unaccounted::draw(const Sampling& sampling, Generator& generator,
                                                      std::uint32_t record_count);

  /// The words of a step. Refers to the generator. Not for others: who was drawn in a step is a private value.
  template <detail::randomness Kind>
  [[nodiscard]] detail::secret_stream<Kind> stream(std::uint64_t step) const {
    return {page_.keys()[static_cast<std::size_t>(Kind)], step};
  }

  detail::key_page page_;
};

/// Generator for experiments that must be repeated. ITS RUNS ARE NOT PRIVATE, however large the noise: the keys follow
/// from the at most 64 bits of the seed, and the seed is known. Same seed, same streams on every machine.
class seeded_generator {
 public:
  static constexpr bool is_private = false;

  /// Keys: the first halves of ChaCha20 blocks under the seed as (low, high, 0, ...), for nonces of key derivation.
  /// `first_step` resumes a run that had given out that many steps.
  explicit seeded_generator(std::uint64_t seed, std::uint64_t first_step = 0) noexcept
      : keys_{derived(seed, 0), derived(seed, 1), derived(seed, 2)}, seed_{seed}, next_step_{first_step} {}
  /// A copy repeats the stream from here on.
  seeded_generator(const seeded_generator& other) noexcept
      : keys_{other.keys_}, seed_{other.seed_}, next_step_{other.step()} {}
  seeded_generator& operator=(const seeded_generator& other) noexcept {
    keys_ = other.keys_;
    seed_ = other.seed_;
    next_step_.store(other.step(), std::memory_order_relaxed);
    return *this;
  }
  ~seeded_generator() = default;

  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  /// Number of steps given out.
  [[nodiscard]] std::uint64_t step() const noexcept { return next_step_.load(std::memory_order_relaxed); }
  /// As of os_keyed_generator.
  [[nodiscard]] std::uint64_t next_step() { return detail::take_step(next_step_); }
  /// The words of a step, for tests: of a seed nothing is secret. Refers to the generator.
  template <detail::randomness Kind>
  [[nodiscard]] detail::secret_stream<Kind> stream(std::uint64_t step) const noexcept {
    return {keys_[static_cast<std::size_t>(Kind)], step};
  }

 private:
  [[nodiscard]] static chacha_key derived(std::uint64_t seed, std::uint64_t number) noexcept {
    chacha_key start;
    start.words[0] = static_cast<std::uint32_t>(seed & 0xffff'ffffU);
    start.words[1] = static_cast<std::uint32_t>(seed >> 32U);
    const chacha_block block = chacha20_block(start, make_nonce(random_purpose::key_derivation, number), 0);
    chacha_key key;
    for (std::size_t i = 0; i < key.words.size(); ++i) key.words[i] = block[i];
    return key;
  }

  detail::key_ring keys_;
  std::uint64_t seed_;
  std::atomic<std::uint64_t> next_step_;
};

}  // namespace pergrad::inline v0_1
