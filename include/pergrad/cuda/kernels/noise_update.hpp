// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/noise_update.hpp - one sweep over the parameters: lanes of the sum, noise, update
//
//   s = ((lane_0 + lane_1) + lane_2) + ...;  r = fma(deviation, z, s);  parameters <- rule(r)
//
// Noise is never stored: a block makes one tile of 512 Gaussians (privacy/noise.hpp says from which words) and uses
// them. 32 threads make 32 ChaCha20 blocks of the tile while the others read the lanes; then each of 256 threads turns
// two words into two Gaussians, or makes the block of a third one where the first is small. So its bits are those of
// `add_gaussian`, and the update's those of the host's optimizers, which apply the same rules (optim/rules.hpp) to the
// same numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/kernel.hpp>
#include <pergrad/cuda/tables.hpp>
#include <pergrad/optim/rules.hpp>
#include <pergrad/privacy/chacha20.hpp>
#include <pergrad/privacy/noise.hpp>
#include <pergrad/privacy/purpose.hpp>

namespace pergrad::inline v0_1::on_device {

/// ChaCha20's state for a key and a nonce, with block counter 0. Whoever reads it knows the key.
struct random_stream {
  std::uint32_t words[16];
};

/// The stream of one purpose and step.
[[nodiscard]] inline random_stream make_stream(const chacha_key& key, random_purpose purpose,
                                               std::uint64_t step) noexcept {
  const chacha_nonce nonce = make_nonce(purpose, step);
  random_stream stream{};
  for (std::size_t i = 0; i < 4; ++i) stream.words[i] = pergrad::detail::chacha_constants[i];
  for (std::size_t i = 0; i < 8; ++i) stream.words[4 + i] = key.words[i];
  for (std::size_t i = 0; i < 3; ++i) stream.words[13 + i] = nonce.words[i];
  return stream;
}

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

/// Word `word` of that block. An index would put the block into memory.
[[nodiscard]] PERGRAD_HD inline std::uint32_t random_word(const random_stream& stream, std::uint32_t counter,
                                                          int word) noexcept {
  std::uint32_t block[16];
  make_random_block(stream, counter, block);
  std::uint32_t chosen = 0;
  PERGRAD_UNROLL
  for (int i = 0; i < 16; ++i) chosen = i == word ? block[i] : chosen;
  return chosen;
}

/// Which rule of optim/rules.hpp `update_kernel` applies.
namespace update {
inline constexpr int release_only = 0;  ///< none: the sum, divided by `divisor`, is written to `released`
inline constexpr int sgd = 1;
inline constexpr int momentum = 2;
inline constexpr int adam = 3;
}  // namespace update

/// What stays from step to step. What does not is read from a `step_state`: the number of the noise, and the learning
/// rate and correction that optim/rules.hpp speaks of.
template <class Scalar>
struct update_settings {
  random_stream noise;  ///< of the purpose gradient_noise and step 0
  Scalar deviation;     ///< of the noise, rounded up
  double divisor;       ///< of release_only, as the host's `noised_sum / divisor`
  double scale;         ///< of the others: the gradient's public factor
  Scalar momentum;
  double beta1;
  double beta2;
  double stability;
};

/// The kernel at the head of this file; `blocks()` of them. The rule is a number and not a template argument: what
/// makes the noise is compiled once a program.
template <class Scalar>
struct update_kernel {
  static constexpr int threads = 256;
  static constexpr int tile = static_cast<int>(pergrad::detail::gaussian_tile);
  static_assert(tile == 2 * threads);
  static constexpr int part = 16 * 16 + 16;  // words of 16 blocks, and 16 more so that two parts meet no bank twice
  struct shared_type {
    std::uint32_t words[2 * part];
  };

  const step_state* state;  ///< a state that is not the last of its batch: the kernel does nothing
  update_settings<Scalar> settings;
  const Scalar* lanes;       ///< lane l of element e at [l * lane_stride + e]
  int lane_count;            ///< at least 1
  std::int64_t lane_stride;  ///< at least `count`
  std::int64_t count;        ///< elements, at most `gaussians_per_step`
  Scalar* parameters;        ///< not used by release_only
  Scalar* first;             ///< velocity or first moment
  Scalar* second;            ///< second moment
  Scalar* released;          ///< gets the noised sums; nullptr: nobody asked
  int rule;                  ///< one of `update::`
  int noise;                 ///< 0: none

  [[nodiscard]] int blocks() const noexcept { return blocks_for(count, tile); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    if (state->last == 0) return;
    auto& shared = block.template shared<shared_type>();
    typename Block::template local<registers<Scalar, 2>> sums;
    const std::int64_t begin = static_cast<std::int64_t>(block.index()) * tile;
    block.each([&](int t) {
      for (int half = 0; half < 2; ++half) {
        const std::int64_t element = begin + half * threads + t;
        if (element < count) sums[t][half] = sum_of_lanes(element);
      }
      if (noise != 0 && t < 32) {
        std::uint32_t words[16];
        make_random_block(at_step(settings.noise, state->noise_step),
                          static_cast<std::uint32_t>(48 * block.index() + t), words);
        for (int row = 0; row < 16; ++row) shared.words[t / 16 * part + 16 * row + t % 16] = words[row];
      }
    });
    block.each([&](int t) {
      float gaussians[2] = {0, 0};
      if (noise != 0) {
        const std::uint32_t words[2] = {shared.words[t], shared.words[part + t]};
        float y = pergrad::detail::short_uniform<1>(words[0], words[1]);
        if (words[0] < pergrad::detail::first_long_radius) {
          const auto third = random_word(at_step(settings.noise, state->noise_step),
                                         static_cast<std::uint32_t>(48 * block.index() + 32 + t % 16), t / 16);
          y = pergrad::detail::long_uniform(words[0], words[1], third);
        }
        pergrad::detail::box_muller<1>(y, words[1], gaussians[0], gaussians[1]);
      }
      for (int half = 0; half < 2; ++half) {
        const std::int64_t element = begin + half * threads + t;
        if (element >= count) continue;
        Scalar value = sums[t][half];
        if (noise != 0) value = fma(settings.deviation, static_cast<Scalar>(gaussians[half]), value);
        use(element, value);
      }
    });
  }

 private:
  [[nodiscard]] PERGRAD_HD Scalar sum_of_lanes(std::int64_t element) const noexcept {
    Scalar sum = lanes[element];
    for (int lane = 1; lane < lane_count; ++lane) sum = add(sum, lanes[lane * lane_stride + element]);
    return sum;
  }
  PERGRAD_HD void use(std::int64_t element, Scalar value) const noexcept {
    if (rule == update::release_only && settings.divisor != 1) {
      value = static_cast<Scalar>(static_cast<double>(value) / settings.divisor);
    }
    if (released != nullptr) released[element] = value;
    switch (rule) {
      case update::sgd: {
        const auto step = static_cast<Scalar>(rules::product(state->rate, settings.scale));
        return rules::sgd_rule<Scalar>{step}(value, parameters[element]);
      }
      case update::momentum:
        return rules::momentum_rule<Scalar>{static_cast<Scalar>(settings.scale), static_cast<Scalar>(state->rate),
                                            settings.momentum}(value, parameters[element], first[element]);
      case update::adam:
        return rules::make_adam<Scalar>(state->rate, state->correction, settings.beta1, settings.beta2,
                                        settings.stability,
                                        settings.scale)(value, parameters[element], first[element], second[element]);
      default:
        return;
    }
  }
};

}  // namespace pergrad::inline v0_1::on_device
