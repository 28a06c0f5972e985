// SPDX-License-Identifier: Apache-2.0
// tests/testing/audit_statistics_test.cpp - bounds of audits: against reference values, against mechanisms that leak
// exactly what they say, and on scores that say nothing
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include <pergrad/privacy/accounting/rdp_accountant.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/testing/audit/binomial.hpp>
#include <pergrad/testing/audit/one_run.hpp>
#include <pergrad/testing/audit/trade_off.hpp>
#include <pergrad/testing/audit/two_worlds.hpp>

BOOST_AUTO_TEST_SUITE(audit_statistics)

namespace {

using boost::test_tools::tolerance;
using pergrad::delta;
using pergrad::testing::guesses;
using pergrad::testing::one_run;
using pergrad::testing::two_worlds;

int repeated(int few, int many) { return std::getenv("PERGRAD_LONG_TESTS") == nullptr ? few : many; }

/// Not more violations than a significance explains: P[at least so many] is above 1e-6.
void expect_rate(int violations, int audits, double significance, const char* what) {
  BOOST_TEST_MESSAGE(what << ": " << violations << " of " << audits << " audits above the truth");
  BOOST_TEST(pergrad::testing::binomial_tail(static_cast<std::size_t>(violations), static_cast<std::size_t>(audits),
                                             significance) > 1e-6,
             what << ": " << violations << " of " << audits);
}

/// Scores of the Gaussian mechanism: N(0, 1) and N(mu, 1).
two_worlds gaussian_worlds(std::mt19937_64& random, std::size_t runs, double mu, double confidence) {
  std::normal_distribution<double> normal;
  std::vector<double> with(runs);
  std::vector<double> without(runs);
  for (double& score : with) score = mu + normal(random);
  for (double& score : without) score = normal(random);
  return {std::move(with), std::move(without), confidence};
}
/// Scores of orthogonal canaries in one run.
one_run gaussian_run(std::mt19937_64& random, std::size_t canaries, double mu, double confidence) {
  std::normal_distribution<double> normal;
  std::vector<double> scores;
  std::vector<std::uint8_t> included;
  for (std::size_t i = 0; i < canaries; ++i) {
    included.push_back(static_cast<std::uint8_t>(random() >> 63U));
    scores.push_back(mu * included.back() + normal(random));
  }
  return {std::move(scores), included, confidence};
}
/// The coin of every canary is told truly with probability e^epsilon / (1 + e^epsilon): no mechanism leaks more.
one_run randomised_response(std::mt19937_64& random, std::size_t canaries, double epsilon, double confidence) {
  std::uniform_real_distribution<double> uniform;
  std::vector<double> scores;
  std::vector<std::uint8_t> included;
  for (std::size_t i = 0; i < canaries; ++i) {
    included.push_back(static_cast<std::uint8_t>(random() >> 63U));
    const bool truth = uniform(random) < 1 / (1 + std::exp(-epsilon));
    scores.push_back(truth == (included.back() != 0) ? 1 : 0);
  }
  return {std::move(scores), included, confidence};
}

}  // namespace

BOOST_AUTO_TEST_CASE(tails_are_those_that_one_adds_up) {
  for (const auto& [n, p] : {std::pair{1, 0.3}, {7, 0.5}, {60, 0.02}, {400, 0.9}, {1000, 0.51}}) {
    double sum = 0;
    for (int k = n; k >= 0; --k) {
      sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0) + k * std::log(p) +
                      (n - k) * std::log1p(-p));
      const double tail = pergrad::testing::binomial_tail(static_cast<std::size_t>(k), static_cast<std::size_t>(n), p);
      BOOST_TEST(std::abs(tail - sum) <= 1e-10 * sum + 1e-15, k << " of " << n << ": " << tail << ", " << sum);
    }
  }
}

BOOST_AUTO_TEST_CASE(clopper_and_pearson_cover) {
  using pergrad::testing::clopper_pearson_lower;
  using pergrad::testing::clopper_pearson_upper;
  // For no success the bound is 1 - s^(1/n).
  for (const std::size_t n : {1U, 10U, 1000U, 100'000U}) {
    const double exact = -std::expm1(std::log(0.05) / static_cast<double>(n));
    BOOST_TEST(clopper_pearson_upper(0, n, 0.05) == exact, tolerance(1e-5));
    BOOST_TEST(clopper_pearson_upper(0, n, 0.05) >= exact);
    BOOST_TEST(clopper_pearson_lower(n, n, 0.05) == 1 - clopper_pearson_upper(0, n, 0.05));
  }
  BOOST_TEST(clopper_pearson_upper(10, 10, 0.05) == 1.0);
  BOOST_TEST(clopper_pearson_lower(0, 10, 0.05) == 0.0);
  // Coverage, exactly: the k whose bound is below p have a probability of at most s together.
  for (const double p : {0.001, 0.03, 0.4, 0.97}) {
    constexpr std::size_t n = 300;
    std::size_t wrong = 0;
    while (wrong <= n && clopper_pearson_upper(wrong, n, 0.05) < p) ++wrong;
    BOOST_TEST(1 - pergrad::testing::binomial_tail(wrong, n, p) <= 0.05);
  }
  BOOST_CHECK_THROW(static_cast<void>(clopper_pearson_upper(3, 2, 0.05)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(clopper_pearson_upper(1, 2, 0.0)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(quantiles_invert_the_normal_distribution) {
  for (double x = -37; x <= 6; x += 0.37) {
    const double near = pergrad::testing::normal_quantile(pergrad::testing::normal_below(x));
    BOOST_TEST(std::abs(near - x) <= (x < 0 ? 1e-12 * (1 - x) : 6e-16 * std::exp(x * x / 2) + 1e-12), x);
  }
}

// Values of this p-value and its inversion that were computed independently, at confidence 0.95.
BOOST_AUTO_TEST_CASE(one_run_reference_values) {
  using pergrad::testing::one_run_epsilon;
  const auto expect = [](const guesses& seen, double delta, double epsilon) {
    BOOST_TEST(one_run_epsilon(seen, delta, 0.05) == epsilon, tolerance(1e-5));
    BOOST_TEST(one_run_epsilon(seen, delta, 0.05) <= epsilon + 1e-6);
  };
  expect({1000, 100, 99}, 0, 3.019339);
  expect({1000, 100, 99}, 1e-5, 3.002832);
  expect({1000, 1000, 700}, 1e-5, 0.731740);
  expect({100, 50, 50}, 0, 2.784727);
  expect({5000, 500, 500}, 1e-5, 4.977758);
  expect({10000, 200, 195}, 1e-6, 2.899427);
  BOOST_TEST(pergrad::testing::one_run_p_value({1000, 100, 80}, 1, 1e-5) == 0.07300911594917776, tolerance(2e-6));
  BOOST_CHECK_THROW(static_cast<void>(pergrad::testing::one_run_p_value({10, 11, 3}, 1, 0)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pergrad::testing::one_run_p_value({10, 5, 6}, 1, 0)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(the_gaussian_curve) {
  const pergrad::testing::gaussian_trade_off curve{1};
  BOOST_TEST(curve(0.5) == pergrad::testing::normal_below(-1), tolerance(1e-12));
  for (double alpha = 0.01; alpha < 1; alpha += 0.01) {
    BOOST_TEST(curve(curve(alpha)) == alpha, tolerance(1e-9));  // symmetric
    BOOST_TEST(curve(alpha) <= 1 - alpha);
  }
  BOOST_TEST(curve.epsilon(delta{1e-5}) == 4.37717, tolerance(1e-4));
  BOOST_TEST(pergrad::testing::gaussian_trade_off{0}(0.3) == 0.7);
}

// What a ledger proves lies below what is true, and says the epsilon that it was made of.
BOOST_AUTO_TEST_CASE(the_curve_of_a_ledger) {
  pergrad::rdp_accountant accountant;
  accountant.record({1, 1.0}, 1);
  const pergrad::testing::certified_trade_off proven{accountant};
  const pergrad::testing::gaussian_trade_off exact{1};
  double previous = 1;
  double furthest = 0;
  for (double alpha = 0; alpha <= 1; alpha += 0.001) {
    const double beta = proven(alpha);
    BOOST_REQUIRE(beta <= exact(alpha) + 1e-9);
    BOOST_REQUIRE(beta <= previous);
    BOOST_REQUIRE(beta >= 0);
    furthest = std::max(furthest, exact(alpha) - beta);
    previous = beta;
  }
  BOOST_TEST_MESSAGE("the Renyi curve is at most " << furthest << " below the Gaussian");
  BOOST_TEST(furthest < 0.25);
  const double epsilon = accountant.epsilon(delta{1e-3});
  BOOST_TEST(proven(1e-6) >= 1 - 1e-3 - 1e-6 * std::exp(epsilon) - 1e-12);
}

// A null run: scores that say nothing prove nothing, but for the stated part of all audits.
BOOST_AUTO_TEST_CASE(null_scores_in_two_worlds) {
  std::mt19937_64 random{2};
  const int audits = repeated(100, 4000);
  for (const double confidence : {0.95, 0.8}) {
    for (const std::size_t runs : {40U, 1000U}) {
      int epsilon = 0;
      int mu = 0;
      int curve = 0;
      for (int audit = 0; audit < audits; ++audit) {
        const two_worlds null = gaussian_worlds(random, runs, 0, confidence);
        epsilon += null.epsilon(delta{1e-5}) > 0 ? 1 : 0;
        mu += null.gaussian_mu() > 0 ? 1 : 0;
        curve += null.contradicts(pergrad::testing::gaussian_trade_off{0}) ? 1 : 0;
      }
      expect_rate(epsilon, audits, 1 - confidence, "epsilon of null scores");
      expect_rate(mu, audits, 1 - confidence, "mu of null scores");
      expect_rate(curve, audits, 1 - confidence, "curve of null scores");
    }
  }
}
// Planted: an auditor that takes rates for probabilities, at the threshold that looks best. The count above finds it.
BOOST_AUTO_TEST_CASE(an_auditor_that_proves_too_much_is_found) {
  std::mt19937_64 random{2};
  int wrong = 0;
  double mean = 0;
  for (int audit = 0; audit < 100; ++audit) {
    const two_worlds null = gaussian_worlds(random, 1000, 0, 0.95);
    double epsilon = 0;
    for (const auto& at : null.roc()) {
      if (at.false_positives > 0) epsilon = std::max(epsilon, std::log(at.true_positives / at.false_positives));
    }
    wrong += epsilon > 0 ? 1 : 0;
    mean += epsilon / 100;
  }
  BOOST_TEST_MESSAGE("rates for probabilities: " << wrong << " of 100 null audits, mean epsilon " << mean);
  BOOST_TEST(pergrad::testing::binomial_tail(static_cast<std::size_t>(wrong), 100, 0.05) < 1e-6);
}
BOOST_AUTO_TEST_CASE(null_scores_in_one_run) {
  std::mt19937_64 random{3};
  const int audits = repeated(100, 4000);
  int epsilon = 0;
  int mu = 0;
  for (int audit = 0; audit < audits; ++audit) {
    const one_run null = gaussian_run(random, 200, 0, 0.9);
    epsilon += null.epsilon(delta{1e-5}) > 0 ? 1 : 0;
    mu += null.gaussian_mu() > 0 ? 1 : 0;
  }
  expect_rate(epsilon, audits, 0.1, "epsilon of null scores in one run");
  expect_rate(mu, audits, 0.1, "mu of null scores in one run");
  // Constant scores, which are all ties.
  const std::vector<std::uint8_t> coins{1, 0, 0, 1, 1, 0, 1, 0, 0, 1};
  BOOST_TEST((one_run{std::vector<double>(10, 1.5), coins, 0.95}.epsilon(delta{1e-5})) == 0.0);
}

// A mechanism that leaks all it may is not said to leak more, but for the stated part; nor much less, with enough runs.
BOOST_AUTO_TEST_CASE(mechanisms_at_their_claim) {
  std::mt19937_64 random{4};
  const int audits = repeated(60, 2000);
  for (const double mu : {0.5, 1.0, 2.0}) {
    const pergrad::testing::gaussian_trade_off truth{mu};
    int epsilon = 0;
    int higher = 0;
    int curve = 0;
    double mean = 0;
    for (int audit = 0; audit < audits; ++audit) {
      const two_worlds worlds = gaussian_worlds(random, 1000, mu, 0.9);
      epsilon += worlds.epsilon(delta{1e-5}) > truth.epsilon(delta{1e-5}) ? 1 : 0;
      higher += worlds.gaussian_mu() > mu ? 1 : 0;
      curve += worlds.contradicts(truth) ? 1 : 0;
      mean += worlds.gaussian_mu() / audits;
    }
    expect_rate(epsilon, audits, 0.1, "epsilon at the claim");
    expect_rate(higher, audits, 0.1, "mu at the claim");
    expect_rate(curve, audits, 0.1, "the curve at the claim");
    BOOST_TEST_MESSAGE("mu " << mu << ": mean lower bound of 1000 runs " << mean);
    BOOST_TEST(mean > (mu == 0.5 ? 0.4 : 0.7) * mu);
  }
  for (const double claimed : {0.5, 1.0, 3.0}) {
    int found = 0;
    int of_curve = 0;
    const auto truth = [factor = std::exp(claimed)](double alpha) {
      return std::max({0.0, 1 - factor * alpha, (1 - alpha) / factor});
    };
    double mean = 0;
    for (int audit = 0; audit < audits; ++audit) {
      const one_run seen = randomised_response(random, 500, claimed, 0.9);
      found += seen.epsilon(delta{1e-7}) > claimed ? 1 : 0;
      of_curve += seen.contradicts(truth) ? 1 : 0;
      mean += seen.epsilon(delta{1e-7}) / audits;
    }
    expect_rate(found, audits, 0.1, "epsilon of randomised response");
    expect_rate(of_curve, audits, 0.1, "curve of randomised response");
    BOOST_TEST_MESSAGE("randomised response of epsilon " << claimed << ": mean lower bound " << mean);
    BOOST_TEST(mean > 0.5 * claimed);
  }
}

// With a curve for a claim, one run tells more than with (epsilon, delta).
BOOST_AUTO_TEST_CASE(curves_tell_more_in_one_run) {
  std::mt19937_64 random{5};
  const one_run seen = gaussian_run(random, 5000, 1, 0.95);
  const double by_curve = pergrad::testing::gaussian_trade_off{seen.gaussian_mu()}.epsilon(delta{1e-5});
  BOOST_TEST_MESSAGE("mu 1, 5000 canaries: epsilon " << seen.epsilon(delta{1e-5}) << ", by the curve " << by_curve
                                                     << ", true 4.377");
  BOOST_TEST(by_curve > seen.epsilon(delta{1e-5}));
  BOOST_TEST(by_curve < 4.377);
  BOOST_TEST(seen.contradicts(pergrad::testing::gaussian_trade_off{0.5}));
  BOOST_TEST(!seen.contradicts(pergrad::testing::gaussian_trade_off{1}));
}

// Half of the noise is twice the mu.
BOOST_AUTO_TEST_CASE(broken_claims_are_found) {
  std::mt19937_64 random{6};
  for (const double claimed : {0.5, 1.0, 2.0}) {
    const pergrad::testing::gaussian_trade_off claim{claimed};
    const two_worlds worlds = gaussian_worlds(random, 1000, 2 * claimed, 0.95);
    BOOST_TEST(worlds.contradicts(claim));
    BOOST_TEST(worlds.gaussian_mu() > claimed);
    if (claimed > 1) continue;  // one run's guesses are all right long before mu is that large
    const one_run run = gaussian_run(random, 3000, 2 * claimed, 0.95);
    BOOST_TEST(run.contradicts(claim));
    BOOST_TEST(run.gaussian_mu() > claimed);
  }
  // One run in a hundred tells all: delta of 1 %. Infinite scores are allowed.
  std::vector<double> with(2000, 0.0);
  for (std::size_t i = 0; i < with.size(); i += 100) with[i] = with[i + 1] = std::numeric_limits<double>::infinity();
  const two_worlds tells{with, std::vector<double>(2000, 0.0), 0.95};
  BOOST_TEST(tells.contradicts(pergrad::testing::gaussian_trade_off{0.1}));
}

BOOST_AUTO_TEST_CASE(rates_for_pictures) {
  const two_worlds worlds{{3, 1, 4, 2}, {0, 1, 2, -1}, 0.95};
  const auto points = worlds.roc();
  BOOST_TEST(points.size() == 7U);  // 4, 3, 2, 1, 0, -1 and nothing
  BOOST_TEST(points.front().true_positives == 0.0);
  BOOST_TEST(points[2].true_positives == 0.5);  // from 3 on
  BOOST_TEST(points[2].false_positives == 0.0);
  BOOST_TEST(points[3].true_positives == 0.75);
  BOOST_TEST(points[3].false_positives == 0.25);
  BOOST_TEST(points.back().true_positives == 1.0);
  BOOST_TEST(points.back().false_positives == 1.0);
}

BOOST_AUTO_TEST_CASE(scores_that_are_no_scores) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::uint8_t> coins{1, 0, 1, 0};
  BOOST_CHECK_THROW((two_worlds{{1, 2, nan, 3}, {1, 2, 3, 4}, 0.95}), std::invalid_argument);
  BOOST_CHECK_THROW((two_worlds{{1, 2, 3}, {1, 2, 3, 4}, 0.95}), std::invalid_argument);
  BOOST_CHECK_THROW((two_worlds{{1, 2, 3, 4}, {1, 2, 3, 4}, 1.0}), std::invalid_argument);
  BOOST_CHECK_THROW((one_run{{1, 2, 3}, coins, 0.95}), std::invalid_argument);
  BOOST_CHECK_THROW((one_run{{1, 2, 3, nan}, coins, 0.95}), std::invalid_argument);
  BOOST_CHECK_THROW((one_run{{}, {}, 0.95}), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
