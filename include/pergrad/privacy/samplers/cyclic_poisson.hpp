// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/samplers/cyclic_poisson.hpp - Poisson sampling within one of several groups of records, whose turn it
// is
//
// Every record draws its group once for a key and a data set, all groups alike; step t draws records of group t mod b.
// Groups are drawn and not counted off, so that the records behind one that is removed keep theirs, in law. They go
// with a record's number, so records keep theirs as long as a trainer is not given, or told of, other ones: it draws
// anew then. A record takes part at most once in any b steps in a row: what banded correlated noise needs
// (Choquette-Choo et al. 2023, arXiv:2306.08153).
//
// With independent noise: whatever a record's group is, b steps in a row have one of its group, so they cost one step
// of Poisson sampling. A mixture over groups costs no more than the worst of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/samplers/random_allocation.hpp>
#include <pergrad/privacy/samplers/words.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Of the records whose group's turn it is, each enters the batch with the same probability, independently of all
/// others. A batch has q / groups of all records on average.
class cyclic_poisson_sampling {
 public:
  using event_type = sampled_gaussian_event;
  /// In each turn a record takes part with the same probability, independently of all others and of other turns, in the
  /// step of its group: what amplifies banded noise.
  static constexpr bool takes_turns = true;
  static constexpr std::uint64_t marked_together = poisson_sampling::marked_together;

  /// Throws std::invalid_argument for no group.
  cyclic_poisson_sampling(sampling_probability q, round_steps groups) : poisson_{q}, groups_{groups.count} {
    if (groups.count == 0) detail::throw_invalid_argument({"pergrad: cyclic_poisson_sampling: 0 groups"});
  }

  /// Of a record whose group's turn it is.
  [[nodiscard]] sampling_probability probability() const { return poisson_.probability(); }
  /// What a turn of all groups with independent noise costs.
  [[nodiscard]] event_type event(noise_multiplier noise) const { return poisson_.event(noise); }
  /// Steps of a turn.
  [[nodiscard]] std::uint64_t steps_of_an_event() const noexcept { return groups_; }
  /// Steps from one that a record takes part in to the next, at least.
  [[nodiscard]] std::uint64_t min_separation() const noexcept { return groups_; }
  /// How often a record takes part in so many steps, at most.
  [[nodiscard]] std::uint64_t max_participations(std::uint64_t steps) const noexcept {
    return steps / groups_ + (steps % groups_ != 0 ? 1 : 0);
  }
  void mark(const draw_place& place, std::uint64_t first, std::span<std::uint64_t> bits) const {
    constexpr std::size_t words = marked_together / 64;
    std::uint64_t of_the_group[words];
    poisson_.mark(place.step, first, bits);
    for (std::size_t word = 0; word < bits.size(); word += words) {
      detail::mark_allocated(place.run, groups_, place.taken % groups_, first + 64 * word, of_the_group);
      for (std::size_t i = 0; i < words; ++i) bits[word + i] &= of_the_group[i];
    }
  }

 private:
  poisson_sampling poisson_;
  std::uint32_t groups_;
};

}  // namespace pergrad::inline v0_1
