// SPDX-License-Identifier: Apache-2.0
// tests/privacy/budget_test.cpp - the guard allows every step that was calibrated for and refuses the next.
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <pergrad/privacy/budget.hpp>
#include <pergrad/privacy/calibrate.hpp>

BOOST_AUTO_TEST_SUITE(privacy_budget)

namespace {

using pergrad::delta;
using pergrad::epsilon;

}  // namespace

static_assert(std::is_base_of_v<std::runtime_error, pergrad::budget_exhausted>);

BOOST_AUTO_TEST_CASE(a_calibrated_run_gets_all_its_steps_and_not_one_more) {
  for (const std::uint64_t steps : {std::uint64_t{1}, std::uint64_t{37}, std::uint64_t{400}}) {
    const pergrad::sampling_probability q{.03};
    const auto noise = pergrad::calibrate_noise(epsilon{2}, delta{1e-5}, q, steps);
    const auto event = pergrad::poisson_sampling{q}.event(noise);
    pergrad::privacy_accountant accountant{pergrad::privacy_budget{epsilon{2}, delta{1e-5}}};
    accountant.prepare(event);
    for (std::uint64_t step = 0; step < steps; ++step) {
      BOOST_REQUIRE(accountant.within(event));
      accountant.spend(event);
    }
    BOOST_TEST(!accountant.within(event));
    const double before = accountant.epsilon(delta{1e-5});
    BOOST_TEST(before <= 2);
    BOOST_CHECK_EXCEPTION(accountant.spend(event), pergrad::budget_exhausted, [&](const std::exception& error) {
      const std::string text = error.what();
      return text.starts_with("pergrad: privacy budget exhausted: step " + std::to_string(steps + 1) + " ");
    });
    BOOST_TEST(accountant.steps() == steps);
    BOOST_TEST(accountant.epsilon(delta{1e-5}) == before);
  }
}

BOOST_AUTO_TEST_CASE(without_a_budget_everything_is_counted_and_nothing_refused) {
  pergrad::privacy_accountant accountant;
  for (int step = 0; step < 10; ++step) accountant.spend({.5, 0});
  BOOST_TEST(accountant.steps() == 10U);
  BOOST_TEST(!accountant.budget().has_value());
  BOOST_TEST(accountant.within({1, 0}));
}

BOOST_AUTO_TEST_CASE(a_step_without_noise_fits_no_finite_budget) {
  pergrad::privacy_accountant accountant{pergrad::privacy_budget{epsilon{1e9}, delta{1e-5}}};
  BOOST_TEST(!accountant.within({.01, 0}));
  BOOST_CHECK_THROW(accountant.spend({.01, 0}), pergrad::budget_exhausted);
  BOOST_TEST(accountant.steps() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
