// SPDX-License-Identifier: Apache-2.0
// pergrad/host/norm_part.hpp - a squared norm and what is known of its errors
#pragma once

namespace pergrad::inline v0_1::on_host {

/// What is known of the squared norm of one sample's block or blocks. An upper bound of the norm of what is added to a
/// sum with weight w is
///   w (sqrt(squared + error) + sqrt(slack)) + d spread      d: the smallest subnormal Scalar
struct norm_part {
  double squared = 0;  ///< the value
  double error =
      0;  ///< bound on the rounding error of `squared`, where it may cancel (gram) or vanish (subnormal squares)
  double slack = 0;  ///< squared bound on what the sum's own rounding adds to the sample's share
  double spread =
      0;  ///< sum_t |x_t| sqrt(p), where w delta_t is formed first: its rounding error d / 2, however small, meets x_t

  constexpr norm_part& operator+=(const norm_part& other) noexcept {
    squared += other.squared;
    error += other.error;
    slack += other.slack;
    spread += other.spread;
    return *this;
  }
};

}  // namespace pergrad::inline v0_1::on_host
