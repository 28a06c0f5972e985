// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/private_selection.hpp - what it costs to train several times and to release the best run.
//
// The number of runs is drawn, K, and only the best run is released; all of them have one ledger (sigma, q, steps), and
// which of two is better is a function of what they release: of public data, or of a score that is noised and in the
// ledger. Papernot & Steinke 2022 (arXiv:2110.03620): if a run has Renyi divergence r(a) at order a, the release has at
// every order a > 1
// * theorem 2, K truncated negative binomial (eta > -1, 0 < gamma < 1; geometric at eta = 1, logarithmic at 0):
//     r(a) + (1 + eta) min_b ((1 - 1/b) r(b) + ln(1/gamma) / b) + ln E[K] / (a - 1)          over orders b >= 1,
//     P[K = k] = (1 - gamma)^k / (gamma^-eta - 1) prod_{l < k} (l + eta) / (l + 1),    E[K] = eta (1 - gamma) /
//     (gamma (1 - gamma^eta));       eta = 0: (1 - gamma)^k / (k ln(1/gamma)),    E[K] = (1/gamma - 1) / ln(1/gamma)
// * theorem 6, K Poisson of mean mu, no run at all being possible: ln(e^-mu + mu e^((a - 1) (r(a) + mu d))) / (a - 1),
//   where a run is (ln(1 + 1/(a - 1)), d)-private. The theorem leaves out e^-mu, which is that of no run and matters
//   for small mu: densities are those of a run times mu e^(-mu (1 - F)), F being the distribution function, and
//   a (1 - F) >= (a - 1) (1 - F' - d) bounds the rest.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/accounting/rdp.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// How the number of runs is drawn among which one is selected. It has to be drawn anew, from a source of random bits
/// that nobody knows, and neither it nor the other runs may be released. Runs are compared by what they release: by
/// their parameters on public data, or by a count of private records that is released with noise and in their ledger.
class private_selection {
 public:
  /// Truncated negative binomial: at least one run. Throws std::invalid_argument unless eta is in (-1, 1e6), gamma in
  /// [1e-4, 1) and the mean at most 1000.
  [[nodiscard]] static private_selection negative_binomial(double eta, double gamma) {
    if (!(eta > -1 && eta < 1e6)) detail::throw_bad_number("eta of a selection", "above -1 and below 1e6", eta);
    if (!(gamma >= 1e-4 && gamma < 1)) {
      detail::throw_bad_number("gamma of a selection", "at least 1e-4 and below 1", gamma);
    }
    const double mean = mean_of(eta, gamma);
    if (!(mean <= most_mean)) detail::throw_bad_number("mean of a selection", "at most 1000", mean);
    return {eta, gamma, mean};
  }
  /// At least one run, `mean` on average: negative binomial with eta = 1.
  [[nodiscard]] static private_selection geometric(double mean) {
    if (!(mean > 1 && mean <= most_mean)) detail::throw_bad_number("mean of a selection", "in (1, 1000]", mean);
    return negative_binomial(1, 1 / mean);
  }
  /// Possibly no run at all. Throws std::invalid_argument unless the mean is in (0, 1000].
  [[nodiscard]] static private_selection poisson(double mean) {
    if (!(mean > 0 && mean <= most_mean)) detail::throw_bad_number("mean of a selection", "in (0, 1000]", mean);
    return {-1, 0, mean};
  }

  /// E[K].
  [[nodiscard]] double mean() const noexcept { return mean_; }

  /// The number of runs for 64 random bits: the least k with P[K <= k] above their share of 2^64. Its distribution is
  /// not quite K's, and `epsilon` pays for that.
  template <class = void>
  [[nodiscard]] std::uint64_t runs(std::uint64_t bits) const {
    const detail::float_environment proven;
    const auto ratio = [&](std::size_t k) {
      const auto at = static_cast<double>(k);
      return is_poisson() ? mean_ / at : (1 - gamma_) * (at - 1 + eta_) / at;
    };
    const std::size_t least = is_poisson() ? 0 : 1;
    std::size_t mode = least;
    while (ratio(mode + 1) > 1) ++mode;
    std::vector<double> weights(mode + 1);
    weights[mode] = 1;
    for (std::size_t k = mode; k > least; --k) weights[k - 1] = weights[k] / ratio(k);
    while (weights.back() > 0x1p-80) weights.push_back(weights.back() * ratio(weights.size()));
    double total = 0;
    double lost = 0;  // by the sum's roundings
    for (const double each : weights) {
      const double sum = total + each;
      lost += total > each ? total - sum + each : each - sum + total;
      total = sum;
    }
    std::uint64_t below = 0;  // of 2^63
    for (std::size_t k = least; k < weights.size(); ++k) {
      below += static_cast<std::uint64_t>(weights[k] / (total + lost) * 0x1p63);
      if (below > bits >> 1U) return k;
    }
    return mode;
  }

  /// Upper bound of epsilon for the selected run, if each run has this ledger, planned beforehand (one that is made on
  /// the way differs from run to run); infinity if there is none. Some tenths of a second.
  template <class Event>
  [[nodiscard]] double epsilon(const basic_rdp_accountant<Event>& each_run, delta at) const {
    const detail::float_environment proven;
    std::array<double, orders> divergences{};
    for (std::size_t i = 0; i < orders; ++i) divergences[i] = each_run.renyi(order(i));
    double runs_cost = detail::infinity;
    for (std::size_t i = 0; i < orders; ++i) {
      runs_cost = std::min(runs_cost, (1 - 1 / order(i)) * divergences[i] - std::log(gamma_) / order(i));
    }
    // What the draw of K errs by is paid in delta: (1 + e^epsilon) times that.
    for (double paid = at.value() * 0x1p-10; paid <= at.value() / 2; paid *= 2) {
      double least = detail::infinity;
      for (std::size_t i = 0; i < orders; ++i) {
        const double a = order(i);
        double selected = divergences[i];
        if (is_poisson()) {
          selected += mean_ * each_run.delta_for(pergrad::epsilon{std::log1p(1 / (a - 1))});
          selected = detail::log1p_exp(std::log(mean_) + mean_ + (a - 1) * selected) / (a - 1) - mean_ / (a - 1);
        } else {
          selected += (1 + eta_) * runs_cost + std::log(mean_) / (a - 1);
        }
        least = std::min(least,
                         epsilon_from_rdp(a, std::max(0.0, selected) * (1 + 1e-9) + 1e-12, delta{at.value() - paid}));
      }
      if ((1 + std::exp(least)) * runs_are_off() <= paid) return least;
    }
    return detail::infinity;
  }

 private:
  static constexpr std::size_t orders = 96;
  static constexpr double most_mean = 1000;

  private_selection(double eta, double gamma, double mean) noexcept : eta_{eta}, gamma_{gamma}, mean_{mean} {}
  [[nodiscard]] bool is_poisson() const noexcept { return gamma_ == 0; }
  /// By how much the law of `runs` may differ from K's, in total variation. Probabilities are products of ratios
  /// P[k] / P[k - 1] away from the most likely k, so each is off by at most 5 |k - mode| roundings, 10 E[K] on average,
  /// half of which count; their sum by some more, and each by a whole number of 2^-63. There are fewer than 64 / gamma
  /// of them, or 4000.
  [[nodiscard]] double runs_are_off() const noexcept {
    return (5 * mean_ + 16) * 0x1p-53 + (is_poisson() ? 4000 : 2000 + 64 / gamma_) * 0x1p-63;
  }
  /// order - 1 in geometric progression from 0.02 to 2000.
  [[nodiscard]] static double order(std::size_t i) noexcept {
    return 1 + 0.02 * std::exp(std::log(1e5) * static_cast<double>(i) / static_cast<double>(orders - 1));
  }
  [[nodiscard]] static double mean_of(double eta, double gamma) noexcept {
    if (eta == 0) return (1 / gamma - 1) / -std::log(gamma);
    return eta * (1 - gamma) / gamma / -std::expm1(eta * std::log(gamma));
  }

  double eta_;
  double gamma_;
  double mean_;
};

}  // namespace pergrad::inline v0_1
