// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/release.hpp - the release gate on a device (privacy/release.hpp): sums of integers, noise,
// update, in one sweep over the parameters
//
//   r = grid (Q + k);  parameters <- rule(r)
//
// Noise is never stored: a block of threads makes one block of 512 integers (privacy/noise/rounded_gaussian.hpp says
// from which words) and uses them. 64 threads make its ChaCha20 blocks while the others read the accumulators; then
// each of 256 threads turns four words into two integers. Where a rounding is not proven at once, the thread leaves its
// two elements alone and says so, for itself and for its block; `settle_kernel` draws more bits for those. So the
// integers are the host's, and the update's bits those of the host's optimizers, which apply the same rules
// (optim/rules.hpp) to the same numbers.
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

/// What both kernels of a release read and write.
template <class Scalar>
struct release_work {
  const step_state* state = nullptr;  ///< a state that is not the last of its batch: the kernels do nothing
  release_settings<Scalar> settings;
  const std::int64_t* sums = nullptr;  ///< Q: steps of the grid
  std::int64_t begin = 0;              ///< the first element, a multiple of `release_elements`
  std::int64_t end = 0;                ///< behind the last one, at most `gaussians_per_step`
  Scalar* parameters = nullptr;
  Scalar* first = nullptr;            ///< velocity or first moment
  Scalar* second = nullptr;           ///< second moment
  Scalar* released = nullptr;         ///< gets the released values
  unsigned char* is_open = nullptr;   ///< one a pair: its rounding is not proven
  unsigned char* has_open = nullptr;  ///< one a block: so it is with a pair of the block
  int rule = 0;                       ///< one of `update::`
  const row_leaf* tables = nullptr;
  int table_count = 0;

  /// Blocks of `release_elements` elements, and the number of that which a block of threads has among all elements.
  [[nodiscard]] PERGRAD_HD int blocks() const noexcept { return blocks_for(end - begin, release_elements); }
  template <class Block>
  [[nodiscard]] PERGRAD_HD int number_of(const Block& block) const noexcept {
    return first_number() + block.index();
  }
  [[nodiscard]] PERGRAD_HD int first_number() const noexcept { return static_cast<int>(begin / release_elements); }
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
      if (t == 0) work.has_open[number] = 0;
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
      bool is_open = false;
      if (is_noised) {
        const int row = t / chacha_blocks * 4;
        const int column = t % chacha_blocks;
        const auto words = pergrad::detail::widened<0, 1>(shared.words[row][column], shared.words[row + 1][column],
                                                          shared.words[row + 2][column], shared.words[row + 3][column]);
        const auto pair = pergrad::detail::round_gaussians<1>(words, 2 * work.settings.sigma * work.settings.sigma,
                                                              work.settings.polynomials);
        k[0] = pair.along_cosine;
        k[1] = pair.along_sine;
        is_open = pergrad::detail::is_open(pair.margin);
      }
      work.is_open[std::int64_t{number} * threads + t] = is_open ? 1 : 0;
      if (is_open) {
        work.has_open[number] = 1;
        return;
      }
      for (int half = 0; half < 2; ++half) work.release(begin + half * threads + t, sums[t][half], k[half]);
    });
  }
};

/// Releases the elements that a `release_kernel` has left alone; `blocks()` of them. Few blocks of that have any, so
/// one of these looks at as many of those as it has threads.
template <class Scalar>
struct settle_kernel {
  static constexpr int threads = release_threads;
  static constexpr int warps = threads / warp_size;
  struct shared_type {
    unsigned char has_open[threads];
    unsigned char of_warp[warps];
  };

  release_work<Scalar> work;

  [[nodiscard]] int blocks() const noexcept { return blocks_for(work.blocks(), threads); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    if (work.state->last == 0) return;
    auto& shared = block.template shared<shared_type>();
    const int before = block.index() * threads;
    const int first = work.first_number() + before;
    const int count = work.blocks() - before;
    block.each([&](int t) {
      if (t < warps) shared.of_warp[t] = 0;
    });
    block.each([&](int t) {
      shared.has_open[t] = t < count ? work.has_open[first + t] : 0;
      if (shared.has_open[t] != 0) shared.of_warp[t / warp_size] = 1;
    });
    PERGRAD_ROLLED
    for (int warp = 0; warp < warps; ++warp) {
      if (shared.of_warp[warp] == 0) continue;
      PERGRAD_ROLLED
      for (int k = warp * warp_size; k < (warp + 1) * warp_size; ++k) {
        if (shared.has_open[k] != 0) block.each([&](int t) { settle(first + k, t); });
      }
    }
  }

 private:
  /// Pair t of block `number`.
  PERGRAD_HD void settle(int number, int t) const {
    const std::int64_t pair = std::int64_t{number} * threads + t;
    if (work.is_open[pair] == 0) return;
    const random_stream stream = at_step(work.settings.noise, work.state->noise_step);
    std::uint32_t words[16];
    pergrad::detail::gaussian_bits bits{};
    make_random_block(stream, static_cast<std::uint32_t>(64 * number + t % 64), words);
    for (int i = 0; i < 2; ++i) {
      bits.u[i] = words[t / 64 * 4 + i];
      bits.v[i] = words[t / 64 * 4 + 2 + i];
    }
    random_stream more = stream;
    more.words[13] = continued_purpose(more.words[13], static_cast<std::uint32_t>(pair >> 32));
    make_random_block(more, static_cast<std::uint32_t>(pair), words);
    for (int i = 0; i < 8; ++i) {
      bits.u[2 + i] = words[i];
      bits.v[2 + i] = words[8 + i];
    }
    std::int64_t k[2];
    pergrad::detail::exact_pair(bits, work.settings.sigma, k);
    const std::int64_t begin = std::int64_t{number} * release_elements;
    for (int half = 0; half < 2; ++half) {
      const std::int64_t element = begin + half * threads + t;
      work.release(element, work.sum_of(element), static_cast<double>(k[half]));
    }
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
