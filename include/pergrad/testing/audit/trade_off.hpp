// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/audit/trade_off.hpp - what is claimed of a mechanism, as a curve: the least rate beta of false
// negatives for a rate alpha of false positives
//
// A mechanism keeps to a curve f if whoever decides between neighbours D and D' with false positives alpha has false
// negatives of at least f(alpha), whichever of the two is called positive (Dong, Roth & Su 2022, arXiv:1905.02383). A
// curve is any function of alpha in [0, 1] that is convex, does not rise and stays in [0, 1 - alpha]:
//   Gaussian of sensitivity 1 and deviation 1/mu     f(alpha) = Phi(Phi^-1(1 - alpha) - mu)
//   (epsilon, delta)                                 f(alpha) = max(0, 1 - delta - e^epsilon alpha,
//                                                                      e^-epsilon (1 - delta - alpha))
// A ledger proves (epsilon(delta), delta) at every delta, hence the largest of these, too.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <vector>

#include <pergrad/privacy/types.hpp>
#include <pergrad/testing/audit/binomial.hpp>

namespace pergrad::inline v0_1::testing {

/// A function of alpha that is taken for such a curve.
template <class Curve>
concept trade_off_curve = requires(const Curve& curve, double alpha) {
  { curve(alpha) } -> std::convertible_to<double>;
};

/// Of steps in which every record takes part: mu = sqrt(steps) / noise multiplier.
struct gaussian_trade_off {
  double mu;
  [[nodiscard]] double operator()(double alpha) const noexcept {
    return mu == 0 ? 1 - alpha : normal_below(-normal_quantile(alpha) - mu);
  }
  /// delta(epsilon) of the curve (Balle & Wang 2018, arXiv:1805.06530).
  [[nodiscard]] double delta(double epsilon) const noexcept {
    if (!(mu > 0)) return 0;
    const double from = -epsilon / mu + mu / 2;
    const double subtracted = normal_below(from - mu);
    return std::max(0.0, normal_below(from) - (subtracted > 0 ? std::exp(epsilon + std::log(subtracted)) : 0));
  }
  /// epsilon(delta), rounded down: of a mu that is a lower bound, so is this.
  [[nodiscard]] double epsilon(pergrad::delta at) const noexcept {
    if (delta(0) <= at.value()) return 0;
    double low = 0;
    double high = 1;
    while (delta(high) > at.value() && high < 1e6) high *= 2;
    for (int round = 0; round < 60; ++round) {
      const double middle = (low + high) / 2;
      (delta(middle) > at.value() ? low : high) = middle;
    }
    return low;
  }
};

/// Of pairs (epsilon, delta), all of which hold.
class certified_trade_off {
 public:
  /// Of what an accountant says, which has epsilon(delta): `rdp_accountant`, `privacy_accountant` or one of your own.
  template <class Accountant>
  explicit certified_trade_off(const Accountant& accountant) {
    for (double power = 0.125; power <= 12; power += 0.125) add(accountant, std::pow(10.0, -power));
    for (double rate = 0.01; rate < 0.5; rate += 0.01) add(accountant, rate);  // where the curve bends
  }
  [[nodiscard]] double operator()(double alpha) const noexcept {
    double beta = 0;
    for (const pair& each : pairs_) {
      const double rest = 1 - each.delta;
      beta = std::max({beta, rest - each.factor * alpha, (rest - alpha) / each.factor});
    }
    return beta;
  }

 private:
  struct pair {
    double factor;  ///< e^epsilon
    double delta;
  };
  template <class Accountant>
  void add(const Accountant& accountant, double at) {
    const double factor = std::exp(static_cast<double>(accountant.epsilon(delta{at})));
    if (factor < std::numeric_limits<double>::max()) pairs_.push_back({factor, at});
  }
  std::vector<pair> pairs_;
};

}  // namespace pergrad::inline v0_1::testing
