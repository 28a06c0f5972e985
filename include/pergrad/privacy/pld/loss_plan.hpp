// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/loss_plan.hpp - tilts, windows and cuts for a sum of steps, from estimates; they prove nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include <pergrad/privacy/pld/loss_source.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// Estimates of one kind's cumulants, by quadrature; steers, proves nothing.
class loss_estimate {
 public:
  struct cumulants {
    double value = 0;  // ln E[e^(t loss)]
    double first = 0;  // derivatives
    double second = 0;
  };

  explicit loss_estimate(const loss_source& source) { source.estimate(points_); }

  /// At t, of the loss of `remove`, or of the negative one of `add`. Of what is above `cap`, as an upper side is cut
  /// there: its Q-mass at the cap. So it is with what is below `floor`.
  [[nodiscard]] cumulants at(double t, bool remove, double cap = infinity, double floor = -infinity) const {
    const std::size_t n = points_.losses.size();
    const auto log_weight = [&](std::size_t i) {
      return points_.log_masses[i] + (remove ? (1 + t) : -t) * std::clamp(points_.losses[i], floor, cap);
    };
    double largest = -largest_double;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, log_weight(i));
    double sum = 0;
    double first = 0;
    double squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double weight = std::exp(log_weight(i) - largest);
      const double loss = std::clamp(points_.losses[i], floor, cap);
      sum += weight;
      first += weight * loss;
      squares += weight * loss * loss;
    }
    first /= sum;
    return {largest + std::log(sum), remove ? first : -first, std::max(squares / sum - first * first, 1e-300)};
  }

  [[nodiscard]] double highest() const {
    return points_.losses.empty() ? 0 : *std::max_element(points_.losses.begin(), points_.losses.end());
  }

  /// Of losses above `most`: the P-mass, and the hockey stick.
  struct tail {
    double mass = 0;
    double stick = 0;
  };
  [[nodiscard]] tail above(double most) const {
    tail sum;
    for (std::size_t i = 0; i < points_.losses.size(); ++i) {
      if (!(points_.losses[i] > most)) continue;
      const double mass = std::exp(points_.log_masses[i] + points_.losses[i]);
      sum.mass += mass;
      sum.stick += mass * -std::expm1(most - points_.losses[i]);
    }
    return sum;
  }

 private:
  loss_points points_;
};

/// Where to transform, and t of the Chernoff bounds below and above.
struct loss_window {
  double lowest = 0;
  double highest = 0;
  double below = 1;
  double above = 1;
};

/// Steps of several kinds. A template, so that programs which do not account do not compile it.
template <class = void>
class loss_plan {
 public:
  using window = loss_window;

  void add(const loss_source& source, double count) {
    estimates_.emplace_back(source);
    counts_.push_back(count);
  }
  void clear() {
    estimates_.clear();
    counts_.clear();
  }
  /// Of `count` steps of one kind alone.
  [[nodiscard]] loss_plan alone(std::size_t kind, double count) const {
    loss_plan made;
    made.estimates_.push_back(estimates_[kind]);
    made.counts_.push_back(count);
    return made;
  }

  /// Cumulants of a sum of steps at t, of removing or of adding.
  [[nodiscard, gnu::cold]] loss_estimate::cumulants total(double t, bool remove, double cap = infinity,
                                                          double floor = -infinity) const {
    loss_estimate::cumulants sum;
    for (std::size_t i = 0; i < estimates_.size(); ++i) {
      const loss_estimate::cumulants each = estimates_[i].at(t, remove, cap, floor);
      const double count = counts_[i];
      sum.value += count * each.value;
      sum.first += count * each.first;
      sum.second += count * each.second;
    }
    return sum;
  }

  /// A window that leaves e^-outside of the tilted loss outside; t of its bounds is at most `largest`.
  [[nodiscard, gnu::cold]] window window_of(double tilt, bool remove, double outside, double largest,
                                            double cap = infinity, double floor = -infinity) const {
    const loss_estimate::cumulants here = total(tilt, remove, cap, floor);
    window made{-infinity, infinity, 1, 1};
    double t = std::min(largest, 40 / std::sqrt(here.second));
    for (int round = 0; round < 32; ++round, t /= 1.5) {
      const double highest = (total(tilt + t, remove, cap, floor).value - here.value + outside) / t;
      const double lowest = (here.value - total(tilt - t, remove, cap, floor).value - outside) / t;
      if (highest < made.highest) made.highest = highest, made.above = t;
      if (lowest > made.lowest) made.lowest = lowest, made.below = t;
    }
    const double margin = 0.01 * (made.highest - made.lowest);
    made.lowest -= margin;
    made.highest += margin;
    return made;
  }

  /// The tilt of the saddle point whose estimate of delta is this: that falls with the tilt.
  [[nodiscard]] double saddle_tilt(double delta, double cap = infinity) const {
    double low = std::log(1e-9);
    double high = std::log(1e18);
    for (int round = 0; round < 70; ++round) {
      const double middle = (low + high) / 2;
      const double tilt = std::exp(middle);
      const loss_estimate::cumulants sum = total(tilt, true, cap);
      const double tail =
          tilt * sum.first - sum.value + std::log1p(6.3 * sum.second * tilt * tilt * (1 + tilt) * (1 + tilt)) / 2;
      (sum.first < 0 || tail < -std::log(delta) ? low : high) = middle;
    }
    return std::exp(high);
  }

  /// The tilt whose mean loss is `epsilon`: delta is then the largest part of what is tilted.
  [[nodiscard]] double tilt_for(double epsilon, double cap = infinity) const {
    double low = std::log(1e-9);
    double high = std::log(1e18);
    for (int round = 0; round < 60; ++round) {
      const double middle = (low + high) / 2;
      (total(std::exp(middle), true, cap).first < epsilon ? low : high) = middle;
    }
    return std::exp(high);
  }

  /// Where losses of steps may be cut for an answer of about `epsilon` and `delta`. What is cut off decides alone that
  /// the sum is above epsilon, which is wrong where all other losses take it back: that has to be improbable, by its
  /// Chernoff bound, or what is cut off has. And two steps that are cut off are not told from one.
  [[nodiscard, gnu::cold]] double cap_for(double epsilon, double delta) const {
    constexpr std::size_t rates = 24;
    std::array<std::pair<double, double>, rates> rate;  // t, ln E[e^(-t loss)]
    const loss_estimate::cumulants here = total(0, true, epsilon);
    double t = 40 / std::sqrt(here.second);
    for (auto& each : rate) each = {t, total(-t, true, epsilon).value - here.value}, t /= 1.7;
    return least_cap([&](double cap) {
      double exponent = 0;
      for (const auto& [at, value] : rate) exponent = std::max(exponent, at * (cap - epsilon) - value);
      const double mass = above(cap).mass;
      return mass * std::exp(-exponent) <= 1e-6 * delta && mass <= 1e-4;
    });
  }

  [[nodiscard]] loss_estimate::tail above(double cap) const {
    loss_estimate::tail sum;
    for (std::size_t i = 0; i < estimates_.size(); ++i) {
      const loss_estimate::tail each = estimates_[i].above(cap);
      sum.mass += counts_[i] * each.mass;
      sum.stick += counts_[i] * each.stick;
    }
    return sum;
  }

  /// The least loss from which on `is_enough`.
  template <class Enough>
  [[nodiscard]] double least_cap(const Enough& is_enough) const {
    double low = 0;
    double high = 0;
    for (const loss_estimate& each : estimates_) high = std::max(high, each.highest());
    for (int round = 0; round < 40 && high - low > 1e-3 * high; ++round) {
      const double cap = (low + high) / 2;
      (is_enough(cap) ? high : low) = cap;
    }
    return high;
  }

 private:
  std::vector<loss_estimate> estimates_;
  std::vector<double> counts_;
};

}  // namespace pergrad::inline v0_1::detail
