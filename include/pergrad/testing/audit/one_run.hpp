// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/audit/one_run.hpp - what the scores of many canaries in one run prove about privacy
//
// m canaries, each in the data set if its own fair coin says so; r of them are guessed, by scores, and v guesses are
// right. Canaries are neighbours' records: the mechanism's relation is adding or removing one.
//
// (epsilon, delta), Steinke, Nasr & Jagielski 2023 (arXiv:2305.08846, theorem 5.2): with X ~ Bin(r, e^eps / (1 +
// e^eps))
//     P[v or more are right] <= P[X >= v] + 2 m delta max_{1 <= i <= v} P[v - i <= X < v] / i
// which rises with epsilon. What is reported is the largest epsilon for which it is below the significance.
//
// A curve f, Mahloujifar, Melis & Chaudhuri 2024 (arXiv:2410.22235). Let p_i = P[exactly i of r guesses are right].
// Flipping the coin of canary j, summing over j, and Jensen's inequality for the convex F(y) = f(1 - y) give, for every
// set T of counts,   sum_T (r - i + 1) p_{i - 1} / m >= F(sum_T i p_i / m).   With T = {i, ..., r},
// R_i = sum_{i' >= i} i' p_i' / m and H_i = sum_{i' >= i} (r - i') p_i' / m this is H_{i - 1} >= F(R_i), while
// R_0 + H_0 = r / m. If v or more are right with probability s or more, the least that R_0 + H_0 can be is found by
// beginning with R_v = s v / m, H_v = s (r - v) / m and going down, H_{i - 1} = max(H_i, F(R_i)),
// R_{i - 1} = R_i + (i - 1) / (r - i + 1) (H_{i - 1} - H_i). More than r / m is a contradiction: then v or more are
// right with probability below s, and their having been is evidence against f at that significance.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/testing/audit/binomial.hpp>
#include <pergrad/testing/audit/trade_off.hpp>
#include <pergrad/testing/audit/two_worlds.hpp>

namespace pergrad::inline v0_1::testing {

/// How the guesses of one run came out.
struct guesses {
  std::size_t canaries = 0;  ///< m
  std::size_t made = 0;      ///< r
  std::size_t right = 0;     ///< v
};

namespace testing_detail {

inline void require_guesses(const guesses& seen) {
  if (seen.right <= seen.made && seen.made <= seen.canaries && seen.canaries > 0) return;
  detail::throw_invalid_argument({"pergrad: testing: of ", seen.canaries, " canaries, ", seen.made,
                                  " were guessed and ", seen.right, " guesses were right"});
}

}  // namespace testing_detail

/// The probability of at least as many right guesses under any (epsilon, delta)-private mechanism is at most this.
/// Throws std::invalid_argument for more right guesses than guesses, or more guesses than canaries.
[[nodiscard]] inline double one_run_p_value(const guesses& seen, double epsilon, double delta) {
  testing_detail::require_guesses(seen);
  const double p = 1 / (1 + std::exp(-epsilon));
  double bound = binomial_tail(seen.right, seen.made, p);
  if (delta > 0 && seen.right > 0) {
    const auto r = static_cast<double>(seen.made);
    const auto v = static_cast<double>(seen.right);
    // ln P[X = k] from k = v - 1 downwards.
    double log_mass = std::lgamma(r + 1) - std::lgamma(v) - std::lgamma(r - v + 2) + (v - 1) * std::log(p) +
                      (r - v + 1) * -(epsilon + std::log1p(std::exp(-epsilon)));
    double sum = 0;
    double most = 0;
    for (std::size_t i = 1; i <= seen.right; ++i) {
      sum += std::exp(log_mass);
      most = std::max(most, sum / static_cast<double>(i));
      const auto k = static_cast<double>(seen.right - i);
      log_mass += std::log(k / (r - k + 1)) - epsilon;
    }
    bound += 2 * static_cast<double>(seen.canaries) * delta * most;
  }
  return std::min(1.0, bound * testing_detail::tail_margin);
}

/// The largest epsilon that is refuted; 0 if none is.
[[nodiscard]] inline double one_run_epsilon(const guesses& seen, double delta, double significance) {
  const auto refuted = [&](double epsilon) { return one_run_p_value(seen, epsilon, delta) < significance; };
  if (!refuted(0)) return 0;
  double low = 0;
  double high = 1;
  while (refuted(high) && high < 700) high *= 2;
  for (int round = 0; round < 40; ++round) {
    const double middle = (low + high) / 2;
    (refuted(middle) ? low : high) = middle;
  }
  return low;
}

/// Whether so many right guesses contradict a curve at this significance.
template <trade_off_curve Curve>
[[nodiscard]] bool one_run_contradicts(const Curve& curve, const guesses& seen, double significance) {
  testing_detail::require_guesses(seen);
  testing_detail::require_share("a significance", significance);
  const auto m = static_cast<double>(seen.canaries);
  const auto made = static_cast<double>(seen.made);
  double right = significance * static_cast<double>(seen.right) / m;
  double wrong = significance * static_cast<double>(seen.made - seen.right) / m;
  for (std::size_t i = seen.right; i > 0; --i) {
    const double least = curve(1 - right);
    if (!(least > wrong)) break;  // then nothing moves any more
    const auto below = static_cast<double>(i - 1);
    right += below / (made - below) * (least - wrong);
    wrong = least;
    if (right >= 1) break;
  }
  return right + wrong > made / m * testing_detail::tail_margin;
}

/// The largest mu whose Gaussian curve is contradicted; 0 if none is.
[[nodiscard]] inline double one_run_gaussian_mu(const guesses& seen, double significance) {
  const auto contradicted = [&](double mu) { return one_run_contradicts(gaussian_trade_off{mu}, seen, significance); };
  if (!contradicted(0)) return 0;
  double low = 0;
  double high = 1;
  while (contradicted(high) && high < 64) high *= 2;
  for (int round = 0; round < 30; ++round) {
    const double middle = (low + high) / 2;
    (contradicted(middle) ? low : high) = middle;
  }
  return low;
}

/// An audit of one run. Guesses are made of so many of the highest and as many of the lowest scores, for each of some
/// shares of all canaries; each share has its part of the significance (Bonferroni).
class one_run {
 public:
  /// Share of the canaries that are guessed.
  static constexpr double shares[] = {0.02, 0.1, 0.3, 1.0};

  /// One score a canary, the larger the more it looks as if it was in the data set; `included`: what its coin said, 1
  /// or 0. Equal scores are told apart by the canaries' order, which must not depend on the coins. Throws
  /// std::invalid_argument for lists of different lengths, none at all, or scores that are NaN.
  one_run(std::vector<double> scores, std::span<const std::uint8_t> included, double confidence)
      : scores_{std::move(scores)}, included_{included.begin(), included.end()}, significance_{1 - confidence} {
    testing_detail::require_share("a confidence", confidence);
    if (scores_.size() != included_.size() || scores_.empty()) {
      detail::throw_invalid_argument(
          {"pergrad: testing: one run has ", scores_.size(), " scores of ", included_.size(), " canaries"});
    }
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      if (!std::isnan(scores_[i])) continue;
      detail::throw_invalid_argument({"pergrad: testing: the score of canary ", i, " is NaN"});
    }
    std::vector<std::size_t> order(scores_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
      return scores_[a] != scores_[b] ? scores_[a] < scores_[b] : a < b;
    });
    for (const double share : shares) {
      const auto each = static_cast<std::size_t>(std::ceil(share * static_cast<double>(order.size()) / 2));
      guesses seen{order.size(), 0, 0};
      for (std::size_t i = 0; i < each && 2 * i + 1 < order.size(); ++i) {
        seen.right += included_[order[i]] == 0 ? 1U : 0U;
        seen.right += included_[order[order.size() - 1 - i]] != 0 ? 1U : 0U;
        seen.made += 2;
      }
      made_.push_back(seen);
    }
  }

  [[nodiscard]] double confidence() const noexcept { return 1 - significance_; }
  [[nodiscard]] const std::vector<guesses>& made() const noexcept { return made_; }
  [[nodiscard]] const std::vector<double>& scores() const noexcept { return scores_; }

  /// A lower bound of epsilon at `delta`, for any mechanism; 0 if nothing was proven.
  [[nodiscard]] double epsilon(pergrad::delta delta) const {
    return best([&](const guesses& seen, double share) { return one_run_epsilon(seen, delta.value(), share); });
  }
  /// A lower bound of the mu of which the mechanism can keep to the Gaussian curve; 0 if nothing was proven.
  [[nodiscard]] double gaussian_mu() const {
    return best([](const guesses& seen, double share) { return one_run_gaussian_mu(seen, share); });
  }
  /// Whether the guesses contradict the claim that the mechanism keeps to this curve.
  template <trade_off_curve Curve>
  [[nodiscard]] bool contradicts(const Curve& curve) const {
    return best([&](const guesses& seen, double share) {
             return one_run_contradicts(curve, seen, share) ? 1.0 : 0.0;
           }) > 0;
  }
  /// Rates that were seen, for pictures. No bound, and canaries of one run are not independent.
  [[nodiscard]] std::vector<roc_point> roc() const {
    std::vector<double> in;
    std::vector<double> out;
    for (std::size_t i = 0; i < scores_.size(); ++i) (included_[i] != 0 ? in : out).push_back(scores_[i]);
    if (in.size() < 4 || out.size() < 4) return {{0, 0}, {1, 1}};
    return two_worlds{std::move(in), std::move(out), confidence()}.roc();
  }

 private:
  template <class Bound>
  [[nodiscard]] double best(const Bound& bound) const {
    double most = 0;
    for (const guesses& seen : made_) {
      if (seen.made == 0) continue;
      most = std::max(most, bound(seen, significance_ / static_cast<double>(made_.size())));
    }
    return most;
  }

  std::vector<double> scores_;
  std::vector<std::uint8_t> included_;
  double significance_;
  std::vector<guesses> made_;
};

}  // namespace pergrad::inline v0_1::testing
