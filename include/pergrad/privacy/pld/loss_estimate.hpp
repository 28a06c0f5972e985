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

  /// At t, of the loss of `remove`, or of the negative one of `add`. Of what is above `cap`, as an upper side is cut
  /// there: its Q-mass at the cap.
  [[nodiscard]] cumulants at(double t, bool remove, double cap = infinity) const {
    const std::size_t n = points_.losses.size();
    const auto log_weight = [&](std::size_t i) {
      const double loss = points_.losses[i];
      return points_.log_masses[i] + (remove ? (1 + t) * std::min(loss, cap) : -t * loss);
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

}  // namespace pergrad::inline v0_1::detail
