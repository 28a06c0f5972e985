// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/samplers/random_allocation.hpp - every record takes part in a fixed number of each round's steps,
// which it draws
//
// Each round, an epoch say, every record draws k of the round's t steps, all sets alike, independently of the others:
// random allocation, balanced iteration (Feldman & Shenfeld 2025, arXiv:2502.08202, and 2026, arXiv:2602.17284).
#pragma once

#include <algorithm>
#include <cmath>
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
  require_whole_blocks(first, bits.size());
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

/// In how many steps of a round a record takes part.
struct participations {
  std::uint32_t count;
};

/// Every record takes part in so many steps of each round, all sets of them alike.
class random_allocation {
 public:
  using event_type = allocated_gaussian_event;
  static constexpr std::uint64_t marked_together = detail::sampling_words::together;
  static constexpr std::uint32_t most_times = 16;

  /// Throws std::invalid_argument for no step or more than 2^24, and unless 1 <= times <= steps, times <= 16.
  explicit random_allocation(round_steps steps, participations times = {1}) : steps_{steps.count}, times_{times.count} {
    if (steps.count == 0 || steps.count > 1U << 24U) {
      detail::throw_invalid_argument({"pergrad: random_allocation: a round of ", steps.count, " steps"});
    }
    if (times.count == 0 || times.count > steps.count || times.count > most_times) {
      detail::throw_invalid_argument({"pergrad: random_allocation: records take part in 1 to ", most_times, " of ",
                                      steps.count, " steps, got ", times.count});
    }
  }

  /// What one round with `noise` costs.
  [[nodiscard]] event_type event(noise_multiplier noise) const {
    return {static_cast<double>(steps_), static_cast<double>(times_), noise.value()};
  }
  /// Steps of a round.
  [[nodiscard]] std::uint64_t steps_of_an_event() const noexcept { return steps_; }
  void mark(const draw_place& place, std::uint64_t first, std::span<std::uint64_t> bits) const {
    if (times_ == 1) {
      detail::mark_allocated(place.round, steps_, place.position, first, bits);
      return;
    }
    detail::require_whole_blocks(first, bits.size());
    std::fill(bits.begin(), bits.end(), 0);
    for (std::uint64_t at = 0; at < 64 * bits.size(); at += marked_together) mark_block(place, first, at, bits);
  }

 private:
  /// One step after the other is drawn among those that are left: number x stands for the x-th of them.
  void mark_block(const draw_place& place, std::uint64_t first, std::uint64_t at, std::span<std::uint64_t> bits) const {
    constexpr std::uint64_t families = 3;  // of one number
    std::uint64_t some[marked_together];
    std::uint32_t taken[marked_together][most_times];  // ascending
    for (std::uint32_t time = 0; time < times_; ++time) {
      const std::uint64_t family = 1 + families * time;
      detail::sampling_words{place.round, family}.block((first + at) / marked_together, some);
      for (std::uint64_t i = 0; i < marked_together; ++i) {
        std::uint32_t* const mine = taken[i];
        auto step = static_cast<std::uint32_t>(
            detail::number_below(steps_ - time, some[i], first + at + i, place.round, family));
        std::uint32_t rank = 0;
        while (rank < time && mine[rank] <= step) ++rank, ++step;
        std::copy_backward(mine + rank, mine + time, mine + time + 1);
        mine[rank] = step;
        if (step == place.position) bits[(at + i) / 64] |= std::uint64_t{1} << ((at + i) % 64);
      }
    }
  }

  std::uint32_t steps_;
  std::uint32_t times_;
};

/// Passes over the data set.
struct epoch_count {
  std::uint32_t count;
};

/// Balls in bins (Chua et al. 2024, arXiv:2412.16802): every record draws one of b bins, all alike, and takes part in
/// that step of each of E epochs of b steps. One event pays all of them: the run is E epochs long.
///
/// Given the bin, a record is in E steps, whose releases along its gradients add up to one of E times the distance and
/// sqrt(E) times the deviation: a round of b steps with noise sigma / sqrt(E). As there, whoever sees these sums and
/// what is left of the noise can make the releases one by one, also where gradients depend on earlier ones
/// (ratio_sums.hpp). So the bound is proven, where Monte Carlo has been used.
class balls_in_bins_sampling {
 public:
  using event_type = allocated_gaussian_event;
  static constexpr std::uint64_t marked_together = detail::sampling_words::together;

  /// Throws std::invalid_argument for no bin or more than 2^24, and for no epoch.
  balls_in_bins_sampling(round_steps bins, epoch_count epochs) : bins_{bins.count}, epochs_{epochs.count} {
    if (bins.count == 0 || bins.count > 1U << 24U || epochs.count == 0) {
      detail::throw_invalid_argument(
          {"pergrad: balls_in_bins_sampling: ", bins.count, " bins and ", epochs.count, " epochs"});
    }
  }

  /// What all epochs with `noise` cost.
  [[nodiscard]] event_type event(noise_multiplier noise) const {
    const double of_all = noise.value() / std::sqrt(static_cast<double>(epochs_)) * (1 - 0x1p-50);
    return {static_cast<double>(bins_), 1, epochs_ == 1 ? noise.value() : of_all};
  }
  /// Steps of all epochs.
  [[nodiscard]] std::uint64_t steps_of_an_event() const noexcept { return bins_ * epochs_; }
  /// Steps from one that a record takes part in to the next.
  [[nodiscard]] std::uint64_t min_separation() const noexcept { return bins_; }
  /// How often a record takes part in so many steps, at most.
  [[nodiscard]] std::uint64_t max_participations(std::uint64_t steps) const noexcept {
    return steps / bins_ + (steps % bins_ != 0 ? 1 : 0);
  }
  void mark(const draw_place& place, std::uint64_t first, std::span<std::uint64_t> bits) const {
    detail::mark_allocated(place.round, bins_, place.position % bins_, first, bits);
  }

 private:
  std::uint64_t bins_;
  std::uint64_t epochs_;
};

}  // namespace pergrad::inline v0_1
