// SPDX-License-Identifier: Apache-2.0
// tests/privacy/calibrate_test.cpp - calibrated noise and step counts are safe, tight and equal to known values.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include <pergrad/privacy/accounting/calibrate.hpp>

BOOST_AUTO_TEST_SUITE(privacy_calibrate)

namespace {

using pergrad::delta;
using pergrad::epsilon;
using pergrad::noise_multiplier;
using pergrad::sampling_probability;

}  // namespace

BOOST_AUTO_TEST_CASE(noise_is_the_known_one_and_on_the_safe_side) {
  struct row {
    double epsilon;
    double delta;
    double q;
    std::uint64_t steps;
    double noise;  // google/differential-privacy b5b0286, PLDAccountant with discretisation 1e-4
  };
  const std::array<row, 6> rows{{
      {1, 1e-5, .01, 1000, 1.414632},
      {8, 1e-5, .08192, 2468, 2.560749},
      {3, 1e-5, 256.0 / 60000, 14062, 0.968421},
      {2, 1e-6, .1, 100, 2.497711},
      {.5, 1e-6, .001, 10000, 1.060622},
      {8, 1e-5, .04, 2000, 1.289970},
  }};
  for (const row& each : rows) {
    const double got =
        pergrad::calibrate_noise(epsilon{each.epsilon}, delta{each.delta}, sampling_probability{each.q}, each.steps)
            .value();
    // epsilon is within 1e-3 of the truth on either side, and noise then is
    BOOST_TEST(std::abs(got / each.noise - 1) < 1e-3, got << " for " << each.noise);
    const auto spent = [&](double noise) {
      pergrad::pld_accountant accountant;
      accountant.record({each.q, noise}, each.steps);
      return accountant.epsilon(delta{each.delta});
    };
    BOOST_TEST(spent(got) <= each.epsilon);
    BOOST_TEST(spent(got * (1 - 2e-5)) > each.epsilon);
    BOOST_TEST(pergrad::max_steps(epsilon{each.epsilon}, delta{each.delta}, sampling_probability{each.q},
                                  noise_multiplier{got}) == each.steps);
  }
}

BOOST_AUTO_TEST_CASE(very_small_and_very_large_targets) {
  for (const double target : {1e-4, .01, 50.0, 1000.0}) {
    const double got = pergrad::calibrate_noise(epsilon{target}, delta{1e-5}, sampling_probability{.05}, 500).value();
    pergrad::pld_accountant accountant;
    accountant.record({.05, got}, 500);
    BOOST_TEST(accountant.epsilon(delta{1e-5}) <= target);
    pergrad::pld_accountant less;
    less.record({.05, got * (1 - 2e-5)}, 500);
    BOOST_TEST(less.epsilon(delta{1e-5}) > target);
  }
}

BOOST_AUTO_TEST_CASE(nothing_released_needs_no_noise) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  BOOST_TEST(pergrad::calibrate_noise(epsilon{1}, delta{1e-5}, sampling_probability{0}, 10).value() == 0);
  BOOST_TEST(pergrad::calibrate_noise(epsilon{1}, delta{1e-5}, sampling_probability{.1}, 0).value() == 0);
  BOOST_TEST(pergrad::calibrate_noise(epsilon{infinity}, delta{1e-5}, sampling_probability{.1}, 10).value() == 0);
}

BOOST_AUTO_TEST_CASE(unreachable_targets_are_errors) {
  BOOST_CHECK_THROW(
      static_cast<void>(pergrad::calibrate_noise(epsilon{0}, delta{1e-12}, sampling_probability{1}, 1'000'000)),
      std::invalid_argument);
  BOOST_CHECK_THROW(
      static_cast<void>(pergrad::max_steps(epsilon{1}, delta{1e-5}, sampling_probability{0}, noise_multiplier{1})),
      std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(steps_end_exactly_where_the_budget_does) {
  BOOST_TEST(pergrad::max_steps(epsilon{.5}, delta{1e-5}, sampling_probability{1}, noise_multiplier{.5}) == 0U);
  BOOST_TEST(pergrad::max_steps(epsilon{5}, delta{1e-5}, sampling_probability{.1}, noise_multiplier{0}) == 0U);
  const std::uint64_t steps =
      pergrad::max_steps(epsilon{3}, delta{1e-5}, sampling_probability{.02}, noise_multiplier{1});
  pergrad::pld_accountant accountant;
  accountant.record({.02, 1}, steps);
  BOOST_TEST(accountant.epsilon(delta{1e-5}) <= 3);
  accountant.record({.02, 1});
  BOOST_TEST(accountant.epsilon(delta{1e-5}) > 3);
}

BOOST_AUTO_TEST_SUITE_END()
