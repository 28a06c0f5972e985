// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/release.hpp - the release gate on a device (privacy/release.hpp): sums of integers, noise,
// update, in one sweep over the parameters
//
//   r = grid (Q + k);  parameters <- rule(r)
//
// Noise is never stored: a block of threads makes one block of 512 integers (privacy/noise/rounded_gaussian.hpp says
// from which words) and uses them. 64 threads make its ChaCha20 blocks while the others read the accumulators; then
// each of 256 threads turns four words into two integers. Where a rounding is not proven at once, for a few pairs in
// millions, the thread draws more bits. So the integers are the host's, and the update's bits those of the host's
// optimizers, which apply the same rules (optim/rules.hpp) to the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/random.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/optim/rules.hpp>
#include <pergrad/privacy/noise/chacha20.hpp>
#include <pergrad/privacy/noise/purpose.hpp>
#include <pergrad/privacy/noise/rounded_gaussian.hpp>
#include <pergrad/privacy/release.hpp>

namespace pergrad::inline v0_1::on_device {

/// Which rule of optim/rules.hpp `release_kernel` applies.
namespace update {
inline constexpr int sgd = 1;
inline constexpr int momentum = 2;
inline constexpr int adam = 3;
}  // namespace update

inline constexpr int release_threads = 256;
inline constexpr int release_elements = static_cast<int>(pergrad::detail::gaussian_block);
static_assert(release_elements == 2 * release_threads);

/// What stays from step to step. What does not is read from a `step_state`: the number of the noise, and what
/// optim/rules.hpp calls rate, correction and keep.
template <class Scalar>
struct release_settings {
  random_stream noise{};  ///< of the purpose gradient_noise and step 0
  double sigma = 0;       ///< of the noise, in steps of the grid; 0: none
  pergrad::detail::gaussian_polynomials polynomials{};
  pergrad::detail::release_scale grid{};
  double scale = 1;  ///< the gradient's public factor
  Scalar momentum = 0;
  double beta1 = 0;
  double beta2 = 0;
  double stability = 0;
};

/// What a release reads and writes.
template <class Scalar>
struct release_work {
  const step_state* state = nullptr;  ///< a state that is not the last of its batch: nothing is done
  release_settings<Scalar> settings;
  const std::int64_t* sums = nullptr;  ///< Q: steps of the grid
  std::int64_t begin = 0;              ///< the first element, a multiple of `release_elements`
  std::int64_t end = 0;                ///< behind the last one, at most `gaussians_per_step`
  Scalar* parameters = nullptr;
  Scalar* first = nullptr;     ///< velocity or first moment
  Scalar* second = nullptr;    ///< second moment
  Scalar* released = nullptr;  ///< gets the released values
  int rule = 0;                ///< one of `update::`
  const row_leaf* tables = nullptr;
  int table_count = 0;

  /// Blocks of `release_elements` elements, and the number of that which a block of threads has among all elements.
  [[nodiscard]] PERGRAD_HD int blocks() const noexcept { return blocks_for(end - begin, release_elements); }
  template <class Block>
  [[nodiscard]] PERGRAD_HD int number_of(const Block& block) const noexcept {
    return static_cast<int>(begin / release_elements) + block.index();
  }
  /// Does no step move it? So it is with the row of a padding id (optim/held.hpp).
  [[nodiscard]] PERGRAD_HD bool is_held(std::int64_t element) const noexcept {
    PERGRAD_ROLLED
    for (int k = 0; k < table_count; ++k) {
      const row_leaf& table = tables[k];
      const std::int64_t place = element - table.parameters - std::int64_t{table.skipped} * table.width;
      if (table.first != 0 && table.skipped >= 0 && place >= 0 && place < table.width) return true;
    }
    return false;
  }
  [[nodiscard]] PERGRAD_HD std::int64_t sum_of(std::int64_t element) const noexcept {
    return element < end ? sums[element] : 0;
  }
  /// Releases one element and takes the step with it. `sum` and `noise` count steps of the grid.
  PERGRAD_HD void release(std::int64_t element, std::int64_t sum, double noise) const noexcept {
    if (element >= end) return;
    constexpr auto most = static_cast<std::int64_t>(pergrad::detail::most_on_grid);
    const std::int64_t place = smaller_of(larger_of(sum, -most), most);
    const auto value = pergrad::detail::released_value<Scalar>(static_cast<double>(place) + noise, settings.grid);
    released[element] = value;
    if (is_held(element)) return;
    const auto keep = static_cast<Scalar>(state->keep);
    switch (rule) {
      case update::sgd: {
        const auto step = static_cast<Scalar>(multiply(state->rate, settings.scale));
        return rules::sgd_rule<Scalar>{step, keep}(value, parameters[element]);
      }
      case update::momentum:
        return rules::momentum_rule<Scalar>{static_cast<Scalar>(settings.scale), static_cast<Scalar>(state->rate),
                                            settings.momentum, keep}(value, parameters[element], first[element]);
      case update::adam:
        return rules::make_adam<Scalar>(state->rate, state->correction, settings.beta1, settings.beta2,
                                        settings.stability, settings.scale,
                                        state->keep)(value, parameters[element], first[element], second[element]);
      default:
        return;
    }
  }
};

/// The kernel at the head of this file; `blocks()` of them. The rule is a number and not a template argument: what
/// makes the noise is compiled once a program.
template <class Scalar>
struct release_kernel {
  static constexpr int threads = release_threads;
  static constexpr int chacha_blocks = 64;
  struct shared_type {
    std::uint32_t words[16][chacha_blocks];
  };

  release_work<Scalar> work;

  [[nodiscard]] int blocks() const noexcept { return work.blocks(); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    if (work.state->last == 0) return;
    auto& shared = block.template shared<shared_type>();
    typename Block::template local<registers<std::int64_t, 2>> sums;
    const int number = work.number_of(block);
    const std::int64_t begin = std::int64_t{number} * release_elements;
    const bool is_noised = work.settings.sigma > 0;
    block.each([&](int t) {
      for (int half = 0; half < 2; ++half) sums[t][half] = work.sum_of(begin + half * threads + t);
      if (is_noised && t < chacha_blocks) {
        std::uint32_t words[16];
        make_random_block(at_step(work.settings.noise, work.state->noise_step),
                          static_cast<std::uint32_t>(chacha_blocks * number + t), words);
        PERGRAD_UNROLL
        for (int row = 0; row < 16; ++row) shared.words[row][t] = words[row];
      }
    });
    block.each([&](int t) {
      double k[2] = {0, 0};
      if (is_noised) {
        const int row = t / chacha_blocks * 4;
        const int column = t % chacha_blocks;
        const auto words = pergrad::detail::widened<0, 1>(shared.words[row][column], shared.words[row + 1][column],
                                                          shared.words[row + 2][column], shared.words[row + 3][column]);
        const auto pair = pergrad::detail::round_gaussians<1>(words, 2 * work.settings.sigma * work.settings.sigma,
                                                              work.settings.polynomials);
        k[0] = pair.along_cosine;
        k[1] = pair.along_sine;
        if (pergrad::detail::is_open(pair.margin)) settle(shared.words, std::int64_t{number} * threads + t, k);
      }
      for (int half = 0; half < 2; ++half) work.release(begin + half * threads + t, sums[t][half], k[half]);
    });
  }

 private:
  /// A pair, by as many bits as it takes: `first` has those of the block's.
  PERGRAD_HD void settle(const std::uint32_t (&first)[16][chacha_blocks], std::int64_t pair,
                         double (&k)[2]) const noexcept {
    const auto t = static_cast<int>(pair % threads);
    pergrad::detail::gaussian_bits bits{};
    for (int i = 0; i < 2; ++i) {
      bits.u[i] = first[t / chacha_blocks * 4 + i][t % chacha_blocks];
      bits.v[i] = first[t / chacha_blocks * 4 + 2 + i][t % chacha_blocks];
    }
    random_stream more = at_step(work.settings.noise, work.state->noise_step);
    more.words[13] = continued_purpose(more.words[13], static_cast<std::uint32_t>(pair >> 32));
    std::uint32_t words[16];
    make_random_block(more, static_cast<std::uint32_t>(pair), words);
    for (int i = 0; i < 8; ++i) {
      bits.u[2 + i] = words[i];
      bits.v[2 + i] = words[8 + i];
    }
    std::int64_t exact[2];
    pergrad::detail::exact_pair(bits, work.settings.sigma, exact);
    for (int half = 0; half < 2; ++half) k[half] = static_cast<double>(exact[half]);
  }
};

/// out[e] = ((lane_0 + lane_1) + lane_2) + ..., in order, of a sum in floating point. `blocks()` of them.
template <class Sum>
struct fold_kernel {
  static constexpr int threads = 256;
  struct shared_type {};

  const Sum* accumulators;  ///< accumulator l of element e at [l * count + e]
  int accumulator_count;
  std::int64_t count;
  Sum* out;  ///< may be accumulator 0

  [[nodiscard]] int blocks() const noexcept { return blocks_for(count, threads); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    block.each([&](int t) {
      const std::int64_t element = static_cast<std::int64_t>(block.index()) * threads + t;
      if (element >= count) return;
      Sum sum = accumulators[element];
      PERGRAD_ROLLED
      for (int accumulator = 1; accumulator < accumulator_count; ++accumulator) {
        sum = add(sum, accumulators[accumulator * count + element]);
      }
      out[element] = sum;
    });
  }
};

}  // namespace pergrad::inline v0_1::on_device
