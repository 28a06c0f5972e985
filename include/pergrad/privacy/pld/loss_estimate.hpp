// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/loss_estimate.hpp - estimates of a privacy loss, which choose grids and prove nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <pergrad/privacy/pld/pld_step.hpp>
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

  template <class Discretiser>
  loss_estimate(const continuous_step& step, const Discretiser& losses) {
    const double from = -step.deviations;
    const double to = step.m + step.deviations;
    const auto points = static_cast<std::size_t>(std::ceil((to - from) * 12)) + 2;
    const double width = (to - from) / static_cast<double>(points - 1);
    constexpr double log_sqrt_two_pi = 0.91893853320467274178;
    for (std::size_t i = 0; i < points; ++i) {
      const double at = from + static_cast<double>(i) * width;
      losses_.push_back(losses.loss(at));
      log_base_.push_back(std::log(width) - log_sqrt_two_pi - at * at / 2);
    }
  }

  /// At t, of the loss of `remove`, no more than `cap` of it, or of the negative one of `add`.
  [[nodiscard]] cumulants at(double t, bool remove, double cap = infinity) const {
    const auto log_weight = [&](std::size_t i) {
      return log_base_[i] + (remove ? losses_[i] + t * std::min(losses_[i], cap) : -t * losses_[i]);
    };
    double largest = -largest_double;
    for (std::size_t i = 0; i < losses_.size(); ++i) largest = std::max(largest, log_weight(i));
    double sum = 0;
    double first = 0;
    double squares = 0;
    for (std::size_t i = 0; i < losses_.size(); ++i) {
      const double weight = std::exp(log_weight(i) - largest);
      const double loss = std::min(losses_[i], cap);
      sum += weight;
      first += weight * loss;
      squares += weight * loss * loss;
    }
    first /= sum;
    return {largest + std::log(sum), remove ? first : -first, std::max(squares / sum - first * first, 1e-300)};
  }

 private:
  std::vector<double> losses_;
  std::vector<double> log_base_;
};

}  // namespace pergrad::inline v0_1::detail
