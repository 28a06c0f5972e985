// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/correlated/participation.hpp - in which steps one record may take part, and what that can do to C G
//
// Correlated noise makes all steps of a run one Gaussian mechanism: with a lower-triangular C of n x n, what is noised
// is C G, row t of G being the sum of step t. A record that takes part in the steps of a set p changes row t of it by
// at most sum_{s in p} |C_ts| times its bound, so with u_p the indicator of p and |C| element by element
//     sens(C) = max_p ‖|C| u_p‖     bounds what it does to all of C G, in units of the bound of one step,
// whatever direction its gradients have (Denisov et al. 2022, arXiv:2202.08312). The sets are those whose elements are
// at least `separation` apart, at most `most` of them (Choquette-Choo et al. 2023, arXiv:2306.08153).
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>

namespace pergrad::inline v0_1 {

/// In how many of a run's steps one record may take part, and how far apart: what a sampler promises.
struct participation {
  std::uint64_t steps = 0;       ///< n, of the whole run
  std::uint64_t separation = 1;  ///< from one step of a record to its next one, at least; 1: all steps
  std::uint64_t most = ~std::uint64_t{0};

  /// How often a record can take part at most.
  [[nodiscard]] constexpr std::uint64_t times() const noexcept {
    return std::min(most, steps / separation + (steps % separation != 0 ? 1 : 0));
  }
  /// Throws std::invalid_argument unless there are steps, and a separation.
  void require() const {
    if (steps == 0 || separation == 0 || most == 0) {
      detail::throw_invalid_argument({"pergrad: participation: steps, separation and most must be at least 1, got ",
                                      steps, ", ", separation, " and ", most});
    }
  }
  friend bool operator==(const participation&, const participation&) noexcept = default;
};

namespace detail {

/// Covers the rounding of sums of up to 2^30 terms that are not negative.
inline constexpr double covers_rounding = 1 + 0x1p-22;

}  // namespace detail

/// max_p sum_{s in p} gains[s] over the sets of `pattern`, which has as many steps; 0 for none. By the recursion
/// F(s, k) = max(gains[s] + F(s + separation, k - 1), F(s + 1, k)) from behind.
[[nodiscard]] inline double most_of_a_pattern(std::span<const double> gains, const participation& pattern) {
  pattern.require();
  const std::size_t steps = gains.size();
  const auto apart = static_cast<std::size_t>(std::min<std::uint64_t>(pattern.separation, steps));
  std::vector<double> fewer(steps + apart + 1);  // F(., k - 1), from zeros
  std::vector<double> now(steps + apart + 1);
  const std::uint64_t times = participation{steps, pattern.separation, pattern.most}.times();
  for (std::uint64_t k = 0; k < times; ++k) {
    for (std::size_t s = steps; s-- > 0;) now[s] = std::max(gains[s] + fewer[s + apart], now[s + 1]);
    std::swap(fewer, now);
  }
  return fewer[0];
}

/// Upper bound of sens(C)² for any C: `rows` has its rows one after the other, each of n elements, pattern.steps = n;
/// rows need not be as many. With X = |C|^T |C|
///     ‖|C| u_p‖² = sum_{i in p} sum_{j in p} X_ij <= max_p sum_{i in p} v_i,   v_i = max_p sum_{j in p} X_ij,
/// where X_ij counts as 0 if i and j are too close to be in one set. Exact where columns `separation` apart are
/// orthogonal, as those of a C with no more bands than that. Takes n² times() steps.
[[nodiscard]] inline double squared_sensitivity(std::span<const double> rows, const participation& pattern) {
  pattern.require();
  const detail::float_environment proven;
  const auto n = static_cast<std::size_t>(pattern.steps);
  if (rows.empty() || rows.size() % n != 0) {
    detail::throw_invalid_argument(
        {"pergrad: squared_sensitivity: a matrix of ", rows.size(), " elements for ", n, " steps"});
  }
  std::vector<double> of_step(n);
  std::vector<double> products(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      products[j] = 0;
      if (i != j && (i < j ? j - i : i - j) < pattern.separation) continue;
      for (std::size_t row = 0; row < rows.size(); row += n) products[j] += std::abs(rows[row + i] * rows[row + j]);
    }
    of_step[i] = most_of_a_pattern(products, pattern);
  }
  return most_of_a_pattern(of_step, pattern) * detail::covers_rounding;
}

/// Upper bound of sens(C)² for a lower-triangular Toeplitz C, C_ts = coefficients[t - s], 0 behind the last one.
///
/// If no two columns of a set overlap, as there are no more coefficients than steps between them, it is times() sum
/// c_k². Else let a_k >= |c_k| be the least that does not increase. ‖A u_p‖² = sum_{i, j in p} x(i, j) with
/// x(i, j) = sum_{s < n - max(i, j)} a_s a_(s + |i - j|), which decreases in both max(i, j) and |i - j|. The m-th
/// element of p is at least (m - 1) b, and its distance from the l-th is at least |m - l| b; so {0, b, 2 b, ...} is the
/// worst set (Kalinin and Lampert 2024, arXiv:2405.13763, theorem 2, for c that do not increase themselves).
[[nodiscard]] inline double squared_toeplitz_sensitivity(std::span<const double> coefficients,
                                                         const participation& pattern) {
  pattern.require();
  const detail::float_environment proven;
  const auto n = static_cast<std::size_t>(pattern.steps);
  const std::size_t bands = std::min(coefficients.size(), n);
  const std::uint64_t times = pattern.times();
  double sum = 0;
  if (pattern.separation >= bands || times == 1) {
    for (std::size_t k = 0; k < bands; ++k) sum += coefficients[k] * coefficients[k];
    return static_cast<double>(times) * sum * detail::covers_rounding;
  }
  std::vector<double> a(bands);
  double largest = 0;
  for (std::size_t k = bands; k-- > 0;) a[k] = largest = std::max(largest, std::abs(coefficients[k]));
  for (std::size_t t = 0; t < n; ++t) {
    double row = 0;
    for (std::uint64_t m = 0; m < times && m * pattern.separation <= t; ++m) {
      const std::size_t lag = t - static_cast<std::size_t>(m * pattern.separation);
      if (lag < bands) row += a[lag];
    }
    sum += row * row;
  }
  return sum * detail::covers_rounding;
}

}  // namespace pergrad::inline v0_1
