// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/samplers/random_allocation.hpp - every record takes part exactly once in each round of steps, in a
// step that it draws
//
// Each round, every record draws one of the round's steps, all alike, independently of the others: balanced iteration,
// 1 out of t (Feldman & Shenfeld 2025, arXiv:2502.08202). A record takes part k times in an epoch of k rounds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/events.hpp>
#include <pergrad/privacy/samplers/words.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Steps in each of which a record takes part at most once.
struct round_steps {
  std::uint32_t count;
};

namespace detail {

/// Marks records whose number below `bound` is `wanted`: word r of family 1 of `stream`.
inline void mark_allocated(const secret_stream<randomness::sampling>& stream, std::uint64_t bound, std::uint64_t wanted,
                           std::uint64_t first, std::span<std::uint64_t> bits) {
  constexpr std::uint64_t together = sampling_words::together;
  if (first % together != 0 || bits.size() % (together / 64) != 0) {
    throw_invalid_argument({"pergrad: records are marked in whole blocks of ", together});
  }
  require_blocks("sampling", 16 * (first / together), 16 * (bits.size() / (together / 64)));
  const sampling_words words{stream, 1};
  std::uint64_t some[together];
  std::fill(bits.begin(), bits.end(), 0);
  for (std::uint64_t at = 0; at < 64 * bits.size(); at += together) {
    words.block((first + at) / together, some);
    for (std::uint64_t i = 0; i < together; ++i) {
      if (number_below(bound, some[i], first + at + i, stream, 1) == wanted) {
        bits[(at + i) / 64] |= std::uint64_t{1} << ((at + i) % 64);
      }
    }
  }
}

}  // namespace detail

/// Every record takes part in one step of each round, as likely in any.
class random_allocation {
 public:
  using event_type = allocated_gaussian_event;
  static constexpr std::uint64_t marked_together = detail::sampling_words::together;

  /// Throws std::invalid_argument for a round of no step.
  explicit random_allocation(round_steps steps) : steps_{steps.count} {
    if (steps.count == 0) detail::throw_invalid_argument({"pergrad: random_allocation: a round of 0 steps"});
  }

  /// What one round with `noise` costs.
  [[nodiscard]] event_type event(noise_multiplier noise) const { return {static_cast<double>(steps_), noise.value()}; }
  /// Steps of a round.
  [[nodiscard]] std::uint64_t steps_of_an_event() const noexcept { return steps_; }
  void mark(const draw_place& place, std::uint64_t first, std::span<std::uint64_t> bits) const {
    detail::mark_allocated(place.round, steps_, place.position, first, bits);
  }

 private:
  std::uint32_t steps_;
};

}  // namespace pergrad::inline v0_1
