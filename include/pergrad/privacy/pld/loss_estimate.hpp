// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/loss_estimate.hpp - estimates of a privacy loss, which choose grids and prove nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

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

  /// At t, of the loss of `remove`, no more than `cap` of it, or of the negative one of `add`.
  [[nodiscard]] cumulants at(double t, bool remove, double cap = infinity) const {
    const std::size_t n = points_.losses.size();
    const auto log_weight = [&](std::size_t i) {
      const double loss = points_.losses[i];
      return points_.log_masses[i] + (remove ? loss + t * std::min(loss, cap) : -t * loss);
    };
    double largest = -largest_double;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, log_weight(i));
    double sum = 0;
    double first = 0;
    double squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double weight = std::exp(log_weight(i) - largest);
      const double loss = std::min(points_.losses[i], cap);
      sum += weight;
      first += weight * loss;
      squares += weight * loss * loss;
    }
    first /= sum;
    return {largest + std::log(sum), remove ? first : -first, std::max(squares / sum - first * first, 1e-300)};
  }

 private:
  loss_points points_;
};

}  // namespace pergrad::inline v0_1::detail
