// SPDX-License-Identifier: Apache-2.0
// tests/losses/binary_cross_entropy_test.cpp - against the formula in long double, soft targets, extreme logits
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "losses.hpp"

BOOST_AUTO_TEST_SUITE(binary_cross_entropy_loss)

namespace {

using loss_type = pergrad::binary_cross_entropy_with_logits;
using loss_tests::close;
using loss_tests::evaluate;
using pergrad::shape;
using numbers = std::vector<double>;

template <class Scalar>
void agrees_with_the_formula(const std::vector<Scalar>& y, const std::vector<Scalar>& targets, long double tolerance) {
  const auto computed = evaluate<loss_type>(y, targets);
  const auto count = static_cast<long double>(y.size());
  long double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto logit = static_cast<long double>(y[i]);
    const auto target = static_cast<long double>(targets[i]);
    sum += target * std::log1p(std::exp(-logit)) + (1 - target) * std::log1p(std::exp(logit));
    close(static_cast<double>(computed.gradient[i]), (1 / (1 + std::exp(-logit)) - target) / count, tolerance);
  }
  close(computed.loss, sum / count, tolerance);
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_and_gradients) {
  agrees_with_the_formula(numbers{0.3, -1.25, 2.5, 0, -0.0}, numbers{1, 0, 0.25, 1, 0}, 4e-16L);
  agrees_with_the_formula(numbers{40, -40}, numbers{0, 1}, 4e-16L);
  agrees_with_the_formula(numbers{1e-12}, numbers{0.5}, 4e-16L);
  agrees_with_the_formula(std::vector<float>{0.3F, -1.25F}, std::vector<float>{1, 0.5F}, 1e-7L);
}
BOOST_AUTO_TEST_CASE(gradients_are_derivatives) {
  loss_tests::gradient_is_the_derivative<loss_type>(numbers{0.3, -1.25, 2.5, 5}, numbers{1, 0, 0.25, 0});
}
BOOST_AUTO_TEST_CASE(extreme_logits) {
  for (const double size : {1e4, 1e30, 1e300}) {
    const auto right = evaluate<loss_type>(numbers{size, -size}, numbers{1, 0});
    BOOST_TEST(right.loss == 0);
    BOOST_TEST(right.gradient == (numbers{0, 0}), boost::test_tools::per_element());
    const auto wrong = evaluate<loss_type>(numbers{size, -size}, numbers{0, 1});
    BOOST_TEST(wrong.loss == size);
    BOOST_TEST(wrong.gradient == (numbers{0.5, -0.5}), boost::test_tools::per_element());
  }
  const auto single = evaluate<loss_type>(std::vector<float>{1e30F}, std::vector<float>{0});
  BOOST_TEST(single.loss == static_cast<double>(1e30F));
  BOOST_TEST(single.gradient[0] == 1.0F);
}
BOOST_AUTO_TEST_CASE(not_a_number_shows) {
  const auto computed = evaluate<loss_type>(numbers{std::numeric_limits<double>::quiet_NaN()}, numbers{1});
  BOOST_TEST(std::isnan(computed.gradient[0]));
}
BOOST_AUTO_TEST_CASE(wrong_targets_are_refused) {
  BOOST_TEST(
      (loss_tests::refusal<loss_type, 1>(numbers{0, 1, 1.5}, 3)).find("pergrad: batch: record 2 has the target 1.5") ==
      0U);
  BOOST_TEST((loss_tests::refusal<loss_type, 2>(numbers{0, 1, -0.5, 1}, 2))
                 .find("pergrad: batch: record 1 has the target -0.5") == 0U);
  // The digits that are wrong are said.
  BOOST_TEST((loss_tests::refusal<loss_type, 1>(numbers{1.0000001}, 1)).find("the target 1.0000001 that") !=
             std::string::npos);
  BOOST_TEST((loss_tests::refusal<loss_type, 1>(numbers{-1e-9}, 1)).find("the target -1e-09 that") !=
             std::string::npos);
  BOOST_TEST((loss_tests::refusal<loss_type, 1>(numbers{std::nextafter(1.0, 2.0)}, 1))
                 .find("the target 1.0000000000000002 that") != std::string::npos);
  BOOST_TEST((loss_tests::refusal<loss_type, 1>(numbers{std::numeric_limits<double>::quiet_NaN()}, 1))
                 .find("pergrad: batch: ") == 0U);
  BOOST_TEST((loss_tests::refusal<loss_type, 1>(numbers{std::numeric_limits<double>::infinity()}, 1))
                 .find("pergrad: batch: ") == 0U);
}
BOOST_AUTO_TEST_CASE(takes_any_shape) {
  BOOST_TEST(loss_type::accepts(shape{10}));
  BOOST_TEST(loss_type::target_count(shape{2, 5}) == 10U);
}
BOOST_AUTO_TEST_CASE(one_scalar_for_every_sample) {
  static_assert(pergrad::loss<loss_type>);
  loss_tests::one_number_a_sample<loss_type, 2>(numbers{1, 2, 3, -4, 5, 6}, numbers{0, 1, 0.5, 0, 1, 1});
}

BOOST_AUTO_TEST_SUITE_END()
