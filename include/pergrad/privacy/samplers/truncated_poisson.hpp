// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/samplers/truncated_poisson.hpp - Poisson sampling of batches that are never larger than a capacity
//
// If more records are drawn than the capacity, which of them are kept is drawn, all sets alike: going through those
// that were drawn, one is kept with probability (places left) / (records left) (Fan, Muller & Rezucha 1962; Knuth,
// algorithm S). The event counts that a record may then displace another one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/events.hpp>
#include <pergrad/privacy/samplers/words.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// The most records that a batch has.
struct batch_capacity {
  std::uint32_t count;
};
/// A public number of records that a data set has, or has at most.
struct public_record_count {
  std::uint32_t count;
};

/// Each record is drawn with the same probability, independently of all others; of more than the capacity, any so many
/// are kept. The event is for neighbours of at most `most` records: that data sets have no more is a public fact.
class truncated_poisson_sampling {
 public:
  using event_type = truncated_gaussian_event;
  class listing;

  /// Throws std::invalid_argument for a capacity of 0.
  truncated_poisson_sampling(sampling_probability q, batch_capacity capacity, public_record_count most)
      : poisson_{q}, capacity_{capacity.count}, most_{most.count} {
    if (capacity.count == 0) detail::throw_invalid_argument({"pergrad: truncated_poisson_sampling: a capacity of 0"});
  }

  /// As `poisson_sampling` says.
  [[nodiscard]] sampling_probability probability() const { return poisson_.probability(); }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  /// What one step with this sampling and `noise` costs.
  [[nodiscard]] event_type event(noise_multiplier noise) const {
    return {probability().value(), noise.value(), static_cast<double>(capacity_), static_cast<double>(most_)};
  }
  /// Throws std::invalid_argument for more records than that.
  void require_records(std::uint64_t count) const {
    if (count > most_) {
      detail::throw_invalid_argument(
          {"pergrad: truncated_poisson_sampling: made for at most ", most_, " records, and got ", count});
    }
  }

 private:
  poisson_sampling poisson_;
  std::uint32_t capacity_;
  std::uint32_t most_;
};

/// The records of one step.
class truncated_poisson_sampling::listing {
 public:
  explicit listing(const truncated_poisson_sampling& sampling) { kept_.reserve(sampling.capacity_); }

  [[nodiscard]] std::span<const std::uint32_t> draw(const truncated_poisson_sampling& sampling, const draw_place& place,
                                                    std::uint64_t record_count) {
    sampling.require_records(record_count);
    std::uint64_t drawn = 0;
    kept_.clear();
    visit(sampling, place, record_count, [&](std::uint64_t record) {
      if (drawn++ < sampling.capacity_) kept_.push_back(static_cast<std::uint32_t>(record));
    });
    if (drawn <= sampling.capacity_) return kept_;
    kept_.clear();
    const detail::sampling_words words{place.step, 1};
    visit(sampling, place, record_count, [&](std::uint64_t record) {
      const std::uint64_t number = detail::number_below(drawn, words.at(record), record, place.step, 1);
      if (number < sampling.capacity_ - kept_.size()) kept_.push_back(static_cast<std::uint32_t>(record));
      --drawn;
    });
    return kept_;
  }

 private:
  template <class Visit>
  void visit(const truncated_poisson_sampling& sampling, const draw_place& place, std::uint64_t count,
             const Visit& visit_record) {
    for (std::uint64_t first = 0; first < count; first += 64 * bits_.size()) {
      sampling.poisson_.mark(place.step, first, bits_);
      poisson_sampling::visit_marked(bits_, first, count, visit_record);
    }
  }

  std::array<std::uint64_t, 256> bits_{};
  std::vector<std::uint32_t> kept_;
};

/// The same draws, accounted for neighbours that differ by replacing one record.
class replace_one_truncated_poisson_sampling : public truncated_poisson_sampling {
 public:
  using event_type = replace_one_truncated_gaussian_event;

  using truncated_poisson_sampling::truncated_poisson_sampling;

  /// What one step with this sampling and `noise` costs.
  [[nodiscard]] event_type event(noise_multiplier noise) const {
    const truncated_gaussian_event drawn = truncated_poisson_sampling::event(noise);
    return {drawn.sampling_probability, drawn.noise_multiplier, drawn.capacity, drawn.records};
  }
};

}  // namespace pergrad::inline v0_1
