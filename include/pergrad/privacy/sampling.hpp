// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/sampling.hpp - Poisson sampling of records, and the accounting event that it and nothing else yields.
//
// Record r enters step s when its own 64-bit word of the stream (sampling key, record_sampling, s) is below
// floor(q 2^64). The threshold is rounded down and the accountant is told threshold / 2^64, which a double holds
// exactly: q has 53 significant bits and rounding down only removes some. Draws are independent for each (step,
// record); nothing is derived from a shuffled order, for which this accounting would be wrong (Chua et al. 2024,
// arXiv:2403.17673).
//
// Records come in blocks of 128, block t uses ChaCha20 blocks 16 t ... 16 t + 15: record 128 t + 16 p + c takes words p
// (high) and 8 + p (low) of block 16 t + c, p = 0..7, c = 0..15, whatever the vector width.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/noise/chacha20.hpp>
#include <pergrad/privacy/noise/purpose.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// What one step of the Poisson-sampled Gaussian mechanism costs, for neighbours that differ by adding or removing one
/// record: sampling probability q and noise multiplier (noise standard deviation over L2 sensitivity).
///
/// An event is numbers (doubles and nothing else, as files hold them), the neighbours for which they count, a name, and
/// what a release about all records costs. A ledger holds events of one type.
struct sampled_gaussian_event {
  double sampling_probability;
  double noise_multiplier;

  static constexpr neighbouring relation = neighbouring::add_or_remove_one;
  static constexpr const char* name = "sampled Gaussian";
  /// Of a histogram of all records, with noise of this deviation on each count.
  [[nodiscard]] static sampled_gaussian_event of_counts(pergrad::noise_multiplier noise) { return {1, noise.value()}; }

  friend constexpr bool operator==(const sampled_gaussian_event&, const sampled_gaussian_event&) noexcept = default;
};

/// Where in a run a step is drawn: draws are functions of this and of a record's number.
struct draw_place {
  using stream = detail::secret_stream<detail::randomness::sampling>;
  stream step;                 ///< of this step alone
  stream round;                ///< of the step that began the round: of all steps that one event pays
  stream run;                  ///< of all steps that are drawn with one key, of the same records
  std::uint64_t position = 0;  ///< of the step in its round
  std::uint64_t taken = 0;     ///< steps of the run before this one

  draw_place() = default;
  draw_place(const stream& of_step, const stream& of_round, const stream& of_run, std::uint64_t at,
             std::uint64_t before) noexcept
      : step{of_step}, round{of_round}, run{of_run}, position{at}, taken{before} {}
  /// For samplers to which nothing else matters.
  // NOLINTNEXTLINE(google-explicit-constructor): a stream says where
  draw_place(const stream& of_step) noexcept : step{of_step}, round{of_step}, run{of_step} {}
};

/// Each record enters each batch with the same probability, independently of all others.
class poisson_sampling {
 public:
  using event_type = sampled_gaussian_event;

  explicit poisson_sampling(sampling_probability q) : everybody_{q.value() == 1.0} {
    if (!everybody_) threshold_ = static_cast<std::uint64_t>(std::ldexp(q.value(), 64));  // truncates: rounds down
  }

  // clang-format off
  template <class Plain> requires std::is_arithmetic_v<Plain>
  explicit poisson_sampling(Plain) = delete;  // write pergrad::poisson_sampling{pergrad::sampling_probability{0.01}}
  // clang-format on

  /// Probability that really is used, at most 2^-64 below the one asked for.
  [[nodiscard]] pergrad::sampling_probability probability() const {
    return pergrad::sampling_probability{everybody_ ? 1.0 : std::ldexp(static_cast<double>(threshold_), -64)};
  }

  /// What one step with this sampling and `noise` costs.
  [[nodiscard]] sampled_gaussian_event event(pergrad::noise_multiplier noise) const {
    return {probability().value(), noise.value()};
  }

  /// Sets bit i of `bits` if record first + i is sampled and clears it if not, whether there is such a record or not:
  /// threads can share out a data set, and `visit_marked` collects what they found. Throws std::invalid_argument unless
  /// `first` and the number of bits are multiples of `marked_together`, std::out_of_range beyond 2^35 records.
  void mark(const draw_place& place, std::uint64_t first, std::span<std::uint64_t> bits) const {
    if (first % block != 0 || bits.size() % words_per_block != 0) {
      detail::throw_invalid_argument({"pergrad: poisson_sampling: records are marked in whole blocks of ", block});
    }
    detail::require_blocks("poisson_sampling", 16 * (first / block), 16 * (bits.size() / words_per_block));
    const chacha_nonce nonce = place.step.nonce();
    for (std::size_t word = 0; word < bits.size(); word += words_per_block) {
      mark_block(place.step.key(), nonce, first / block + word / words_per_block,
                 bits.subspan(word).first<words_per_block>());
    }
  }
  /// Whether a record with this word is drawn.
  [[nodiscard]] PERGRAD_HD bool is_below(std::uint64_t word) const noexcept { return everybody_ || word < threshold_; }
  friend bool operator==(const poisson_sampling&, const poisson_sampling&) noexcept = default;
  /// Records that `mark` marks together.
  static constexpr std::uint64_t marked_together = 128;

  /// Calls visit(first + i) for every set bit i of `bits`, ascending, as long as that is below record_count.
  template <class Visitor>
  static void visit_marked(std::span<const std::uint64_t> bits, std::uint64_t first, std::uint64_t record_count,
                           Visitor&& visit) {
    for (std::size_t word = 0; word < bits.size(); ++word) {
      for (std::uint64_t rest = bits[word]; rest != 0; rest &= rest - 1) {
        const std::uint64_t record = first + 64 * word + static_cast<std::uint64_t>(std::countr_zero(rest));
        if (record < record_count) visit(record);
      }
    }
  }

 private:
  static constexpr std::uint64_t block = marked_together;
  static constexpr std::size_t words_per_block = block / 64;

  /// Bit i: whether record 128 number + i is sampled.
  void mark_block(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t number,
                  std::span<std::uint64_t, words_per_block> bits) const noexcept {
    std::fill(bits.begin(), bits.end(), everybody_ ? ~std::uint64_t{0} : 0);
    if (everybody_ || threshold_ == 0) return;
    std::uint32_t chosen[block];
    if (!choose_block<detail::native_lanes>(key, nonce, number, chosen)) return;
    for (std::size_t i = 0; i < block; ++i) bits[i / 64] |= std::uint64_t{chosen[i] & 1U} << (i % 64);
  }

  /// chosen[i] becomes odd if record 128 number + i is sampled and 0 if not. Returns whether any is: mostly none,
  /// where few are drawn.
  template <int Lanes>
  bool choose_block(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t number,
                    std::uint32_t (&chosen)[block]) const noexcept {
    using u32 = typename detail::lanes<Lanes>::u32;
    const auto threshold_high = static_cast<std::uint32_t>(threshold_ >> 32U);
    const auto threshold_low = static_cast<std::uint32_t>(threshold_ & 0xffff'ffffU);
    u32 any{};
    for (std::size_t column = 0; column < 16; column += static_cast<std::size_t>(Lanes)) {
      u32 words[16];
      detail::chacha_lanes<Lanes>(
          key, nonce, detail::lane_numbers<Lanes>() + static_cast<std::uint32_t>(16 * number + column), words);
      for (std::size_t row = 0; row < 8; ++row) {
        const auto below = std::bit_cast<u32>((words[row] < threshold_high) |
                                              ((words[row] == threshold_high) & (words[8 + row] < threshold_low)));
        any |= below;
        std::memcpy(chosen + 16 * row + column, &below, sizeof below);
      }
    }
    if constexpr (Lanes == 1) {
      return any != 0;
    } else {
      std::uint32_t found = 0;
      for (int lane = 0; lane < Lanes; ++lane) found |= any[lane];
      return found != 0;
    }
  }

  std::uint64_t threshold_ = 0;
  bool everybody_ = false;
};

namespace detail {

/// A sampler that lists the records of a step, as others mark them.
template <class Sampling>
concept lists_records = requires {
  typename Sampling::listing;
};
/// A sampler whose event pays several steps, a round: `steps_of_an_event()`.
template <class Sampling>
concept has_rounds = requires(const Sampling& sampling) {
  sampling.steps_of_an_event();
};
/// One whose draws depend on those before.
template <class Sampling>
concept remembers_steps = has_rounds<Sampling> || requires(const Sampling& sampling) {
  sampling.min_separation();
};
/// What a sampler that marks does for the step at `place`; Poisson sampling knows no other step.
template <class Sampling>
void mark_step(const Sampling& sampling, const draw_place& place, std::uint64_t first, std::span<std::uint64_t> bits) {
  if constexpr (std::is_same_v<Sampling, poisson_sampling>) {
    sampling.mark(place.step, first, bits);
  } else {
    sampling.mark(place, first, bits);
  }
}
/// The stream of all steps that are drawn with one key: of a step that no generator gives out.
inline constexpr std::uint64_t step_of_the_run = ~std::uint64_t{0};

}  // namespace detail

namespace unaccounted {

/// The records of [0, record_count) that a step at this place draws, ascending.
template <class Sampling>
[[nodiscard]] std::vector<std::uint32_t> drawn_at(const draw_place& place, const Sampling& sampling,
                                                  std::uint32_t record_count) {
  std::vector<std::uint32_t> drawn;
  if constexpr (pergrad::detail::lists_records<Sampling>) {
    typename Sampling::listing list{sampling};
    const auto records = list.draw(sampling, place, record_count);
    drawn.assign(records.begin(), records.end());
  } else {
    constexpr std::uint64_t together = Sampling::marked_together;
    std::vector<std::uint64_t> bits((std::size_t{record_count} + together - 1) / together * (together / 64));
    pergrad::detail::mark_step(sampling, place, 0, bits);
    poisson_sampling::visit_marked(bits, 0, record_count,
                                   [&](std::uint64_t record) { drawn.push_back(static_cast<std::uint32_t>(record)); });
  }
  return drawn;
}

/// The records of [0, record_count) that one step draws, ascending: a step of the generator, the first one of a run.
/// They are private values, as is their number; what is made of them has to be noised, and every draw entered in a
/// ledger. Throws std::out_of_range beyond 2^35 records. A sampler whose steps depend on those before would draw the
/// first one again and again: it has none of this.
template <class Sampling, random_generator Generator>
[[nodiscard]] std::vector<std::uint32_t> draw(const Sampling& sampling, Generator& generator,
                                              std::uint32_t record_count) {
  static_assert(!pergrad::detail::remembers_steps<Sampling>,
                "draw: steps of this sampler depend on those before, which one draw knows nothing of: use private_loop "
                "or dp_sgd");
  using pergrad::detail::randomness;
  const std::uint64_t step = generator.next_step();
  const auto stream = generator.template stream<randomness::sampling>(step);
  const auto run = generator.template stream<randomness::sampling>(pergrad::detail::step_of_the_run);
  return drawn_at(draw_place{stream, stream, run, 0, 0}, sampling, record_count);
}

}  // namespace unaccounted

}  // namespace pergrad::inline v0_1
