// SPDX-License-Identifier: Apache-2.0
// tests/losses/focal_test.cpp - focal losses against their formula in long double, gamma 0, right answers, far logits
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "losses.hpp"

BOOST_AUTO_TEST_SUITE(focal_loss)

namespace {

using loss_tests::close;
using loss_tests::evaluate;
using classes = std::vector<std::int32_t>;
using numbers = std::vector<double>;
using binary = pergrad::binary_focal_with_logits<>;

}  // namespace

BOOST_AUTO_TEST_CASE(values_of_classes) {
  const numbers y{0.3, -1.25, 2.5, 0.7};
  for (const std::int32_t target : {0, 1, 2, 3}) {
    long double sum = 0;
    for (const double value : y) sum += std::exp(static_cast<long double>(value));
    const long double p = std::exp(static_cast<long double>(y[static_cast<std::size_t>(target)])) / sum;
    close(evaluate<pergrad::focal<>>(y, classes{target}).loss, -(1 - p) * (1 - p) * std::log(p), 8e-16L);
    close(evaluate<pergrad::focal<0.5>>(y, classes{target}).loss, -std::sqrt(1 - p) * std::log(p), 8e-16L);
    loss_tests::gradient_is_the_derivative<pergrad::focal<>>(y, classes{target});
    loss_tests::gradient_is_the_derivative<pergrad::focal<0.5>>(y, classes{target});
  }
}
BOOST_AUTO_TEST_CASE(gamma_0_is_cross_entropy_bit_for_bit) {
  const numbers y{0.3, -1.25, 2.5};
  const auto plain = evaluate<pergrad::cross_entropy>(y, classes{1});
  const auto focal = evaluate<pergrad::focal<0.0>>(y, classes{1});
  BOOST_TEST(plain.loss == focal.loss);
  BOOST_TEST(plain.gradient == focal.gradient, boost::test_tools::per_element());
}
BOOST_AUTO_TEST_CASE(binary_values) {
  for (const double y : {-3.0, -0.4, 0.0, 1.7}) {
    const long double p = 1 / (1 + std::exp(-static_cast<long double>(y)));
    close(evaluate<binary>(numbers{y}, numbers{1}).loss, -0.25L * (1 - p) * (1 - p) * std::log(p), 4e-16L);
    close(evaluate<binary>(numbers{y}, numbers{0}).loss, -0.75L * p * p * std::log1p(-p), 4e-16L);
    for (const double target : {0.0, 0.3, 1.0}) {
      loss_tests::gradient_is_the_derivative<binary>(numbers{y, -y}, numbers{target, 1 - target});
      using flat = pergrad::binary_focal_with_logits<0.5, 0.5>;
      loss_tests::gradient_is_the_derivative<flat>(numbers{y, -y}, numbers{target, 1 - target});
    }
  }
}
// Nothing is missing of the right answer: no loss, no slope, and no 0/0 either for gamma < 1.
BOOST_AUTO_TEST_CASE(far_logits) {
  for (const double size : {50.0, 1e4, 1e300}) {
    const auto right = evaluate<pergrad::focal<0.5>>(numbers{size, -size, 0}, classes{0});
    BOOST_TEST(right.loss < 1e-30);
    for (const double slope : right.gradient) BOOST_TEST(std::fabs(slope) < 1e-30);
    const auto wrong = evaluate<pergrad::focal<0.5>>(numbers{size, -size, 0}, classes{1});
    close(wrong.loss, 2 * static_cast<long double>(size), 1e-15L);
    close(wrong.gradient[0], 1, 1e-15L);
    using half = pergrad::binary_focal_with_logits<0.5>;
    BOOST_TEST(std::fabs(evaluate<half>(numbers{size}, numbers{1}).gradient[0]) < 1e-30);
    close(evaluate<half>(numbers{size}, numbers{0}).gradient[0], 0.75L, 1e-15L);
    close(evaluate<half>(numbers{-size}, numbers{1}).gradient[0], -0.25L, 1e-15L);
  }
  const auto never = evaluate<pergrad::focal<>>(numbers{0, -std::numeric_limits<double>::infinity()}, classes{1});
  BOOST_TEST(never.loss == std::numeric_limits<double>::infinity());
  BOOST_TEST(never.gradient == (numbers{1, -1}), boost::test_tools::per_element());
}
BOOST_AUTO_TEST_CASE(not_a_number_shows) {
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  BOOST_TEST(std::isnan(evaluate<pergrad::focal<>>(numbers{not_a_number, 1}, classes{1}).gradient[0]));
  BOOST_TEST(std::isnan(evaluate<binary>(numbers{not_a_number}, numbers{1}).gradient[0]));
}
BOOST_AUTO_TEST_CASE(in_a_batch) {
  loss_tests::one_number_a_sample<pergrad::focal<>, 3>(numbers{1, -2, 3, 0.5, 0.25, -1}, classes{2, 0});
  loss_tests::one_number_a_sample<binary, 2>(numbers{1, -2, 3, 0.5}, numbers{1, 0, 0.5, 0});
}

BOOST_AUTO_TEST_SUITE_END()
