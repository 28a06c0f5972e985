// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/individual_filter.hpp - a budget for each record, spent by what it really adds
//
// Feldman & Zrnic 2021 (arXiv:2008.11193): at one order a that is fixed beforehand, a record is charged in each step a
// bound of the step's Renyi divergence between data with and without this record, and is left out of a step whose
// charge would exceed what is left of B. Then the whole run is (a, B)-RDP for each record, so (epsilon, delta) private
// (rdp.hpp), however many steps there are and whatever they depend on that was released.
//
// A record that is drawn with probability q and adds at most the share f of the sensitivity costs the sampled Gaussian
// with noise sigma / f, drawn or not. Shares are rounded up to levels k / K, of which the highest is 1. A record that
// is not drawn has no known share: it is charged the highest level, or all that is left if that is less. That charges
// hang on whether a record was drawn, which nobody sees, is no gap: see docs/internals/accounting.md for the proof.
//
// Divergences are whole numbers of 2^-61 B or so, costs rounded up and B rounded down, so that nothing rounds in a sum.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/accounting/rdp.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

struct run_state_access;

/// The largest B with which (order, B)-RDP proves the budget; throws std::invalid_argument where there is none.
[[nodiscard]] inline double rdp_budget_of(const privacy_budget& budget, double order) {
  const double d = budget.delta.value();
  double found = budget.max_epsilon.value() - std::log1p(-1 / order) + std::log(d * order) / (order - 1);
  while (found > 0 && epsilon_from_rdp(order, found, budget.delta) > budget.max_epsilon.value()) found *= 1 - 0x1p-50;
  if (!(found > 0 && found < infinity)) {
    throw_invalid_argument({"pergrad: individual_filter: no Renyi divergence at order ", order,
                            " proves the budget epsilon ", budget.max_epsilon.value(), " at delta ", d});
  }
  return found;
}

}  // namespace detail

/// The budget of each record of one data set, by number. What is spent is a private value of its record.
class individual_filter {
 public:
  /// The order is the one that allows the most steps of `first` with a share of 1. Throws std::invalid_argument for a
  /// budget that no order proves, for an event that is none, and unless there are 1 to 65535 levels.
  individual_filter(const privacy_budget& budget, const sampled_gaussian_event& first, std::size_t levels = 64)
      : individual_filter{budget, first, levels,
                          basic_rdp_accountant<sampled_gaussian_event>::order_for(budget, first)} {}
  /// With this order, above 1.
  individual_filter(const privacy_budget& budget, const sampled_gaussian_event& first, std::size_t levels, double order)
      : order_{order}, rdp_budget_{detail::rdp_budget_of(budget, order)}, costs_(levels + 1) {
    if (levels == 0 || levels > 65535) {
      detail::throw_invalid_argument({"pergrad: individual_filter: levels must be in [1, 65535], got ", levels});
    }
    shift_ = 61 - std::ilogb(rdp_budget_);
    budget_ = static_cast<std::uint64_t>(std::floor(std::ldexp(rdp_budget_, shift_)));
    set_event(first);
  }

  // A ledger that was moved from would have forgotten what was spent, so that its budget were there again.
  individual_filter(const individual_filter&) = default;
  individual_filter& operator=(const individual_filter&) = default;
  ~individual_filter() = default;

  /// Of the next steps: what a record with a share of 1 costs. Allocates nothing.
  [[gnu::cold]] void set_event(const sampled_gaussian_event& event) {
    if (event == event_) return;
    const detail::float_environment proven;
    const auto levels = static_cast<double>(costs_.size() - 1);
    for (std::size_t level = 1; level < costs_.size(); ++level) {
      const double share = static_cast<double>(level) / levels;
      // The quotient rounds, by far less than the margin of a cost.
      const double noise = event.noise_multiplier / share;
      costs_[level] =
          units_of(renyi_divergence(sampled_gaussian_event{event.sampling_probability, noise}, order_) * (1 + 1e-10));
    }
    for (std::size_t level = 2; level < costs_.size(); ++level) {  // a larger share costs no less, rounding or not
      costs_[level] = std::max(costs_[level], costs_[level - 1]);
    }
    event_ = event;
  }

  /// Begins a step, of so many records: as a data set's records keep their numbers, no other one than the first time.
  /// Throws std::logic_error for another number.
  void begin_step(std::size_t count) {
    if (spent_.empty() && count > 0) {
      is_drawn_.resize((count + 63) / 64);
      spent_.resize(count);
    }
    if (count != spent_.size()) {
      detail::throw_logic_error({"pergrad: individual accounting follows the records of one data set: it had ",
                                 spent_.size(), " records, and this one has ", count});
    }
    std::fill(is_drawn_.begin(), is_drawn_.end(), std::uint64_t{0});  // of a step that failed halfway
  }

  /// The level of a share of the sensitivity: the lowest that is not below. 0 is for records that add nothing at all.
  [[nodiscard]] std::size_t level_of(double share) const noexcept {
    const std::size_t levels = costs_.size() - 1;
    const double level = std::ceil(share * static_cast<double>(levels));
    if (level <= 0) return 0;
    return level < static_cast<double>(levels) ? static_cast<std::size_t>(level) : levels;  // a NaN is the highest
  }
  /// Whether a record may be used at this level. From any thread while nothing is charged.
  [[nodiscard]] bool admits(std::size_t record, std::size_t level) const noexcept {
    return costs_[level] <= budget_ - spent_[record];
  }
  /// Charges a record that was drawn, and used at this level unless it was not admitted. Once a step.
  void charge_drawn(std::size_t record, std::size_t level) noexcept {
    is_drawn_[record / 64] |= std::uint64_t{1} << (record % 64);
    if (admits(record, level)) spent_[record] += costs_[level];
  }
  /// Charges all others, and ends the step.
  void charge_others() noexcept {
    const std::uint64_t most = costs_.back();
    for (std::size_t first = 0; first < spent_.size(); first += 64) {
      const std::uint64_t drawn = is_drawn_[first / 64];
      const std::size_t count = std::min<std::size_t>(64, spent_.size() - first);
      for (std::size_t i = 0; i < count; ++i) {
        if ((drawn >> i & 1U) == 0) spent_[first + i] += std::min(most, budget_ - spent_[first + i]);
      }
    }
    std::fill(is_drawn_.begin(), is_drawn_.end(), std::uint64_t{0});
  }

  [[nodiscard]] double order() const noexcept { return order_; }
  [[nodiscard]] std::size_t records() const noexcept { return spent_.size(); }
  /// B.
  [[nodiscard]] double rdp_budget() const noexcept { return rdp_budget_; }
  /// What every record keeps to, at any delta.
  [[nodiscard]] double epsilon(pergrad::delta at) const { return epsilon_from_rdp(order_, rdp_budget_, at); }
  /// Renyi divergence that a record has spent: a private value. Precondition: there is such a record.
  [[nodiscard]] double spent(std::size_t record) const noexcept {
    return std::ldexp(static_cast<double>(spent_[record]), -shift_) * (1 + 0x1p-50);
  }

 private:
  friend struct detail::run_state_access;
  [[nodiscard]] std::uint64_t units_of(double divergence) const noexcept {
    const double units = std::ceil(std::ldexp(divergence, shift_));
    return units < 0x1p62 ? static_cast<std::uint64_t>(units) : std::uint64_t{1} << 62U;
  }

  double order_;
  double rdp_budget_;
  int shift_ = 0;             ///< a divergence of 1 is 2^shift units
  std::uint64_t budget_ = 0;  ///< in units, below 2^62
  sampled_gaussian_event event_{-1, 0};
  std::vector<std::uint64_t> costs_;     ///< of a step at each level
  std::vector<std::uint64_t> spent_;     ///< by each record
  std::vector<std::uint64_t> is_drawn_;  ///< in the step under way, a bit a record
};

}  // namespace pergrad::inline v0_1
