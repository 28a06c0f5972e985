// SPDX-License-Identifier: Apache-2.0
// tests/losses/mean_squared_error_test.cpp - the mean of squared differences, its gradient, and where it overflows
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "losses.hpp"

BOOST_AUTO_TEST_SUITE(mean_squared_error_loss)

namespace {

using loss_tests::close;
using loss_tests::evaluate;
using pergrad::mean_squared_error;
using pergrad::shape;
using numbers = std::vector<double>;

template <class Scalar>
void agrees_with_the_formula(const std::vector<Scalar>& y, const std::vector<Scalar>& targets, long double tolerance) {
  const auto computed = evaluate<mean_squared_error>(y, targets);
  const auto count = static_cast<long double>(y.size());
  long double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const long double difference = static_cast<long double>(y[i]) - static_cast<long double>(targets[i]);
    sum += difference * difference;
    close(static_cast<double>(computed.gradient[i]), 2 * difference / count, tolerance);
  }
  close(computed.loss, sum / count, tolerance);
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_and_gradients) {
  agrees_with_the_formula(numbers{0.3, -1.25, 2.5}, numbers{1, 0, -7}, 4e-16L);
  agrees_with_the_formula(numbers{5}, numbers{5}, 0);
  agrees_with_the_formula(numbers{1e4, -1e4, 3}, numbers{-1e4, 1e4, 3}, 4e-16L);
  agrees_with_the_formula(numbers{1e30, -1e30}, numbers{0, 1e30}, 4e-16L);
  agrees_with_the_formula(std::vector<float>{0.3F, -1.25F}, std::vector<float>{1, 0}, 1e-7L);
}
BOOST_AUTO_TEST_CASE(gradients_are_derivatives) {
  loss_tests::gradient_is_the_derivative<mean_squared_error>(numbers{0.3, -1.25, 2.5}, numbers{1, 0, -7});
}
BOOST_AUTO_TEST_CASE(large_floats_do_not_overflow_the_loss) {
  const auto computed = evaluate<mean_squared_error>(std::vector<float>{1e30F}, std::vector<float>{-1e30F});
  close(computed.loss, 4e60L, 1e-6L);
  BOOST_TEST(std::isfinite(computed.gradient[0]));
}
BOOST_AUTO_TEST_CASE(overflow_and_not_a_number_show) {
  BOOST_TEST(std::isinf(evaluate<mean_squared_error>(numbers{1e300}, numbers{-1e300}).loss));
  const auto computed =
      evaluate<mean_squared_error>(numbers{std::numeric_limits<double>::quiet_NaN(), 1}, numbers{0, 0});
  BOOST_TEST(std::isnan(computed.loss));
  BOOST_TEST(std::isnan(computed.gradient[0]));
  BOOST_TEST(computed.gradient[1] == 1);
}
BOOST_AUTO_TEST_CASE(wrong_numbers_of_targets_are_refused) {
  BOOST_TEST((loss_tests::refusal<mean_squared_error, 2>(numbers{1, 2, 3}, 2)).find("pergrad: dataset: ") == 0U);
}
BOOST_AUTO_TEST_CASE(takes_any_shape) {
  BOOST_TEST(mean_squared_error::accepts(shape{10}));
  BOOST_TEST(mean_squared_error::accepts(shape{3, 4, 5}));
  BOOST_TEST(mean_squared_error::target_count(shape{3, 4, 5}) == 60U);
}
BOOST_AUTO_TEST_CASE(one_scalar_for_every_sample) {
  static_assert(pergrad::loss<mean_squared_error>);
  loss_tests::one_number_a_sample<mean_squared_error, 2>(numbers{1, 2, 3, -4, 5, 6}, numbers{0, 1, 0, 0, 9, 7});
}

BOOST_AUTO_TEST_SUITE_END()
