// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/samplers/shuffled.hpp - batches of shuffled records, one batch after the other, accounted without
// amplification
//
// Each epoch every record takes part once, in an order that is drawn (Fisher and Yates). That the order is secret may
// help, but by far less than Poisson accounting says (Chua et al. 2024, arXiv:2403.17673), and no useful bound is known
// for many epochs; so it is not counted: an epoch costs one Gaussian mechanism, E epochs one of noise multiplier sigma
// / (2 sqrt(E)). That holds for any order, so one batch after the other, although each sees what those before it led
// to: a record that is replaced changes one step's sum by up to 2 D.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/events.hpp>
#include <pergrad/privacy/samplers/fixed_size.hpp>
#include <pergrad/privacy/samplers/truncated_poisson.hpp>
#include <pergrad/privacy/samplers/words.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Batches of `size` records, the last of an epoch of what is left. Keeps the order, four bytes a record.
class shuffled_batches {
 public:
  using event_type = replace_one_gaussian_event;
  class listing;

  /// Throws std::invalid_argument for a batch of no record, or of more than there are.
  shuffled_batches(batch_size size, public_record_count records) : size_{size.count}, records_{records.count} {
    if (size.count == 0 || size.count > records.count) {
      detail::throw_invalid_argument(
          {"pergrad: shuffled_batches: batches of ", size.count, " of ", records.count, " records"});
    }
  }

  /// What one epoch with `noise` costs.
  [[nodiscard]] event_type event(noise_multiplier noise) const { return {1, noise.value()}; }
  /// Records of a batch, but for an epoch's last one.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t records() const noexcept { return records_; }
  /// Steps of an epoch.
  [[nodiscard]] std::uint64_t steps_of_an_event() const noexcept { return (records_ + size_ - 1) / size_; }
  /// Throws std::invalid_argument for another number of records than this was made for; it is public.
  void require_records(std::uint64_t count) const {
    if (count != records_) {
      detail::throw_invalid_argument({"pergrad: shuffled_batches: made for ", records_, " records, and got ", count});
    }
  }

 private:
  std::uint64_t size_;
  std::uint64_t records_;
};

/// The order of an epoch, and the records of one of its steps.
class shuffled_batches::listing {
 public:
  explicit listing(const shuffled_batches& sampling) : order_(sampling.records_) {}

  [[nodiscard]] std::span<const std::uint32_t> draw(const shuffled_batches& sampling, const draw_place& place,
                                                    std::uint64_t record_count) {
    sampling.require_records(record_count);
    if (place.position >= sampling.steps_of_an_event()) {
      detail::throw_out_of_range(
          {"pergrad: shuffled_batches: no step ", place.position, " in an epoch of ", sampling.steps_of_an_event()});
    }
    if (!(place.round == of_)) {
      std::iota(order_.begin(), order_.end(), 0U);
      detail::for_each_number(
          place.round, 0, record_count, [&](std::uint64_t at) { return at + 1; },
          [&](std::uint64_t at, std::uint64_t number) { std::swap(order_[at], order_[number]); });
      of_ = place.round;
    }
    const std::uint64_t first = place.position * sampling.size_;
    const auto batch = std::span{order_}.subspan(first, std::min(sampling.size_, record_count - first));
    std::sort(batch.begin(), batch.end());  // within its batch a record's place means nothing
    return batch;
  }

 private:
  std::vector<std::uint32_t> order_;
  draw_place::stream of_;
};

}  // namespace pergrad::inline v0_1
