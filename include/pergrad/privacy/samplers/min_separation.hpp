// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/samplers/min_separation.hpp - Poisson sampling in which a record that took part waits for some steps
//
// A record that did not take part in the b - 1 steps before takes part with probability p. It draws attempts, one a
// step, independent and each with probability p, and takes part in step t if it attempts and took part in none of the b
// - 1 steps before. Where b - 1 steps in a row have no attempt, what lies before them does not matter: so the draw
// looks back no further, and nothing of earlier steps is kept. Attempts go with a record's number, so records keep
// theirs as long as a trainer is not given, or told of, other ones: it draws anew then.
//
// With independent noise each step costs no more than one of Poisson sampling with probability p. Let an adversary see
// all steps before t. In the world with the record, it takes part in t with probability q_t = p P(it may | what was
// seen) <= p, so the step looks like (1 - q_t) N(0) + q_t N(g), where g, too, follows from what was seen; in the world
// without it, like N(0). With probability q_t / p that is a step of probability p, otherwise N(0): post-processing. So
// each step is dominated by Poisson's, whatever the steps before it were (adaptive composition).
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/samplers/random_allocation.hpp>
#include <pergrad/privacy/samplers/words.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// b-min-sep sampling: each record that may take part does with the same probability, independently of all others, and
/// then at the earliest `separation` steps later. Up to 2^24 - 2 steps in one run.
class min_separation_sampling {
 public:
  using event_type = sampled_gaussian_event;
  static constexpr std::uint64_t marked_together = poisson_sampling::marked_together;

  /// Throws std::invalid_argument for a separation of 0, and where a record would find hardly any gap: (1 - p)^(b - 1)
  /// below 1 %, for which `cyclic_poisson_sampling` is made.
  min_separation_sampling(sampling_probability p, round_steps separation) : poisson_{p}, separation_{separation.count} {
    if (separation.count == 0) {
      detail::throw_invalid_argument({"pergrad: min_separation_sampling: a separation of 0 steps"});
    }
    if (!(std::pow(1 - p.value(), static_cast<double>(separation.count - 1)) >= 0.01)) {
      detail::throw_invalid_argument({"pergrad: min_separation_sampling: records that take part with probability ",
                                      p.value(), " would wait nearly always for ", separation.count,
                                      " steps: use cyclic_poisson_sampling"});
    }
  }

  /// Of a record that may take part.
  [[nodiscard]] sampling_probability probability() const { return poisson_.probability(); }
  static constexpr std::uint64_t most_steps = (std::uint64_t{1} << 24U) - 2;  ///< in one run

  /// What one step with independent noise costs.
  [[nodiscard]] event_type event(noise_multiplier noise) const { return poisson_.event(noise); }
  /// Steps from one that a record takes part in to the next, at least.
  [[nodiscard]] std::uint64_t min_separation() const noexcept { return separation_; }
  /// How often a record takes part in so many steps, at most.
  [[nodiscard]] std::uint64_t max_participations(std::uint64_t steps) const noexcept {
    return steps / separation_ + (steps % separation_ != 0 ? 1 : 0);
  }
  /// Throws std::out_of_range beyond 2^24 - 2 steps.
  void mark(const draw_place& place, std::uint64_t first, std::span<std::uint64_t> bits) const {
    if (place.taken >= most_steps) {
      detail::throw_out_of_range({"pergrad: min_separation_sampling: more than 2^24 - 2 steps in one run"});
    }
    mark_attempts(place, first, bits);
    for (std::size_t word = 0; word < bits.size(); ++word) {
      for (std::uint64_t rest = bits[word]; rest != 0; rest &= rest - 1) {
        const auto bit = static_cast<std::uint64_t>(std::countr_zero(rest));
        if (!takes_part(place, first + 64 * word + bit)) bits[word] &= ~(std::uint64_t{1} << bit);
      }
    }
  }

 private:
  /// Words of a step's attempts: family 1 + step of the run's stream.
  [[nodiscard]] static detail::sampling_words words_of(const draw_place& place, std::uint64_t step) noexcept {
    return {place.run, step + 1};
  }
  void mark_attempts(const draw_place& place, std::uint64_t first, std::span<std::uint64_t> bits) const {
    constexpr std::uint64_t together = detail::sampling_words::together;
    detail::require_whole_blocks(first, bits.size());
    const detail::sampling_words words = words_of(place, place.taken);
    std::uint64_t some[together];
    for (std::uint64_t at = 0; at < 64 * bits.size(); at += 64) {
      if (at % together == 0) words.block((first + at) / together, some);
      std::uint64_t found = 0;
      for (std::uint64_t i = 0; i < 64; ++i) found |= std::uint64_t{poisson_.is_below(some[at % together + i])} << i;
      bits[at / 64] = found;
    }
  }
  /// Precondition: the record attempts to in step `place.taken`.
  [[nodiscard]] bool takes_part(const draw_place& place, std::uint64_t record) const noexcept {
    const auto attempts = [&](std::uint64_t step) { return poisson_.is_below(words_of(place, step).at(record)); };
    // Back to the step behind a gap, or the first of the run.
    std::uint64_t begin = place.taken;
    for (std::uint64_t without = 0; begin > 0 && without + 1 < separation_; --begin) {
      without = attempts(begin - 1) ? 0 : without + 1;
    }
    std::uint64_t may = begin;  // the first step in which it may take part
    for (std::uint64_t step = begin; step < place.taken; ++step) {
      if (step >= may && attempts(step)) may = step + separation_;
    }
    return place.taken >= may;
  }

  poisson_sampling poisson_;
  std::uint64_t separation_;
};

}  // namespace pergrad::inline v0_1
