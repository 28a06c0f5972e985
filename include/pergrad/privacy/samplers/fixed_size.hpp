// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/samplers/fixed_size.hpp - batches of a fixed number of records, drawn without replacement
//
// All sets of so many records are equally likely, each step anew: a record is taken with probability (places left) /
// (records left), one after the other (Fan, Muller & Rezucha 1962; Knuth, algorithm S). Takes the time of a word a
// record, on one thread. With a fixed number of records in a batch, no record can be added or removed without another
// one: neighbours differ by replacing one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/events.hpp>
#include <pergrad/privacy/samplers/truncated_poisson.hpp>
#include <pergrad/privacy/samplers/words.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Records of a batch.
struct batch_size {
  std::uint32_t count;
};

/// `size` of `records` records, all sets of them alike.
class fixed_size_sampling {
 public:
  using event_type = fixed_size_gaussian_event;
  class listing;

  /// Throws std::invalid_argument for a batch of no record, or of more than there are.
  fixed_size_sampling(batch_size size, public_record_count records) : size_{size.count}, records_{records.count} {
    if (size.count == 0 || size.count > records.count) {
      detail::throw_invalid_argument(
          {"pergrad: fixed_size_sampling: a batch of ", size.count, " of ", records.count, " records"});
    }
  }

  /// What one step with this sampling and `noise` costs.
  [[nodiscard]] event_type event(noise_multiplier noise) const {
    // Rounded up: of 32 bits each, quotients below 1 are apart from 1 by more than this adds.
    const double share = static_cast<double>(size_) / static_cast<double>(records_);
    return {size_ == records_ ? 1 : share * (1 + 0x1p-52), noise.value()};
  }
  /// Throws std::invalid_argument for another number of records than this was made for; it is public.
  void require_records(std::uint64_t count) const {
    if (count != records_) {
      detail::throw_invalid_argument(
          {"pergrad: fixed_size_sampling: made for ", records_, " records, and got ", count});
    }
  }

 private:
  std::uint32_t size_;
  std::uint32_t records_;
};

/// The records of one step.
class fixed_size_sampling::listing {
 public:
  explicit listing(const fixed_size_sampling& sampling) { drawn_.reserve(sampling.size_); }

  [[nodiscard]] std::span<const std::uint32_t> draw(const fixed_size_sampling& sampling, const draw_place& place,
                                                    std::uint64_t record_count) {
    sampling.require_records(record_count);
    drawn_.clear();
    detail::for_each_number(
        place.step, 0, record_count, [&](std::uint64_t record) { return record_count - record; },
        [&](std::uint64_t record, std::uint64_t number) {
          if (number < sampling.size_ - drawn_.size()) drawn_.push_back(static_cast<std::uint32_t>(record));
        });
    return drawn_;
  }

 private:
  std::vector<std::uint32_t> drawn_;
};

}  // namespace pergrad::inline v0_1
