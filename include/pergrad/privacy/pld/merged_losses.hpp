// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/merged_losses.hpp - the lower side of a step on a grid: atoms between grid points merged at them.
//
// At every grid point a part of what is below it is merged with a part of what is above it: of bucket i, atoms that are
// below a cut go to e_i, the rest to e_{i+1}, a cut atom in two parts. With an atom written as a at e_i and b at
// e_{i+1}, the merged loss at e_i is at least e_i, to which it is rounded down, if
//     sum_{bucket i, to e_i} b (1 - e^-h) >= sum_{bucket i - 1, to e_i} a (e^h - 1),   i.e.  sum b >= e^h sum a.
// Equality loses nothing. Cuts are found from both ends, each with equality where it can be had, and joined in the
// bucket where least is lost.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <pergrad/privacy/pld/fourier.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// A part of a bucket, merged to one atom: a at the bucket's lower point and b at its upper one.
struct merged_piece {
  double kept = 0;  ///< a + b, the P-mass
  double high = 0;  ///< b
  [[nodiscard]] double low() const noexcept { return kept - high; }
};

/// Cuts of buckets for merging: what lies below the cut goes to the bucket's lower point. A cut of c in [0, 1] is
/// that fraction of the first half, one of 1 + c all of it and that fraction of the second.
template <class = void>
class merged_losses {
 public:
  static constexpr double u = unit_roundoff;

  /// `of`: two pieces for each bucket, the first bucket empty; kept while this lives. `last`: cut of the last bucket.
  [[gnu::cold]] merged_losses(const std::vector<merged_piece>& of, double h, double last)
      : halves_{of}, rising_(of.size() / 2), falling_(of.size() / 2) {
    const std::size_t n = rising_.size();
    const double grown = std::exp(h) * (1 + 1e-12);  // the margin is for the rounding of all that follows
    const auto slack = [&](std::size_t i, double c, double c_before) {
      return has(i, c) - lacks(i - 1, c_before) * grown;
    };
    rising_[0] = 2;
    for (std::size_t i = 1; i < n; ++i) {
      const double needed = lacks(i - 1, rising_[i - 1]) * grown;
      const double all = has(i, 2);
      if (needed <= all) {
        rising_[i] = cut_that_has(i, needed);
      } else {  // less of the bucket before goes up
        rising_[i] = 2;
        rising_[i - 1] = std::max(rising_[i - 1], cut_that_lacks(i - 1, all / grown));
      }
    }
    falling_[n - 1] = last;
    for (std::size_t i = n - 1; i-- > 0;) falling_[i] = cut_that_lacks(i, has(i + 1, falling_[i + 1]) / grown);
    double before = has(0, rising_[0]);  // lost by rising, at the lower points of buckets below the last
    for (std::size_t i = 1; i + 1 < n; ++i) before += slack(i, rising_[i], rising_[i - 1]);
    double behind = 0;  // lost by falling
    for (std::size_t i = n; i-- > 1;) {
      // join in bucket i; `before` holds points 0 ... i - 1, `behind` those from i + 2
      const double c = std::max(rising_[i], falling_[i]);
      double total = before + slack(i, c, rising_[i - 1]);
      if (i + 1 < n) total += slack(i + 1, falling_[i + 1], c) + behind;
      if (total < lost_) {
        lost_ = total;
        join_ = i;
      }
      if (i + 1 < n) behind += slack(i + 1, falling_[i + 1], falling_[i]);
      before -= i > 1 ? slack(i - 1, rising_[i - 1], rising_[i - 2]) : 0.0;
    }
  }

  /// What merging loses; for comparison.
  [[nodiscard]] double lost() const noexcept { return lost_; }

  /// Masses at the buckets' ends; `top`: what is above the last one, rounded down to it.
  [[nodiscard, gnu::cold]] std::vector<double> masses(double top) const {
    const std::size_t n = rising_.size();
    std::vector<double> made(n + 1, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const double c = cut(i);
      const double first = halves_[2 * i].kept * (1 - 8 * u);
      const double second = halves_[2 * i + 1].kept * (1 - 8 * u);
      made[i] += std::min(c, 1.0) * first + std::max(c - 1, 0.0) * second;
      made[i + 1] += std::max(1 - c, 0.0) * first + std::min(2 - c, 1.0) * second;
    }
    made[n] += top;
    return made;
  }

 private:
  [[nodiscard]] double cut(std::size_t i) const noexcept {
    return i < join_ ? rising_[i] : i > join_ ? falling_[i] : std::max(rising_[i], falling_[i]);
  }
  /// What goes down has at the lower point, and what goes up lacks at the upper one, in units of a and b.
  [[nodiscard]] double has(std::size_t i, double c) const noexcept {
    return std::min(c, 1.0) * halves_[2 * i].high + std::max(c - 1, 0.0) * halves_[2 * i + 1].high;
  }
  [[nodiscard]] double lacks(std::size_t i, double c) const noexcept {
    return std::max(1 - c, 0.0) * halves_[2 * i].low() + std::min(2 - c, 1.0) * halves_[2 * i + 1].low();
  }
  /// The least cut that has `needed`, which is at most has(i, 2), up to rounding upwards.
  [[nodiscard]] double cut_that_has(std::size_t i, double needed) const noexcept {
    const double first = halves_[2 * i].high;
    if (needed <= 0) return 0;
    const double c = needed <= first ? needed / first : 1 + (needed - first) / halves_[2 * i + 1].high;
    return std::min(2.0, c + 8 * u);
  }
  /// The least cut that lacks at most `most`, up to rounding upwards.
  [[nodiscard]] double cut_that_lacks(std::size_t i, double most) const noexcept {
    const double first = halves_[2 * i].low();
    const double second = halves_[2 * i + 1].low();
    if (most >= first + second) return 0;
    const double c = most < second ? 2 - most / second : 1 - (most - second) / first;
    return std::clamp(c + 8 * u, 0.0, 2.0);
  }

  const std::vector<merged_piece>& halves_;
  std::vector<double> rising_;   // by balancing upwards, for buckets below join_
  std::vector<double> falling_;  // by balancing downwards, for buckets above
  std::size_t join_ = 0;
  double lost_ = infinity;
};

}  // namespace pergrad::inline v0_1::detail
