// SPDX-License-Identifier: Apache-2.0
// tests/privacy/private_selection_test.cpp - the best of several runs against exact hockey sticks; the number of runs
// against its distribution; estimates against what they estimate.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <pergrad/privacy/accounting/estimates.hpp>
#include <pergrad/privacy/accounting/pld_accountant.hpp>
#include <pergrad/privacy/accounting/private_selection.hpp>

#include "pld_oracle.hpp"

BOOST_AUTO_TEST_SUITE(privacy_private_selection)

namespace {

using pergrad::delta;
using pergrad::private_selection;
using pergrad::rdp_accountant;

/// Probability generating function of the number of runs, and its derivative.
struct generating {
  double eta;  // below -1: Poisson
  double gamma;
  double mean;
  [[nodiscard]] long double slope(long double z) const {
    if (eta < -1) return mean * std::exp(mean * (z - 1));
    const long double rest = 1 - (1 - gamma) * z;
    if (eta == 0) return (1 - gamma) / rest / -std::log(static_cast<long double>(gamma));
    return eta * (1 - gamma) * std::pow(rest, -eta - 1) / (std::pow(static_cast<long double>(gamma), -eta) - 1);
  }
};

/// The best of K Gaussians of mean 0 or 1: the hockey stick of its law, one way or the other, of densities
/// slope(F(x)) f(x). Nothing at all has the same probability on both sides.
long double selected_delta(const generating& runs, long double noise, long double eps, bool higher) {
  long double sum = 0;
  const long double width = noise / 400;
  for (long double x = -14 * noise; x < 1 + 14 * noise; x += width) {
    const auto density = [&](long double mean) {
      const long double z = (x - mean) / noise;
      return runs.slope(oracle::tail(-z)) * std::exp(-z * z / 2);
    };
    const long double p = density(higher ? 1 : 0);
    const long double q = density(higher ? 0 : 1);
    sum += std::max(0.0L, p - std::exp(eps) * q);
  }
  return sum * width / noise / std::sqrt(2 * std::acos(-1.0L));
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_best_of_several_runs_costs_no_more_than_is_said) {
  int more_than_one_run = 0;
  for (const double noise : {1.0, 3.0, 12.0}) {
    rdp_accountant one;
    one.record({1, noise});
    for (const double at : {1e-2, 1e-5}) {
      const auto check = [&](const private_selection& rule, const generating& runs) {
        const double eps = rule.epsilon(one, delta{at});
        const long double exact =
            std::max(selected_delta(runs, noise, eps, true), selected_delta(runs, noise, eps, false));
        BOOST_TEST(exact <= at, noise << " eta " << runs.eta << " mean " << rule.mean() << ": " << eps);
        // What one run costs would be a wrong answer.
        const double single = one.epsilon(delta{at});
        more_than_one_run +=
            std::max(selected_delta(runs, noise, single, true), selected_delta(runs, noise, single, false)) > at ? 1
                                                                                                                 : 0;
        BOOST_TEST(eps < 6 * single + 2);
      };
      for (const double eta : {-0.5, 0.0, 1.0, 3.0}) {
        for (const double gamma : {0.5, 0.02}) {
          check(private_selection::negative_binomial(eta, gamma), {eta, gamma, 0});
        }
      }
      for (const double mean : {0.5, 10.0}) check(private_selection::poisson(mean), {-2, 0, mean});
    }
  }
  BOOST_TEST(more_than_one_run > 5);
}

BOOST_AUTO_TEST_CASE(the_number_of_runs_has_the_distribution_that_is_paid_for) {
  const auto check = [](const private_selection& rule, double eta, double gamma, double poisson_mean) {
    long double below = 0;
    long double probability = 0;
    for (std::uint64_t k = poisson_mean > 0 ? 0 : 1; k < 40; ++k) {
      if (poisson_mean > 0) {
        probability = k == 0 ? std::exp(-static_cast<long double>(poisson_mean)) : probability * poisson_mean / k;
      } else if (eta == 0) {
        probability = std::pow(1 - static_cast<long double>(gamma), static_cast<long double>(k)) /
                      (k * -std::log(static_cast<long double>(gamma)));
      } else {
        long double product = 1;
        for (std::uint64_t l = 0; l < k; ++l) product *= (l + static_cast<long double>(eta)) / (l + 1);
        probability = std::pow(1 - static_cast<long double>(gamma), static_cast<long double>(k)) * product /
                      (std::pow(static_cast<long double>(gamma), -static_cast<long double>(eta)) - 1);
      }
      // Shares just inside of k's interval are k, those just outside are not.
      const auto bits = [](long double share) { return static_cast<std::uint64_t>(std::ldexp(share, 64)); };
      const long double margin = 0x1p-45L;
      if (probability < 4 * margin) break;
      BOOST_TEST(rule.runs(bits(below + margin)) == k);
      BOOST_TEST(rule.runs(bits(below + probability - margin)) == k);
      if (below > 0) BOOST_TEST(rule.runs(bits(below - margin)) < k);
      below += probability;
    }
    BOOST_TEST(below > 0.3L);
  };
  check(private_selection::geometric(4), 1, 0.25, 0);
  check(private_selection::negative_binomial(0, 0.1), 0, 0.1, 0);
  check(private_selection::negative_binomial(-0.5, 0.05), -0.5, 0.05, 0);
  check(private_selection::negative_binomial(2.5, 0.3), 2.5, 0.3, 0);
  check(private_selection::poisson(3.5), 0, 0, 3.5);
  BOOST_TEST(std::abs(private_selection::geometric(7).mean() - 7) < 1e-12);
}

// At the ends of what is allowed, against products of 64 bits: nobody waits, and the number of runs has its own law.
BOOST_AUTO_TEST_CASE(many_runs_have_their_distribution_too) {
  const auto check = [](const private_selection& rule, double eta, double gamma, double poisson_mean) {
    const auto ratio = [&](std::size_t k) {
      const auto at = static_cast<long double>(k);
      return poisson_mean > 0 ? poisson_mean / at : (1 - static_cast<long double>(gamma)) * (at - 1 + eta) / at;
    };
    std::vector<long double> share(1, poisson_mean > 0 ? 1 : 0);
    for (std::size_t k = 1; k < 200'000; ++k) {
      share.push_back(k == 1 && poisson_mean == 0 ? 1 : share.back() * ratio(k));
      if (share.back() > 1e3000L) {
        for (long double& each : share) each *= 1e-3000L;
      }
    }
    long double total = 0;
    for (const long double each : share) total += each;
    long double below = 0;
    long double mean = 0;
    const long double margin = 0x1p-41L;
    int asked = 0;
    for (std::size_t k = 0; k < share.size(); ++k) {
      below += share[k] / total;
      mean += share[k] / total * static_cast<long double>(k);
      if (below < 1e-9L || below > 1 - 1e-9L || k % (k < 2000 ? 37 : 1009) != 0) continue;
      ++asked;
      const auto bits = [](long double at) { return static_cast<std::uint64_t>(std::ldexp(at, 64)); };
      BOOST_TEST(rule.runs(bits(below - margin)) <= k);
      BOOST_TEST(rule.runs(bits(below + margin)) > k);
    }
    BOOST_TEST(asked > 5);
    BOOST_TEST(std::abs(static_cast<double>(mean) / rule.mean() - 1) < 1e-9);
    BOOST_TEST(rule.runs(0) <= rule.runs(~std::uint64_t{0}));
    BOOST_TEST(rule.runs(~std::uint64_t{0}) < share.size());
  };
  check(private_selection::poisson(1000), 0, 0, 1000);
  check(private_selection::geometric(1000), 1, 1e-3, 0);
  check(private_selection::negative_binomial(600, .4), 600, .4, 0);  // P[1] is below what a double holds
  check(private_selection::negative_binomial(-.5, 1e-4), -.5, 1e-4, 0);
  BOOST_TEST(private_selection::poisson(.01).runs(0) == 0U);
  // What the draw of K errs by costs next to nothing.
  rdp_accountant one;
  one.record({.01, 1}, 1000);
  BOOST_TEST(private_selection::geometric(10).epsilon(one, delta{1e-10}) < 3 * one.epsilon(delta{1e-10}) + 2);
  BOOST_TEST(private_selection::poisson(100).epsilon(one, delta{1e-5}) < 20);
}

BOOST_AUTO_TEST_CASE(selections_that_are_none_throw) {
  BOOST_CHECK_THROW(static_cast<void>(private_selection::negative_binomial(-1, 0.5)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(private_selection::negative_binomial(1, 1)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(private_selection::negative_binomial(1, std::nan(""))), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(private_selection::geometric(1)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(private_selection::geometric(1001)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(private_selection::negative_binomial(800, .4)), std::invalid_argument);  // 1200
  BOOST_CHECK_THROW(static_cast<void>(private_selection::negative_binomial(1, 1e-5)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(private_selection::poisson(0)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(private_selection::poisson(1001)), std::invalid_argument);
  rdp_accountant no_noise;
  no_noise.record({1, 0});
  BOOST_TEST(private_selection::geometric(2).epsilon(no_noise, delta{1e-5}) == pergrad::detail::infinity);
}

BOOST_AUTO_TEST_CASE(estimates_are_what_they_say_and_may_say_too_little) {
  struct row {
    double q;
    double noise;
    std::uint64_t steps;
    double delta;
    double clt;  // of the same formula, by 60 digits
  };
  for (const row& each : {row{.01, 1, 1000, 1e-5, 1.61771181}, row{.0025, 1.3, 6000, 1e-5, 0.62299693},
                          row{.04, 1.5, 2250, 1e-5, 6.60156709}, row{1e-4, .6, 10000, 1e-6, 0.14443118}}) {
    const std::vector<rdp_accountant::entry> ledger{{{each.q, each.noise}, each.steps}};
    const double got = pergrad::gdp_epsilon(ledger, delta{each.delta}).value();
    BOOST_TEST(std::abs(got / each.clt - 1) < 1e-7, got);
    pergrad::pld_accountant proven;
    proven.record(ledger[0].event, ledger[0].count);
    BOOST_TEST(got < proven.bracket(delta{each.delta}).lower);  // no bound
    BOOST_TEST(pergrad::zcdp_epsilon(ledger, delta{each.delta}).value() > got);
  }
  // One Gaussian, for which it is exact; also one whose epsilon is large
  for (const double noise : {0.05, 1.0, 30.0}) {
    const std::vector<rdp_accountant::entry> ledger{{{1, noise}, 1}, {{0, 1}, 5}};
    const long double eps = pergrad::gdp_epsilon(ledger, delta{1e-5}).value();
    BOOST_TEST(std::abs(oracle::gaussian(noise, eps) / 1e-5L - 1) < 1e-6L);
  }
  BOOST_TEST(pergrad::gdp_epsilon({}, delta{1e-5}).value() == 0);
}

BOOST_AUTO_TEST_SUITE_END()
