// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/rdp_accountant.hpp - a ledger of sampled Gaussian steps and the (epsilon, delta) that it
// proves.
//
// The ledger holds events with whole counts. For each event its RDP curve over a fixed grid of orders is computed once;
// a query adds count * curve, takes the best order of the grid and refines it by golden section over real orders next
// to it. Any order gives a valid bound, so neither the grid nor where the search stops can make a result too small.
// Curves carry a margin of 1e-10 for rounding, a thousand times the error of the formulas in rdp.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <pergrad/detail/float_environment.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/privacy/accounting/rdp.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// So many steps of one kind.
template <class Event>
struct ledger_entry {
  Event event;
  std::uint64_t count;
};

/// Accountant by Renyi differential privacy of one kind of sampler's events, for neighbours of their relation.
template <class Event>
class basic_rdp_accountant {
 public:
  using event_type = Event;
  using entry = ledger_entry<Event>;

  basic_rdp_accountant() = default;
  // A ledger that was moved from would have forgotten what was spent, so that its budget were there again.
  basic_rdp_accountant(const basic_rdp_accountant&) = default;
  basic_rdp_accountant& operator=(const basic_rdp_accountant&) = default;
  ~basic_rdp_accountant() = default;
  /// Exchanges two ledgers: none is forgotten.
  void swap(basic_rdp_accountant& other) noexcept {
    std::swap(ledger_, other.ledger_);
    std::swap(curves_, other.curves_);
    std::swap(steps_, other.steps_);
    std::swap(remembered_, other.remembered_);
  }

  /// Computes the event's curve (some milliseconds) and reserves its place, so that later calls with this event are
  /// cheap and allocate nothing. Throws std::invalid_argument on an event that is none.
  void prepare(const Event& event) { static_cast<void>(place_of(event)); }

  /// Enters `count` steps. Throws std::overflow_error when the number of steps does not fit 64 bits.
  void record(const Event& event, std::uint64_t count = 1) {
    if (count > std::numeric_limits<std::uint64_t>::max() - steps_) {
      throw std::overflow_error("pergrad: rdp_accountant: the number of steps exceeds 64 bits");
    }
    ledger_[place_of(event)].count += count;
    steps_ += count;
  }
  /// An event of another sampler: one error that says so.
  template <class Other>
  requires(!std::is_convertible_v<const Other&, Event>) void record(const Other& /*event*/,
                                                                    std::uint64_t /*count*/ = 1) {
    static_cast<void>(error::event_of_another_sampler<Event, Other>{});
  }

  /// Number of steps entered.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  /// What was entered, one entry for each kind of event (prepared ones may have count 0).
  [[nodiscard]] std::span<const entry> ledger() const noexcept { return {ledger_.data(), ledger_.size()}; }

  /// Smallest epsilon that this accountant can prove for `at`; infinity when a step had no noise.
  [[nodiscard, gnu::cold]] double epsilon(pergrad::delta at) const {
    const detail::float_environment proven;
    return best([&](double order, double rdp) { return epsilon_from_rdp(order, rdp, at); }, total_curve(), nullptr);
  }

  /// Smallest delta that this accountant can prove for `at`.
  [[nodiscard]] double delta_for(pergrad::epsilon at) const {
    const detail::float_environment proven;
    return best([&](double order, double rdp) { return delta_from_rdp(order, rdp, at); }, total_curve(), nullptr);
  }

  /// Renyi divergence of all steps at a real order above 1.
  [[nodiscard]] double renyi(double order) const {
    const detail::float_environment proven;
    return total_at(order, nullptr);
  }

  /// Epsilon if `count` more steps of `event` were entered. Does not change the ledger.
  [[nodiscard]] double epsilon_after(const Event& event, std::uint64_t count, pergrad::delta at) const {
    const detail::float_environment proven;
    const entry more{event, count};
    return best([&](double order, double rdp) { return epsilon_from_rdp(order, rdp, at); }, total_curve(&more), &more);
  }

  /// Epsilon by one order alone, if `count` more steps of `event` were entered. An order that was fixed before the
  /// first step makes a filter: events may then be chosen on the way, also from what was released (Feldman and Zrnic
  /// 2021, arXiv:2008.11193). The best order afterwards makes none.
  [[nodiscard]] double epsilon_at_order(double order, const Event& event, std::uint64_t count,
                                        pergrad::delta at) const {
    const detail::float_environment proven;
    const entry more{event, count};
    return epsilon_from_rdp(order, total_at(order, &more), at);
  }

  /// The order that allows the most steps of `event` alone.
  [[nodiscard, gnu::cold]] static double order_for(const privacy_budget& budget, const Event& event) {
    const detail::float_environment proven;
    double best_order = orders().front();
    double most_steps = -1;
    for (const double order : orders()) {
      const double cost = renyi_divergence(event, order) * margin;
      const double conversion = std::log1p(-1 / order) - std::log(budget.delta.value() * order) / (order - 1);
      const double steps = (budget.max_epsilon.value() - conversion) / std::max(cost, 1e-300);
      if (steps > most_steps) {
        most_steps = steps;
        best_order = order;
      }
    }
    return best_order;
  }

  /// Whether `count` more steps of `event` would cost more than the budget. Microseconds for a prepared event, unless
  /// the total is within a fraction of a percent of the budget, where orders are refined (milliseconds).
  [[nodiscard]] bool would_exceed(const privacy_budget& budget, const Event& event, std::uint64_t count = 1) const {
    const detail::float_environment proven;
    return order_within(budget, {event, count}) == 0;
  }

  /// Enters `count` steps unless they would cost more than the budget; returns whether it did. Remembers the order that
  /// proved it when that was none of the grid, so that a run nearing its budget seldom has to refine orders again.
  [[nodiscard]] bool record_within(const privacy_budget& budget, const Event& event, std::uint64_t count = 1) {
    const detail::float_environment proven;
    prepare(event);
    const double order = order_within(budget, {event, count});
    if (order == 0) return false;
    record(event, count);
    if (order != remembered_ && !std::binary_search(orders().begin(), orders().end(), order)) {
      remembered_ = order;
      for (std::size_t place = 0; place < ledger_.size(); ++place) {
        curves_[place][order_count] = renyi_divergence(ledger_[place].event, order) * margin;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t order_count = 128;
  static constexpr std::size_t most_refined_events = 32;  // a ledger of more kinds answers from the grid alone
  static constexpr double margin = 1 + 1e-10;
  using grid = std::array<double, order_count>;
  using curve = std::array<double, order_count + 1>;  // RDP on the grid, then at the remembered order (else 0)

  /// Orders with order - 1 in geometric progression from 0.01 to 4000; whole from 11 on, where that is fine enough and
  /// the closed form is fast.
  [[nodiscard]] static const grid& orders() {
    static const grid all = [] {
      grid made{};
      for (std::size_t i = 0; i < order_count; ++i) {
        const double order =
            1 + 0.01 * std::exp(std::log(4e5) * static_cast<double>(i) / static_cast<double>(order_count - 1));
        made[i] = order < 11 ? order : std::round(order);
      }
      return made;
    }();
    return all;
  }

  [[nodiscard]] curve curve_of(const Event& event) const {
    const detail::float_environment proven;
    curve made{};
    for (std::size_t i = 0; i < order_count; ++i) made[i] = renyi_divergence(event, orders()[i]) * margin;
    if (remembered_ != 0) made[order_count] = renyi_divergence(event, remembered_) * margin;
    return made;
  }

  [[nodiscard]] std::size_t find(const Event& event) const noexcept {
    std::size_t place = 0;
    while (place < ledger_.size() && ledger_[place].event != event) ++place;
    return place;
  }

  std::size_t place_of(const Event& event) {
    const std::size_t place = find(event);
    if (place == ledger_.size()) {
      const curve made = curve_of(event);
      curves_.reserve(curves_.size() + 1);
      ledger_.push_back({event, 0});
      curves_.push_back(made);
    }
    return place;
  }

  /// Steps of one place of the ledger, and of `more` if it is of that kind. They are added before they meet a curve:
  /// 99 steps and one more cost, in the last bit, what 100 cost.
  [[nodiscard]] static double count_with(const entry& each, const entry* more) noexcept {
    const bool alike = more != nullptr && more->event == each.event;
    return static_cast<double>(each.count) + (alike ? static_cast<double>(more->count) : 0.0);
  }
  [[nodiscard]] bool is_apart(const entry* more) const noexcept {
    return more != nullptr && more->count != 0 && find(more->event) == ledger_.size();
  }

  static void add(curve& total, double count, const curve& each) {
    if (count == 0) return;  // 0 * infinity would not be a number
    for (std::size_t i = 0; i <= order_count; ++i) total[i] += count * each[i];
  }
  /// Curve of the ledger and `more` (which may be null).
  [[nodiscard, gnu::cold]] curve total_curve(const entry* more = nullptr) const {
    curve total{};
    for (std::size_t place = 0; place < ledger_.size(); ++place) {
      add(total, count_with(ledger_[place], more), curves_[place]);
    }
    if (is_apart(more)) add(total, static_cast<double>(more->count), curve_of(more->event));
    return total;
  }

  /// An order that proves that the ledger and `more` keep to the budget, 0 if there is none.
  [[nodiscard, gnu::cold]] double order_within(const privacy_budget& budget, const entry& more) const {
    const curve total = total_curve(&more);
    const auto keeps = [&](double order, double rdp) {
      return epsilon_from_rdp(order, rdp, budget.delta) <= budget.max_epsilon.value();
    };
    if (remembered_ != 0 && keeps(remembered_, total[order_count])) return remembered_;
    for (std::size_t i = 0; i < order_count; ++i) {
      if (keeps(orders()[i], total[i])) return orders()[i];
    }
    double order = 0;
    const auto value = [&](double at, double rdp) { return epsilon_from_rdp(at, rdp, budget.delta); };
    return best(value, total, &more, &order) <= budget.max_epsilon.value() ? order : 0;
  }

  /// Total RDP at any order, of the ledger and `more` (which may be null).
  [[nodiscard, gnu::cold]] double total_at(double order, const entry* more) const {
    double total = 0;
    const auto add_steps = [&](double count, const Event& event) {
      if (count != 0) total += count * (renyi_divergence(event, order) * margin);
    };
    for (const entry& each : ledger_) add_steps(count_with(each, more), each.event);
    if (is_apart(more)) add_steps(static_cast<double>(more->count), more->event);
    return total;
  }

  /// Smallest value(order, RDP at order) over the grid, then over real orders around the best one.
  template <class Value>
  [[nodiscard]] double best(const Value& value, const curve& total, const entry* more,
                            double* best_order = nullptr) const {
    double least = detail::infinity;
    std::size_t at = 0;
    for (std::size_t i = 0; i < order_count; ++i) {
      const double here = value(orders()[i], total[i]);
      if (here < least) {
        least = here;
        at = i;
      }
    }
    if (best_order != nullptr) *best_order = orders()[at];
    if (remembered_ != 0) {
      const double here = value(remembered_, total[order_count]);
      if (here < least) {
        least = here;
        if (best_order != nullptr) *best_order = remembered_;
      }
    }
    if (!(least > 0 && least < detail::infinity) || ledger_.size() > most_refined_events) return least;
    const auto probe = [&](double log_excess) {
      const double order = 1 + std::exp(log_excess);
      const double here = value(order, total_at(order, more));
      if (here < least) {
        least = here;
        if (best_order != nullptr) *best_order = order;
      }
      return here;
    };
    constexpr double golden = 0.61803398874989484820;
    double low = std::log(orders()[at == 0 ? 0 : at - 1] - 1);
    double high = std::log(orders()[std::min(at + 1, order_count - 1)] - 1);
    double left = high - golden * (high - low);
    double right = low + golden * (high - low);
    double at_left = probe(left);
    double at_right = probe(right);
    while (high - low > 2e-5) {  // the minimum is quadratic: the value is then right to about 1e-10
      if (at_left <= at_right) {
        high = right;
        right = left;
        at_right = at_left;
        left = high - golden * (high - low);
        at_left = probe(left);
      } else {
        low = left;
        left = right;
        at_left = at_right;
        right = low + golden * (high - low);
        at_right = probe(right);
      }
    }
    return least;
  }

  std::vector<entry> ledger_;
  std::vector<curve> curves_;
  std::uint64_t steps_ = 0;
  double remembered_ = 0;
};

/// Of Poisson sampling, for neighbours by adding or removing one record.
using rdp_accountant = basic_rdp_accountant<sampled_gaussian_event>;

}  // namespace pergrad::inline v0_1
