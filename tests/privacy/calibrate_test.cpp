// SPDX-License-Identifier: Apache-2.0
// tests/privacy/calibrate_test.cpp - calibrated noise and step counts are safe, tight and equal to known values.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <stdexcept>

#include <pergrad/privacy/accounting/calibrate.hpp>
#include <pergrad/privacy/samplers/cyclic_poisson.hpp>

#include "processor_time.hpp"

BOOST_AUTO_TEST_SUITE(privacy_calibrate)

namespace {

using pergrad::delta;
using pergrad::epsilon;
using pergrad::noise_multiplier;
using pergrad::rdp_accountant;
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

// A number of steps that was computed as a difference below zero; the searches would not end.
BOOST_AUTO_TEST_CASE(numbers_of_steps_that_no_run_has_are_errors) {
  const auto refused = [](const auto& calibrate) {
    for (const std::uint64_t steps : {std::uint64_t{1} << 62U, std::uint64_t{0} - 1}) {
      BOOST_CHECK_THROW(static_cast<void>(calibrate(steps)), std::invalid_argument);
    }
  };
  const sampling_probability q{.1};
  refused([&](std::uint64_t steps) { return pergrad::calibrate_noise(epsilon{1}, delta{1e-5}, q, steps); });
  refused([&](std::uint64_t steps) {
    return pergrad::calibrate_noise(epsilon{1}, delta{1e-5}, pergrad::poisson_sampling{q}, steps);
  });
  refused([&](std::uint64_t steps) { return pergrad::calibrate_noise(pergrad::attack_advantage{.1}, q, steps); });
  refused([&](std::uint64_t steps) {
    return pergrad::calibrate_sampling(pergrad::attack_advantage{.1}, noise_multiplier{1}, steps);
  });
  BOOST_TEST(pergrad::calibrate_noise(epsilon{1}, delta{1e-5}, q, (std::uint64_t{1} << 62U) - 1).value() > 1e8);
}

BOOST_AUTO_TEST_CASE(steps_end_exactly_where_the_budget_does) {
  BOOST_CHECK_THROW(
      static_cast<void>(pergrad::max_steps(
          epsilon{10}, delta{1e-5},
          pergrad::cyclic_poisson_sampling{sampling_probability{1}, pergrad::round_steps{std::uint64_t{1} << 31U}},
          noise_multiplier{1e8})),
      std::invalid_argument);
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

namespace {

/// Calibrates runs of up to so many steps: on the safe side, and in the long tier each in 3 s of the processor.
void check_random_runs(std::uint64_t seed, int runs, bool timed, double least_q, double fewest, double most) {
  std::mt19937_64 bits{seed};
  const auto random = [&](double from, double to) {
    return from * std::pow(to / from, static_cast<double>(bits() >> 11U) * 0x1p-53);
  };
  for (int i = 0; i < runs; ++i) {
    const sampling_probability q{random(least_q, 1)};
    const epsilon target{random(.1, 10)};
    const delta at{random(1e-12, 1e-4)};
    const auto steps = static_cast<std::uint64_t>(random(fewest, most));
    const auto check = [&](auto&& call) {
      const double took = processor_seconds(timed ? 3.0 : 1e300, call);
      if (times_count && timed) BOOST_TEST(took <= 3.0, q.value() << " " << steps << ": " << took << " s");
    };
    const auto spent = [&](double sampled, double noise) {
      rdp_accountant ledger;
      ledger.record({sampled, noise}, steps);
      return pergrad::detail::proven_epsilon(ledger, {}, at).upper;
    };
    noise_multiplier noise{0};
    check([&] { noise = pergrad::calibrate_noise(target, at, q, steps); });
    std::uint64_t found = 0;
    check([&] { found = pergrad::max_steps(target, at, q, noise); });
    BOOST_TEST(found >= steps);
    BOOST_TEST(spent(q.value(), noise.value()) <= target.value() * (1 + 1e-12));
    double sampled = 0;
    check([&] {
      const pergrad::privacy_budget budget{target, at};
      sampled = pergrad::calibrate_sampling(budget, noise_multiplier{1.01 * noise.value()}, steps).value();
    });
    BOOST_TEST(sampled >= q.value() * (1 - 2e-3));  // bounds are within 1e-3
    BOOST_TEST(spent(sampled, 1.01 * noise.value()) <= target.value() * (1 + 1e-12));
  }
}
bool is_long_tier() {
  const char* const tier = std::getenv("PERGRAD_LONG_TESTS");
  return tier != nullptr && *tier != 0;
}

}  // namespace

BOOST_AUTO_TEST_CASE(random_calibrations_keep_to_their_target_and_their_time) {
  check_random_runs(43, is_long_tier() ? 40 : 3, is_long_tier(), 1e-9, 1, 1e6);
}
BOOST_AUTO_TEST_CASE(random_calibrations_of_long_runs_keep_to_their_target_and_their_time) {
  check_random_runs(44, is_long_tier() ? 30 : 2, is_long_tier(), 1e-5, 1e6, 1e9);
}

// The numbers that a search tries above a million, and the one below each.
BOOST_AUTO_TEST_CASE(tried_steps_have_neighbours) {
  for (const std::uint64_t n : {1ULL, 2ULL, 1048575ULL, 1048576ULL, 1048577ULL, 17971200ULL, 1ULL << 40U}) {
    const std::uint64_t tried = pergrad::detail::tried_steps(n);
    BOOST_TEST(tried >= n);
    BOOST_TEST(pergrad::detail::tried_steps(tried) == tried);
    const std::uint64_t below = pergrad::detail::tried_below(tried);
    BOOST_TEST(below < tried);
    BOOST_TEST(pergrad::detail::tried_steps(below + 1) == tried);
  }
}

// An epsilon may rise as the 100th power of the steps, or jump: the search must not crawl along the curve.
BOOST_AUTO_TEST_CASE(the_last_safe_step_is_found_in_few_questions) {
  int most = 0;
  for (const std::uint64_t end : {1U, 2U, 7U, 100U, 7449U, 10'000U, 999'999U}) {
    for (const double power : {0.01, 0.3, 0.5, 1.0, 3.0, 30.0, 300.0, 0.0}) {
      for (const double bend : {0.0, 0.9}) {
        int asked = 0;
        const auto excess = [&](std::uint64_t steps) {
          ++asked;
          const double ratio = std::log(static_cast<double>(steps) / (static_cast<double>(end) + 0.5));
          if (power == 0) return steps <= end ? -1.0 : 1.0;
          return power * ratio * (1 + (ratio > 0 ? bend * std::min(3.0, ratio) : -bend * std::max(-1.0, ratio)));
        };
        BOOST_TEST(pergrad::detail::largest_safe(excess, 0) == end, end << " " << power << " " << bend);
        most = std::max(most, asked);
      }
    }
  }
  BOOST_TEST(most <= 80);  // four questions halve the bracket
}

BOOST_AUTO_TEST_SUITE_END()
