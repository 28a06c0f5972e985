// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/events.hpp - what a step costs with samplers other than Poisson sampling of records that are added or
// removed
//
// An event is numbers, doubles and nothing else, the neighbours for which they count, a name, and what a release about
// all records costs (privacy/sampling.hpp). `noise_multiplier` is the noise's deviation over D, what one record can add
// to a sum, whatever the relation: a record that is replaced moves a sum by up to 2 D, and the accountant counts that.
//
// A histogram of all records is a Gaussian mechanism; a record that is replaced moves two counts by one, sqrt(2) in
// L2, where an event with this noise and without sampling counts 2. So it is that of sqrt(2) times its noise.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {
/// Noise of a histogram for neighbours by replacing one record; see the head of this file. Rounded down.
[[nodiscard]] inline double replacing_noise(noise_multiplier noise) noexcept {
  return noise.value() * (1.41421356237309504880 * (1 - 0x1p-50));
}
}  // namespace detail

/// A step of Poisson sampling with probability q, for neighbours that differ by replacing one record. With q = 1 a
/// Gaussian mechanism of sensitivity 2 D.
struct replace_one_gaussian_event {
  double sampling_probability;
  double noise_multiplier;

  static constexpr neighbouring relation = neighbouring::replace_one;
  static constexpr const char* name = "sampled Gaussian, replacing one";
  [[nodiscard]] static replace_one_gaussian_event of_counts(pergrad::noise_multiplier noise) {
    return {1, detail::replacing_noise(noise)};
  }
  friend constexpr bool operator==(const replace_one_gaussian_event&,
                                   const replace_one_gaussian_event&) noexcept = default;
};

/// A step of Poisson sampling with probability q of up to `records` records, cut to `capacity` of those drawn, any of
/// which are equally likely to be left out; for neighbours that differ by adding or removing one record.
struct truncated_gaussian_event {
  double sampling_probability;
  double noise_multiplier;
  double capacity;
  double records;

  static constexpr neighbouring relation = neighbouring::add_or_remove_one;
  static constexpr const char* name = "truncated sampled Gaussian";
  [[nodiscard]] static truncated_gaussian_event of_counts(pergrad::noise_multiplier noise) {
    return {1, noise.value(), 0, 0};  // nothing is cut
  }
  friend constexpr bool operator==(const truncated_gaussian_event&, const truncated_gaussian_event&) noexcept = default;
};

/// The same for neighbours that differ by replacing one record.
struct replace_one_truncated_gaussian_event {
  double sampling_probability;
  double noise_multiplier;
  double capacity;
  double records;

  static constexpr neighbouring relation = neighbouring::replace_one;
  static constexpr const char* name = "truncated sampled Gaussian, replacing one";
  [[nodiscard]] static replace_one_truncated_gaussian_event of_counts(pergrad::noise_multiplier noise) {
    return {1, detail::replacing_noise(noise), 0, 0};  // nothing is cut
  }
  friend constexpr bool operator==(const replace_one_truncated_gaussian_event&,
                                   const replace_one_truncated_gaussian_event&) noexcept = default;
};

/// A step of which `sampled_share` of all records are drawn, a fixed number, all sets of them alike; for neighbours
/// that differ by replacing one record.
struct fixed_size_gaussian_event {
  double sampled_share;
  double noise_multiplier;

  static constexpr neighbouring relation = neighbouring::replace_one;
  static constexpr const char* name = "Gaussian of batches of fixed size";
  [[nodiscard]] static fixed_size_gaussian_event of_counts(pergrad::noise_multiplier noise) {
    return {1, detail::replacing_noise(noise)};
  }
  friend constexpr bool operator==(const fixed_size_gaussian_event&,
                                   const fixed_size_gaussian_event&) noexcept = default;
};

/// A round of `steps` steps, in `times` of which every record takes part, drawn for each record by itself, all sets of
/// so many steps alike; for neighbours that differ by adding or removing one record.
struct allocated_gaussian_event {
  double steps;
  double times;
  double noise_multiplier;

  static constexpr neighbouring relation = neighbouring::add_or_remove_one;
  static constexpr const char* name = "Gaussian of a random allocation";
  [[nodiscard]] static allocated_gaussian_event of_counts(pergrad::noise_multiplier noise) {
    return {1, 1, noise.value()};
  }
  friend constexpr bool operator==(const allocated_gaussian_event&, const allocated_gaussian_event&) noexcept = default;
};

}  // namespace pergrad::inline v0_1
