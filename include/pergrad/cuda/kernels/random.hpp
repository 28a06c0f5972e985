// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/random.hpp - ChaCha20 in kernels: of the noise, of the bits inside layers, of drawn records
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/layer_randomness.hpp>
#include <pergrad/privacy/noise/chacha20.hpp>
#include <pergrad/privacy/noise/purpose.hpp>
#include <pergrad/privacy/sampling.hpp>

namespace pergrad::inline v0_1::on_device {

/// ChaCha20's state for a key and a nonce, with block counter 0. Whoever reads it knows the key.
struct random_stream {
  std::uint32_t words[16];
};

/// What hands the words of a stream to a device: streams of a secret key are in the hands of a run only.
struct stream_upload {
  template <pergrad::detail::randomness Kind>
  using stream_of = pergrad::detail::secret_stream<Kind>;
  using noise_stream = stream_of<pergrad::detail::randomness::noise>;
  using layers_stream = stream_of<pergrad::detail::randomness::layers>;

  /// With step 0: steps are told to each kernel.
  template <pergrad::detail::randomness Kind>
  [[nodiscard]] static random_stream words(const stream_of<Kind>& stream) noexcept {
    return words(stream.key(), make_nonce(stream_of<Kind>::purpose, 0));
  }
  [[nodiscard]] static random_stream words(const chacha_key& key, const chacha_nonce& nonce) noexcept {
    random_stream result{};
    for (std::size_t i = 0; i < 4; ++i) result.words[i] = pergrad::detail::chacha_constants[i];
    for (std::size_t i = 0; i < 8; ++i) result.words[4 + i] = key.words[i];
    for (std::size_t i = 0; i < 3; ++i) result.words[13 + i] = nonce.words[i];
    return result;
  }
  template <pergrad::detail::randomness Kind>
  [[nodiscard]] static std::uint64_t step(const stream_of<Kind>& stream) noexcept {
    return stream.step_;
  }
  [[nodiscard]] static const layers_stream& stream(const layer_randomness& randomness) noexcept {
    return randomness.stream_;
  }
};

/// A stream on the host, wiped when it goes.
struct held_stream {
  random_stream stream{};
  held_stream() = default;
  explicit held_stream(const random_stream& held) noexcept : stream{held} {}
  held_stream(const held_stream&) = delete;
  held_stream& operator=(const held_stream&) = delete;
  ~held_stream() { pergrad::detail::wipe(&stream, sizeof stream); }
};

/// The same key and purpose at another step.
[[nodiscard]] PERGRAD_HD inline random_stream at_step(random_stream stream, std::uint64_t step) noexcept {
  stream.words[14] = static_cast<std::uint32_t>(step & 0xffff'ffffU);
  stream.words[15] = static_cast<std::uint32_t>(step >> 32U);
  return stream;
}
/// Block `counter` of a stream: RFC 8439 section 2.3.
PERGRAD_HD inline void make_random_block(const random_stream& stream, std::uint32_t counter,
                                         std::uint32_t (&block)[16]) noexcept {
  for (int i = 0; i < 16; ++i) block[i] = stream.words[i];
  block[12] += counter;
  pergrad::detail::chacha_rounds(block);
  for (int i = 0; i < 16; ++i) block[i] += stream.words[i];
  block[12] += counter;
}

/// Random bits inside the layers of one sample: those of `layer_randomness::bits`.
struct layer_bits {
  const random_stream* layers = nullptr;  ///< of the purpose dropout and any step; nullptr: layers are as in evaluation
  std::uint64_t step = 0;
  std::uint32_t record = 0;  ///< of the sample

  [[nodiscard]] PERGRAD_HD bool is_random() const noexcept { return layers != nullptr; }
  /// What a layer of the network draws from: element e has word e % 16 of block e / 16 (`make_random_block`).
  /// Precondition: is_random().
  [[nodiscard, gnu::always_inline]] PERGRAD_HD random_stream of_layer(std::uint32_t layer) const noexcept {
    std::uint32_t seed[16];
    make_random_block(at_step(*layers, step), record, seed);
    random_stream own = *layers;
    for (int i = 0; i < 8; ++i) own.words[4 + i] = seed[i];
    return at_step(own, layer);
  }
};

/// Marks the records that a step draws, in groups of 128, as poisson_sampling::mark does; blocks() of them. A thread
/// makes the words of eight records of a group, 16 apart.
struct mark_kernel {
  static constexpr int threads = 128;
  static constexpr int of_group = 16;                ///< threads
  static constexpr int groups = threads / of_group;  ///< of a block
  struct shared_type {
    std::uint8_t drawn[threads];  ///< a bit a record
  };

  random_stream stream{};  ///< of the purpose record_sampling and any step
  std::uint64_t step = 0;
  poisson_sampling sampling;
  std::uint32_t first_group = 0;
  int group_count = 0;
  std::uint64_t* bits = nullptr;  ///< two words a group

  [[nodiscard]] int blocks() const noexcept { return blocks_for(group_count, groups); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    const int first = block.index() * groups;
    block.each([&](int t) {
      const auto group = static_cast<std::uint32_t>(first + t / of_group);
      std::uint32_t words[16];
      make_random_block(at_step(stream, step),
                        of_group * (first_group + group) + static_cast<std::uint32_t>(t % of_group), words);
      unsigned drawn = 0;
      PERGRAD_UNROLL
      for (int row = 0; row < 8; ++row) {
        if (sampling.is_below(std::uint64_t{words[row]} << 32U | words[8 + row])) drawn |= 1U << row;
      }
      shared.drawn[t] = static_cast<std::uint8_t>(drawn);
    });
    block.each([&](int t) {
      const int group = first + t / 2;
      if (t >= 2 * groups || group >= group_count) return;
      std::uint64_t word = 0;
      for (int row = 0; row < 4; ++row) {
        for (int column = 0; column < of_group; ++column) {
          const unsigned drawn = shared.drawn[t / 2 * of_group + column];
          word |= std::uint64_t{drawn >> (t % 2 * 4 + row) & 1U} << (of_group * row + column);
        }
      }
      bits[2 * group + t % 2] = word;
    });
  }
};

}  // namespace pergrad::inline v0_1::on_device
