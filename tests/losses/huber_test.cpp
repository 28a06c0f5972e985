// SPDX-License-Identifier: Apache-2.0
// tests/losses/huber_test.cpp - Huber's loss against its formula, outliers, NaN
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "losses.hpp"

BOOST_AUTO_TEST_SUITE(huber_loss)

namespace {

using loss_tests::close;
using loss_tests::evaluate;
using numbers = std::vector<double>;

}  // namespace

BOOST_AUTO_TEST_CASE(values_and_gradients) {
  // Errors 0.25, -0.5 (at the border), 3, -2: quadratic twice, linear twice.
  const auto computed = evaluate<pergrad::huber<0.5>>(numbers{1.25, 0, 4, -1}, numbers{1, 0.5, 1, 1});
  close(computed.loss, (0.03125L + 0.125L + 0.5L * 2.75L + 0.5L * 1.75L) / 4, 4e-16L);
  BOOST_TEST(computed.gradient == (numbers{0.0625, -0.125, 0.125, -0.125}), boost::test_tools::per_element());
  const auto single = evaluate<pergrad::huber<>>(std::vector<float>{3}, std::vector<float>{1});
  BOOST_TEST(single.loss == 1.5);
  BOOST_TEST(single.gradient[0] == 1.0F);
}
BOOST_AUTO_TEST_CASE(gradients_are_derivatives) {
  loss_tests::gradient_is_the_derivative<pergrad::huber<0.7>>(numbers{0.1, -3, 2, 0.5}, numbers{0, 0, 0, 0.6});
}
// Below its border it is half the squared error.
BOOST_AUTO_TEST_CASE(near_the_target_it_is_half_the_squared_error) {
  const numbers y{0.3, -0.2, 0.9}, t{0.1, 0.4, 0.2};
  BOOST_TEST(std::fabs(2 * evaluate<pergrad::huber<>>(y, t).loss - evaluate<pergrad::mean_squared_error>(y, t).loss) <
             1e-16);
}
BOOST_AUTO_TEST_CASE(outliers_do_not_overflow) {
  const auto computed = evaluate<pergrad::huber<>>(std::vector<float>{3e38F}, std::vector<float>{-3e38F});
  BOOST_TEST(std::isfinite(computed.loss));
  BOOST_TEST(computed.gradient[0] == 1.0F);
}
BOOST_AUTO_TEST_CASE(not_a_number_shows) {
  const auto computed = evaluate<pergrad::huber<>>(numbers{std::numeric_limits<double>::quiet_NaN()}, numbers{0});
  BOOST_TEST(std::isnan(computed.loss));
  BOOST_TEST(std::isnan(computed.gradient[0]));
}
BOOST_AUTO_TEST_CASE(in_a_batch) {
  loss_tests::one_number_a_sample<pergrad::huber<>, 2>(numbers{1, -2, 3, 0.5}, numbers{2, 0, 0, 0});
}

BOOST_AUTO_TEST_SUITE_END()
