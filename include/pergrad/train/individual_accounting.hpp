// SPDX-License-Identifier: Apache-2.0
// pergrad/train/individual_accounting.hpp - a trainer's records pay for what they add, each from a budget of its own
//
// The sum has to be one of integers: then a record moves it by what it adds, rounded by itself, and by nothing else,
// and one that is left out by nothing at all. With C / g + sqrt(d) / 2 steps of the grid as the sum's sensitivity, a
// record that adds a norm of at most c has the share (c / g + sqrt(d) / 2) / (C / g + sqrt(d) / 2) of it, or none where
// c < g / 2, as each of its elements is rounded to 0 then (privacy/sensitivity.hpp).
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/detail/float_environment.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/privacy/accounting/individual_filter.hpp>
#include <pergrad/privacy/sensitivity.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// A filter, and the records of a step that it charges.
class individual_charges {
 public:
  individual_charges(const privacy_budget& budget, const sampled_gaussian_event& event, std::size_t levels,
                     std::size_t max_batch)
      : filter_{budget, event, levels}, levels_(max_batch), gate_{this, passes} {}
  individual_charges(const individual_charges&) = delete;
  individual_charges& operator=(const individual_charges&) = delete;
  ~individual_charges() = default;

  /// The next step's numbers.
  void plan(const sampled_gaussian_event& event, const release_grid& grid) {
    filter_.set_event(event);
    step_ = std::ldexp(1.0, grid.unit - grid.steps);
    rounding_ = std::sqrt(static_cast<double>(grid.elements)) / 2 * step_;
    bound_ = grid.bound;
  }
  /// A physical batch. Its gate is for this batch.
  [[nodiscard]] const sample_gate* begin(std::span<const std::uint32_t> drawn) noexcept {
    drawn_ = drawn.data();
    return &gate_;
  }
  /// The same for who weighs samples elsewhere: the most that each may add, or is left out.
  void find_limits(std::span<const std::uint32_t> drawn, std::span<double> limits) const noexcept {
    for (std::size_t i = 0; i < drawn.size(); ++i) limits[i] = limit_of(drawn[i]);
  }
  /// Behind it: bounds of what each would have added.
  void take(std::span<const double> most) noexcept {
    for (std::size_t i = 0; i < most.size(); ++i) levels_[i] = static_cast<std::uint16_t>(level_of(most[i]));
  }
  void charge(std::span<const std::uint32_t> drawn) noexcept {
    for (std::size_t i = 0; i < drawn.size(); ++i) filter_.charge_drawn(drawn[i], levels_[i]);
  }
  void end_of_step() noexcept { filter_.charge_others(); }

  /// Of a bound of what a record adds.
  [[nodiscard]] std::size_t level_of(double most) const noexcept {
    if (most < step_ / 2 * (1 - 0x1p-40)) return 0;
    const double share = (most + rounding_) / (bound_ + rounding_);
    return filter_.level_of(most >= bound_ ? 1 : share * (1 + 0x1p-40));
  }

  [[nodiscard]] individual_filter& filter() noexcept { return filter_; }
  [[nodiscard]] const individual_filter& filter() const noexcept { return filter_; }

 private:
  static bool passes(void* self, std::size_t sample, double most) {
    auto& it = *static_cast<individual_charges*>(self);
    const std::size_t level = it.level_of(most);
    it.levels_[sample] = static_cast<std::uint16_t>(level);
    return it.filter_.admits(it.drawn_[sample], level);
  }
  /// The largest number that the filter admits for a record. Doubles above zero lie in the order of their bits.
  [[nodiscard]] double limit_of(std::uint32_t record) const noexcept {
    const auto admits = [&](double most) { return filter_.admits(record, level_of(most)); };
    if (admits(bound_)) return largest_double;
    std::uint64_t low = 0;
    std::uint64_t high = std::bit_cast<std::uint64_t>(bound_);
    while (high - low > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      (admits(std::bit_cast<double>(middle)) ? low : high) = middle;
    }
    return std::bit_cast<double>(low);
  }

  individual_filter filter_;
  double step_ = 0;      ///< g
  double rounding_ = 0;  ///< what a record's own rounding adds to its norm
  double bound_ = 0;     ///< C
  const std::uint32_t* drawn_ = nullptr;
  std::vector<std::uint16_t> levels_;  ///< of the samples of a batch
  sample_gate gate_;
};

}  // namespace pergrad::inline v0_1::detail
