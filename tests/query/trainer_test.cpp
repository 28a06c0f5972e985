// SPDX-License-Identifier: Apache-2.0
// tests/query/trainer_test.cpp - a query's release in the middle of a training: one ledger, one key, one budget
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <stdexcept>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/query.hpp>

#include "train/fixture.hpp"

BOOST_AUTO_TEST_SUITE(query_trainer)

BOOST_AUTO_TEST_CASE(a_release_is_entered_in_a_trainers_ledger) {
  namespace pg = pergrad;
  constexpr pg::field<"age"> age;
  const fixture::clouds data{40};
  std::vector<double> ages(data.size(), 40.0);
  ages.front() = std::nan("");
  const pg::host exec{pg::threads{1}};
  fixture::classifier net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, fixture::usual_options(), pg::seeded_generator{3}};
  trainer.step(data.records());
  const pg::box in{age.in(0, 100)};
  const auto found = pg::release(trainer, pg::noise_multiplier{20}, age / 100, in, pg::records{age = ages});
  BOOST_TEST(std::fabs(found.value() - 0.4 * 39) < 6 * found.deviation());
  BOOST_TEST(found.deviation() >= 20);
  pg::privacy_accountant wanted;
  wanted.record({0.2, 1.1}, 1);
  wanted.record({1, 20}, 1);
  BOOST_TEST(wanted.epsilon(pg::delta{1e-5}) == trainer.epsilon(pg::delta{1e-5}));
  BOOST_CHECK_THROW(
      static_cast<void>(pg::release(trainer, pg::noise_multiplier{20}, 1 / age, in, pg::records{age = ages})),
      std::invalid_argument);
  BOOST_TEST(wanted.epsilon(pg::delta{1e-5}) == trainer.epsilon(pg::delta{1e-5}));
}

BOOST_AUTO_TEST_SUITE_END()
