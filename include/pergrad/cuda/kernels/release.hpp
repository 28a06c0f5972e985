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
// optimizers, which apply the same rules (optim/rules.hpp) to the same numbers. GPUs that have few units for doubles
// make all of it by integers; a double is then met once a block, in the constants of the rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/cuda/device/integer_gaussian.hpp>
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
inline constexpr int corrected_adam = 4;
}  // namespace update

inline constexpr int release_threads = 256;
inline constexpr int release_elements = static_cast<int>(pergrad::detail::gaussian_block);
static_assert(release_elements == 2 * release_threads);

/// Noise on a grid, as kernels want it.
struct noise_on_grid {
  double sigma = 0;  ///< in steps of the grid; 0: none
  integer_deviation deviation{};
  pergrad::detail::release_scale scale{};
  float float_step = 0;  ///< of the grid, where no float on it is subnormal or infinite; else 0

  [[nodiscard]] static noise_on_grid of(double sigma, const pergrad::detail::release_scale& scale) noexcept {
    const bool is_plain = scale.grid >= 0x1p-126 && scale.grid <= 0x1p74;  // integers are below 2^53
    return {sigma, integer_deviation::of(sigma), scale, is_plain ? static_cast<float>(scale.grid) : 0};
  }
};

/// What stays from step to step. What does not is read from a `step_state`: the number of the noise, and what
/// optim/rules.hpp calls rate, correction and keep.
template <class Scalar>
struct release_settings {
  random_stream noise{};  ///< of the purpose gradient_noise and step 0
  noise_on_grid grid{};
  pergrad::detail::gaussian_polynomials polynomials{};
  double scale = 1;  ///< the gradient's public factor
  Scalar momentum = 0;
  double beta1 = 0;
  double beta2 = 0;
  double stability = 0;
  double floor = 0;
};

/// The rules that a release may apply, of which it applies one.
template <class Scalar>
struct release_rules {
  rules::sgd_rule<Scalar> sgd;
  rules::momentum_rule<Scalar> momentum;
  rules::corrected_adam_rule<Scalar> adam;  ///< with Adam's own
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
  template <class Noise>
  PERGRAD_HD void release(std::int64_t element, std::int64_t sum, Noise noise,
                          const release_rules<Scalar>& rules) const noexcept {
    if (element >= end) return;
    constexpr auto most = static_cast<std::int64_t>(pergrad::detail::most_on_grid);
    const Scalar value = value_at(smaller_of(larger_of(sum, -most), most), noise);
    released[element] = value;
    if (is_held(element)) return;
    switch (rule) {
      case update::sgd:
        return rules.sgd(value, parameters[element]);
      case update::momentum:
        return rules.momentum(value, parameters[element], first[element]);
      case update::adam:
      case update::corrected_adam:
        return step_of_adam(rules.adam, value, parameters[element], first[element], second[element]);
      default:
        return;
    }
  }
  /// The rules of this step.
  [[nodiscard]] PERGRAD_HD release_rules<Scalar> rules_of_step() const noexcept {
    const auto keep = static_cast<Scalar>(state->keep);
    return {
        {static_cast<Scalar>(multiply(state->rate, settings.scale)), keep},
        {static_cast<Scalar>(settings.scale), static_cast<Scalar>(state->rate), settings.momentum, keep},
        {rules::make_adam<Scalar>(state->rate, state->correction, settings.beta1, settings.beta2, settings.stability,
                                  settings.scale, state->keep),
         static_cast<Scalar>(state->square), static_cast<Scalar>(state->noise), static_cast<Scalar>(settings.floor)}};
  }

 private:
  /// With one root and one quotient for both, as these take many instructions.
  PERGRAD_HD void step_of_adam(const rules::corrected_adam_rule<Scalar>& by, Scalar value, Scalar& parameter,
                               Scalar& of_first, Scalar& of_second) const noexcept {
    const bool corrects = rule == update::corrected_adam;
    by.adam.take(value, of_first, of_second);
    const Scalar root = rounded::square_root(corrects ? by.without_noise(of_second) : of_second);
    by.adam.move(parameter, of_first, corrects ? root : by.adam.denominator(root));
  }
  [[nodiscard]] PERGRAD_HD Scalar value_at(std::int64_t place, double noise) const noexcept {
    return pergrad::detail::released_value<Scalar>(static_cast<double>(place) + noise, settings.grid.scale);
  }
  /// The same value. The grid is a power of two: where it can, a product with it is exact.
  [[nodiscard]] PERGRAD_HD Scalar value_at(std::int64_t place, std::int64_t noise) const noexcept {
    if constexpr (std::is_same_v<Scalar, float>) {
      if (settings.grid.float_step > 0) return multiply(static_cast<float>(place + noise), settings.grid.float_step);
    }
    return value_at(place, static_cast<double>(noise));
  }
};

/// The kernel at the head of this file; `blocks()` of them. The rule is a number and not a template argument: what
/// makes the noise is compiled once a program. `ByIntegers`: as where there are few units for doubles, for tests.
template <class Scalar, bool ByIntegers = false>
struct release_kernel {
  static constexpr int threads = release_threads;
  static constexpr int chacha_blocks = 64;
  struct shared_type {
    std::uint32_t words[16][chacha_blocks];
    release_rules<Scalar> rules;
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
    const bool is_noised = work.settings.grid.sigma > 0;
    block.each([&](int t) {
      for (int half = 0; half < 2; ++half) sums[t][half] = work.sum_of(begin + half * threads + t);
      if (t == threads - 1) shared.rules = work.rules_of_step();
      if (is_noised && t < chacha_blocks) {
        std::uint32_t words[16];
        make_random_block(at_step(work.settings.noise, work.state->noise_step),
                          static_cast<std::uint32_t>(chacha_blocks * number + t), words);
        PERGRAD_UNROLL
        for (int row = 0; row < 16; ++row) shared.words[row][t] = words[row];
      }
    });
    block.each([&](int t) {
      integer_type k[2] = {0, 0};
      if (is_noised && !round_pair(shared.words, t, k)) settle(shared.words, std::int64_t{number} * threads + t, k);
      for (int half = 0; half < 2; ++half) {
        work.release(begin + half * threads + t, sums[t][half], k[half], shared.rules);
      }
    });
  }

 private:
  static constexpr bool by_integers = ByIntegers || has_few_doubles;
  using integer_type = std::conditional_t<by_integers, std::int64_t, double>;
  using block_words = std::uint32_t[16][chacha_blocks];

  /// Makes the pair of thread `t`. Are both roundings proven?
  [[nodiscard]] PERGRAD_HD bool round_pair(const block_words& words, int t, integer_type (&k)[2]) const noexcept {
    const int row = t / chacha_blocks * 4;
    const int column = t % chacha_blocks;
    const std::uint32_t u[2] = {words[row][column], words[row + 1][column]};
    const std::uint32_t v[2] = {words[row + 2][column], words[row + 3][column]};
    const noise_on_grid& grid = work.settings.grid;
    if constexpr (by_integers) {
      const integer_pair pair = round_gaussians_by_integers(u[0], u[1], v[0], v[1], grid.deviation);
      k[0] = pair.along_cosine;
      k[1] = pair.along_sine;
      return !pair.is_open;
    } else {
      const auto pair = pergrad::detail::round_gaussians<1>(pergrad::detail::widened<0, 1>(u[0], u[1], v[0], v[1]),
                                                            2 * grid.sigma * grid.sigma, work.settings.polynomials);
      k[0] = pair.along_cosine;
      k[1] = pair.along_sine;
      return !pergrad::detail::is_open(pair.margin);
    }
  }
  /// A pair, by as many bits as it takes: `first` has those of the block's.
  PERGRAD_HD void settle(const block_words& first, std::int64_t pair, integer_type (&k)[2]) const noexcept {
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
    pergrad::detail::exact_pair(bits, work.settings.grid.sigma, exact);
    for (int half = 0; half < 2; ++half) k[half] = static_cast<integer_type>(exact[half]);
  }
};

/// Behind a release: the average of the parameters behind each step (optim/parameter_average.hpp). `blocks()` of them.
template <class Scalar>
struct average_kernel {
  static constexpr int threads = 256;
  struct shared_type {};

  const step_state* state;
  const Scalar* parameters;
  Scalar* average;
  std::int64_t count;

  [[nodiscard]] int blocks() const noexcept { return blocks_for(count, threads); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    if (state->last == 0) return;
    block.each([&](int t) {
      const std::int64_t element = static_cast<std::int64_t>(block.index()) * threads + t;
      if (element >= count) return;
      const Scalar parameter = parameters[element];
      average[element] =
          state->way == 1 ? parameter : rules::averaged(average[element], parameter, static_cast<Scalar>(state->way));
    });
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
