// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/samplers/poisson_replace_one.hpp - Poisson sampling, accounted for neighbours that differ by
// replacing one record
//
// Draws are those of `poisson_sampling`, and so is the noise; what differs is what epsilon means. The number of records
// is public.
#pragma once

#include <cstdint>
#include <span>

#include <pergrad/privacy/events.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Each record enters each batch with the same probability, independently of all others.
class replace_one_poisson_sampling {
 public:
  using event_type = replace_one_gaussian_event;
  static constexpr std::uint64_t marked_together = poisson_sampling::marked_together;

  explicit replace_one_poisson_sampling(sampling_probability q) : poisson_{q} {}

  /// As `poisson_sampling` says.
  [[nodiscard]] sampling_probability probability() const { return poisson_.probability(); }
  /// What one step with this sampling and `noise` costs.
  [[nodiscard]] event_type event(noise_multiplier noise) const { return {probability().value(), noise.value()}; }
  void mark(const draw_place& place, std::uint64_t first, std::span<std::uint64_t> bits) const {
    poisson_.mark(place.step, first, bits);
  }

 private:
  poisson_sampling poisson_;
};

}  // namespace pergrad::inline v0_1
