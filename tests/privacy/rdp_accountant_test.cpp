// SPDX-License-Identifier: Apache-2.0
// tests/privacy/rdp_accountant_test.cpp - epsilon of whole runs against public values; the ledger; what can never
// happen.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>

#include <pergrad/privacy/accounting/rdp_accountant.hpp>

BOOST_AUTO_TEST_SUITE(privacy_rdp_accountant)

namespace {

using pergrad::delta;
using pergrad::rdp_accountant;

double relative(double got, double wanted) { return std::abs(got / wanted - 1); }

double spent(double q, double noise, std::uint64_t steps, double at) {
  rdp_accountant accountant;
  accountant.record({q, noise}, steps);
  return accountant.epsilon(delta{at});
}

}  // namespace

BOOST_AUTO_TEST_CASE(runs_equal_the_best_order_and_lie_above_the_truth) {
  // rdp: minimum over all real orders, 10 digits. prv: estimate of the true epsilon by microsoft/prv_accountant a844f72
  // with eps_error 0.002, a rigorous bracket of +-0.0025 around it.
  struct row {
    double q;
    double noise;
    std::uint64_t steps;
    double delta;
    double rdp;
    double prv;
  };
  const std::array<row, 18> rows{{
      {.01, 1, 1000, 1e-5, 2.101322131, 1.8282368},
      {256.0 / 60000, 1.1, 14062, 1e-5, 2.596541969, 2.3815970},
      {.04, 1.5, 2250, 1e-5, 7.328349915, 6.7687804},
      {.0025, 1.3, 6000, 1e-5, 0.724059010, 0.6400039},
      {.001, 1, 30000, 1e-7, 1.413716962, 1.0976775},
      {.08192, 3, 2468, 1e-5, 7.045442364, 6.5292802},
      {.5, 2, 10, 1e-5, 4.366850549, 3.9589956},
      {1e-4, .6, 10000, 1e-6, 2.076130956, 0.5327471},
      {.02, .8, 100, 1e-6, 3.908158975, 3.2373483},
      {.1, 1, 1, 1e-5, 2.132941221, 1.6845438},
      {.001, .5, 1000, 1e-5, 4.378084243, 3.2388791},
      {.1, 3, 512, 1e-6, 4.050944487, 3.7696839},
      {.2, 10, 1000, 1e-5, 2.836113039, 2.6131625},
      {.01, .7, 120, 1e-5, 3.237167263, 2.4612377},
      {.0064, 2, 782, 1e-6, 0.433337159, 0.3937159},
      {.25, 5, 400, 1e-8, 6.272613243, 5.9419273},
      {.05, .8, 1000, 1e-6, 21.114976167, 19.5150308},
      {.001, 4, 100000, 1e-6, 0.341213168, 0.3144542},
  }};
  for (const row& each : rows) {
    const double got = spent(each.q, each.noise, each.steps, each.delta);
    BOOST_TEST(relative(got, each.rdp) < 2e-9, each.q << " " << each.noise << ": " << got << " for " << each.rdp);
    BOOST_TEST(got > each.prv);
  }
}

BOOST_AUTO_TEST_CASE(never_above_published_rdp_results) {
  // Public results from coarser grids of orders (or looser arithmetic): ours may be smaller by what the grid lost.
  struct row {
    double q;
    double noise;
    std::uint64_t steps;
    double delta;
    double published;
    double slack;
  };
  const std::array<row, 9> rows{{
      // the same runs on the orders 1.1 ... 10.9, 11 ... 63, 128, 256, 512, 1024 of google/differential-privacy b5b0286
      {.01, 1, 1000, 1e-5, 2.101365272, 1e-4},
      {.04, 1.5, 2250, 1e-5, 7.329111171, 2e-4},
      {.001, 4, 100000, 1e-6, 0.341213730, 1e-5},
      {.05, .8, 1000, 1e-6, 21.136716539, 2e-3},
      // tensorflow/privacy 03035d5, compute_dp_sgd_privacy_test.py
      {.001, 1, 30000, 1e-7, 1.4154988495444842, 2e-3},
      {1, .7, 2, 1e-5, 10.8602036, 1e-3},
      {.01, .7, 120, 1e-5, 3.2392676, 1e-3},
      {.0064, 1, 782, 1e-6, 1.6165, 2e-3},
      {1, 1, 5, 1e-6, 13.3765, 1e-3},
  }};
  for (const row& each : rows) {
    const double got = spent(each.q, each.noise, each.steps, each.delta);
    BOOST_TEST(got <= each.published);
    BOOST_TEST(got >= each.published * (1 - each.slack), got << " for " << each.published);
  }
}

BOOST_AUTO_TEST_CASE(never_below_the_truth) {
  struct row {
    double q;
    double noise;
    std::uint64_t steps;
    double delta;
    double truth;  // a lower bound of the true epsilon
  };
  const std::array<row, 17> rows{{
      // exact epsilon of the Gaussian mechanism (Balle & Wang 2018), 60 digits
      {1, 1, 1, 1e-5, 4.37717809568122463},
      {1, .5, 1, 1e-6, 10.9971512142206511},
      {1, 2, 1, 1e-8, 2.70760633422284859},
      {1, 100, 9999, 1e-9, 6.17359415480095596},
      {1, 10, 100, 1e-6, 4.886554117462212},
      {1, 4, 30, 1e-5, 6.3257153938762004},
      // meta-pytorch/opacus 88919b6, prv_accountant.py: upper bounds at most 0.0206 above the true epsilon
      {.001, 1.5, 100, 1e-6, 0.039369419309 - .0206},
      {.05, 1.5, 100, 1e-6, 1.953853135684 - .0206},
      {.05, 3, 100, 1e-6, 0.767933789667 - .0206},
      {.2, 1.5, 100, 1e-6, 8.498977859121 - .0206},
      {.2, 3, 100, 1e-6, 3.381220510224 - .0206},
      {.001, 1.5, 1000, 1e-6, 0.099820660258 - .0206},
      {.05, 1.5, 1000, 1e-6, 6.209969246577 - .0206},
      {.001, .8, 50000, 1e-6, 2.034514807716 - .0206},
      {.001, 2, 50000, 1e-6, 0.491354910211 - .0206},
      {.05, 1.5, 50000, 1e-6, 73.190176723833 - .0206},
      {.05, 3, 50000, 1e-6, 24.942005643145 - .0206},
  }};
  for (const row& each : rows) {
    const double got = spent(each.q, each.noise, each.steps, each.delta);
    BOOST_TEST(got > each.truth);
  }
}

BOOST_AUTO_TEST_CASE(gaussian_calibrated_elsewhere_costs_one) {
  // google/differential-privacy b5b0286, rdp_privacy_accountant_test.py
  BOOST_TEST(std::abs(spent(1, 4.530877117, 1, 1e-6) - 1.0) < 1e-6);
}

BOOST_AUTO_TEST_CASE(monotone_in_everything) {
  const double base = spent(.01, 1.1, 2000, 1e-5);
  BOOST_TEST(spent(.0101, 1.1, 2000, 1e-5) > base);
  BOOST_TEST(spent(.01, 1.11, 2000, 1e-5) < base);
  BOOST_TEST(spent(.01, 1.1, 2001, 1e-5) > base);
  BOOST_TEST(spent(.01, 1.1, 2000, 1.01e-5) < base);
  double before = 0;
  for (std::uint64_t steps = 1; steps < 200'000; steps *= 2) {
    const double now = spent(.004, .9, steps, 1e-6);
    BOOST_TEST(now > before);
    BOOST_TEST(now <= 2 * before + 3);  // composition is subadditive up to the conversion's constant
    before = now;
  }
}

BOOST_AUTO_TEST_CASE(epsilon_and_delta_are_inverse) {
  rdp_accountant accountant;
  accountant.record({.02, 1.2}, 700);
  for (const double at : {1e-8, 1e-5, 1e-3}) {
    const double epsilon = accountant.epsilon(delta{at});
    BOOST_TEST(relative(accountant.delta_for(pergrad::epsilon{epsilon}), at) < 1e-7);
  }
  BOOST_TEST(accountant.delta_for(pergrad::epsilon{0}) <= 1);
  // Never below the exact delta of one Gaussian step: mu = 1, epsilon 1 (Balle & Wang 2018).
  rdp_accountant gaussian;
  gaussian.record({1, 1});
  BOOST_TEST(gaussian.delta_for(pergrad::epsilon{1}) > .126936737506643946);
  BOOST_TEST(gaussian.delta_for(pergrad::epsilon{1}) < .26);
}

BOOST_AUTO_TEST_CASE(order_of_events_and_splits_of_counts_do_not_matter) {
  const pergrad::sampled_gaussian_event first{.01, 1};
  const pergrad::sampled_gaussian_event second{.02, 2};
  rdp_accountant one;
  one.record(first, 30);
  one.record(second, 70);
  rdp_accountant other;
  for (int i = 0; i < 70; ++i) {
    other.record(second);
    if (i < 30) other.record(first);
  }
  BOOST_TEST(other.steps() == 100U);
  BOOST_TEST(other.ledger().size() == 2U);
  BOOST_TEST(relative(other.epsilon(delta{1e-5}), one.epsilon(delta{1e-5})) < 1e-12);
  BOOST_TEST(one.epsilon(delta{1e-5}) > spent(.01, 1, 30, 1e-5));
  BOOST_TEST(one.epsilon(delta{1e-5}) < spent(.01, 1, 30, 1e-5) + spent(.02, 2, 70, 1e-5));
}

BOOST_AUTO_TEST_CASE(empty_prepared_and_noiseless_ledgers) {
  rdp_accountant accountant;
  BOOST_TEST(accountant.epsilon(delta{1e-5}) == 0);
  BOOST_TEST(accountant.delta_for(pergrad::epsilon{0}) == 0);
  accountant.prepare({.5, 0});  // prepared is not spent, even at infinite cost
  BOOST_TEST(accountant.epsilon(delta{1e-5}) == 0);
  BOOST_TEST(accountant.steps() == 0U);
  accountant.record({0, 0}, 1000);
  BOOST_TEST(accountant.epsilon(delta{1e-5}) == 0);
  accountant.record({.5, 0});
  BOOST_TEST(accountant.epsilon(delta{1e-5}) == std::numeric_limits<double>::infinity());
  BOOST_TEST(accountant.delta_for(pergrad::epsilon{5}) == 1);
}

BOOST_AUTO_TEST_CASE(bad_events_and_overflow_leave_the_ledger_alone) {
  rdp_accountant accountant;
  accountant.record({.1, 1}, 5);
  BOOST_CHECK_THROW(accountant.record({std::numeric_limits<double>::quiet_NaN(), 1}), std::invalid_argument);
  BOOST_CHECK_THROW(accountant.record({.1, -1}), std::invalid_argument);
  BOOST_CHECK_THROW(accountant.record({.1, 1}, std::numeric_limits<std::uint64_t>::max()), std::overflow_error);
  BOOST_TEST(accountant.steps() == 5U);
  BOOST_TEST(accountant.ledger().size() == 1U);
}

BOOST_AUTO_TEST_CASE(guard_agrees_with_epsilon_and_looks_ahead_without_spending) {
  constexpr unsigned seed = 20240507;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 engine{seed};
  std::uniform_real_distribution<double> uniform{0, 1};
  for (int turn = 0; turn < 20; ++turn) {
    const pergrad::sampled_gaussian_event event{std::exp(-7 * uniform(engine) - .5), .6 + 2 * uniform(engine)};
    rdp_accountant accountant;
    accountant.record(event, 1 + static_cast<std::uint64_t>(1000 * uniform(engine)));
    const double ahead = accountant.epsilon_after(event, 3, delta{1e-5});
    const pergrad::privacy_budget exact{pergrad::epsilon{ahead}, delta{1e-5}};
    const pergrad::privacy_budget short_of_it{pergrad::epsilon{ahead * (1 - 1e-12)}, delta{1e-5}};
    BOOST_TEST(!accountant.would_exceed(exact, event, 3));
    BOOST_TEST(accountant.would_exceed(short_of_it, event, 3));
    const std::uint64_t steps = accountant.steps();
    accountant.record(event, 3);
    BOOST_TEST(accountant.steps() == steps + 3);
    BOOST_TEST(relative(accountant.epsilon(delta{1e-5}), ahead) < 1e-13);
  }
}

BOOST_AUTO_TEST_SUITE_END()
