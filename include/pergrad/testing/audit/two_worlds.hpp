// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/audit/two_worlds.hpp - what scores of many runs, with a canary and without it, prove about privacy
//
// One run gives one score; runs are independent. An attacker says "with" above a threshold: false positives (FPR) are
// runs without the canary above it, false negatives (FNR) runs with it that are not. Thresholds are chosen on every
// second run and judged on the others, by Clopper and Pearson's upper bounds F of the FPR and N of the FNR, each wrong
// with half the significance. But for that, at confidence 1 - significance:
//   (epsilon, delta)   epsilon >= ln((1 - N - delta) / F), and the same with N and F exchanged
//   mu, Gaussian       mu >= Phi^-1(1 - F) - Phi^-1(N)
//   any curve f        is contradicted where N < f(F), or F < f(N)
// Each answer chooses a threshold of its own and holds at the stated confidence by itself (Jagielski et al. 2020,
// arXiv:2006.07709; Nasr et al. 2023, arXiv:2302.07956).
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/testing/audit/binomial.hpp>
#include <pergrad/testing/audit/trade_off.hpp>

namespace pergrad::inline v0_1::testing {

/// Rates of an attacker.
struct roc_point {
  double false_positives = 0;
  double true_positives = 0;
};

/// An audit of runs in two worlds.
class two_worlds {
 public:
  /// One score for each run, in the order of the runs: the larger, the more it looks as if the canary was there.
  /// Infinite scores are allowed. Throws std::invalid_argument for less than 4 runs in a world, for a score that is NaN
  /// and for a confidence that is not strictly between 0 and 1.
  two_worlds(std::vector<double> with, std::vector<double> without, double confidence)
      : with_{std::move(with)}, without_{std::move(without)}, significance_{1 - confidence} {
    testing_detail::require_share("a confidence", confidence);
    check("with", with_);
    check("without", without_);
    choosing_ = sorted(0);
    judging_ = sorted(1);
  }

  [[nodiscard]] double confidence() const noexcept { return 1 - significance_; }
  [[nodiscard]] const std::vector<double>& scores_with() const noexcept { return with_; }
  [[nodiscard]] const std::vector<double>& scores_without() const noexcept { return without_; }

  /// A lower bound of epsilon at `delta`; 0 if nothing was proven.
  [[nodiscard]] double epsilon(pergrad::delta delta) const {
    const auto bound = [at = delta.value()](double f, double n) {
      const auto one = [at](double correct, double wrong) { return std::log((correct - at) / wrong); };
      double best = 0;
      if (1 - n > at) best = std::max(best, one(1 - n, f));
      if (1 - f > at) best = std::max(best, one(1 - f, n));
      return best;
    };
    return best_of(bound);
  }
  /// A lower bound of the mu of which the mechanism can keep to the Gaussian curve; 0 if nothing was proven.
  [[nodiscard]] double gaussian_mu() const {
    return best_of([](double f, double n) { return std::max(0.0, normal_quantile(1 - f) - normal_quantile(n)); });
  }
  /// Whether the scores contradict the claim that the mechanism keeps to this curve.
  template <trade_off_curve Curve>
  [[nodiscard]] bool contradicts(const Curve& curve) const {
    return best_of([&](double f, double n) { return std::max(curve(f) - n, curve(n) - f); }) > 0;
  }
  /// All rates that were seen, from (0, 0) to (1, 1): for pictures. No bound.
  [[nodiscard]] std::vector<roc_point> roc() const {
    const halves all{sorted_copy(with_), sorted_copy(without_)};
    std::vector<double> thresholds = all.with;
    thresholds.insert(thresholds.end(), all.without.begin(), all.without.end());
    std::sort(thresholds.rbegin(), thresholds.rend());
    std::vector<roc_point> points{{0, 0}};
    for (std::size_t i = 0; i < thresholds.size(); ++i) {
      if (i > 0 && thresholds[i] == thresholds[i - 1]) continue;
      const auto at_least = [&](const std::vector<double>& scores) {
        const auto from = std::lower_bound(scores.begin(), scores.end(), thresholds[i]);
        return static_cast<double>(scores.end() - from) / static_cast<double>(scores.size());
      };
      points.push_back({at_least(all.without), at_least(all.with)});
    }
    return points;
  }

 private:
  struct halves {
    std::vector<double> with;
    std::vector<double> without;
  };
  static void check(const char* world, const std::vector<double>& scores) {
    if (scores.size() < 4) {
      detail::throw_invalid_argument(
          {"pergrad: testing: an audit needs at least 4 runs ", world, " the canary, got ", scores.size()});
    }
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (!std::isnan(scores[i])) continue;
      detail::throw_invalid_argument({"pergrad: testing: score ", i, " of the runs ", world, " the canary is NaN"});
    }
  }
  [[nodiscard]] static std::vector<double> sorted_copy(std::vector<double> scores) {
    std::sort(scores.begin(), scores.end());
    return scores;
  }
  /// Every second run, from run `first` on.
  [[nodiscard]] halves sorted(std::size_t first) const {
    halves result;
    for (std::size_t i = first; i < with_.size(); i += 2) result.with.push_back(with_[i]);
    for (std::size_t i = first; i < without_.size(); i += 2) result.without.push_back(without_[i]);
    return {sorted_copy(std::move(result.with)), sorted_copy(std::move(result.without))};
  }
  /// Upper bounds of both rates above a threshold.
  [[nodiscard]] std::pair<double, double> rates(const halves& of, double threshold) const {
    const auto above = of.without.end() - std::upper_bound(of.without.begin(), of.without.end(), threshold);
    const auto not_above = std::upper_bound(of.with.begin(), of.with.end(), threshold) - of.with.begin();
    return {clopper_pearson_upper(static_cast<std::size_t>(above), of.without.size(), significance_ / 2),
            clopper_pearson_upper(static_cast<std::size_t>(not_above), of.with.size(), significance_ / 2)};
  }
  /// bound(F, N) by the runs that judge, at the threshold for which those that choose make it largest. Candidates leave
  /// 0, 1, 2, 4, 7, 11, ... of either world's scores on either side.
  template <class Bound>
  [[nodiscard]] double best_of(const Bound& bound) const {
    double best = 0;
    double threshold = choosing_.without.back();
    const auto attempt = [&](double candidate) {
      const auto [f, n] = rates(choosing_, candidate);
      const double value = bound(f, n);
      if (!(value > best)) return;
      best = value;
      threshold = candidate;
    };
    for (const std::vector<double>* scores : {&choosing_.with, &choosing_.without}) {
      for (std::size_t left = 0; left < scores->size(); left += 1 + left / 2) {
        attempt((*scores)[left]);
        attempt((*scores)[scores->size() - 1 - left]);
      }
    }
    const auto [f, n] = rates(judging_, threshold);
    return bound(f, n);
  }

  std::vector<double> with_;
  std::vector<double> without_;
  double significance_;
  halves choosing_;
  halves judging_;
};

}  // namespace pergrad::inline v0_1::testing
