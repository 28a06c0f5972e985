// SPDX-License-Identifier: Apache-2.0
// tests/losses/cross_entropy_test.cpp - softmax cross entropy against its formula in long double, extreme logits
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "losses.hpp"

BOOST_AUTO_TEST_SUITE(cross_entropy_loss)

namespace {

using loss_tests::close;
using loss_tests::evaluate;
using pergrad::cross_entropy;
using pergrad::shape;
using classes = std::vector<std::int32_t>;
using numbers = std::vector<double>;

template <class Scalar>
void agrees_with_the_formula(const std::vector<Scalar>& y, std::int32_t target, long double tolerance) {
  long double sum = 0;
  for (const Scalar value : y) sum += std::exp(static_cast<long double>(value));
  const auto computed = evaluate<cross_entropy>(y, classes{target});
  close(computed.loss, std::log(sum) - static_cast<long double>(y[static_cast<std::size_t>(target)]), tolerance);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const long double share = std::exp(static_cast<long double>(y[i])) / sum;
    close(static_cast<double>(computed.gradient[i]), share - (static_cast<std::int32_t>(i) == target ? 1 : 0),
          tolerance);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_and_gradients) {
  for (const std::int32_t target : {0, 1, 2, 3}) {
    agrees_with_the_formula(numbers{0.3, -1.25, 2.5, 0.7}, target, 4e-16L);
    agrees_with_the_formula(numbers{30, -30, 29.5, 12}, target, 4e-16L);
    agrees_with_the_formula(numbers{1e-9, -1e-9, 0, -0.0}, target, 4e-16L);
    agrees_with_the_formula(std::vector<float>{0.3F, -1.25F, 2.5F, 0.75F}, target, 4e-7L);
  }
}
BOOST_AUTO_TEST_CASE(gradients_are_derivatives) {
  loss_tests::gradient_is_the_derivative<cross_entropy>(numbers{0.3, -1.25, 2.5, 0.7}, classes{1});
  loss_tests::gradient_is_the_derivative<cross_entropy>(numbers{4, 4, -4}, classes{2});
}
BOOST_AUTO_TEST_CASE(gradient_sums_to_zero) {
  const auto computed = evaluate<cross_entropy>(numbers{1, 2, 3, 4, 5}, classes{4});
  double sum = 0;
  for (const double value : computed.gradient) sum += value;
  BOOST_TEST(std::fabs(sum) <= 4e-16);
}
BOOST_AUTO_TEST_CASE(extreme_logits) {
  for (const double size : {1e4, 1e30, 1e300}) {
    const auto right = evaluate<cross_entropy>(numbers{size, -size, 0}, classes{0});
    BOOST_TEST(right.loss == 0);
    BOOST_TEST(right.gradient == (numbers{0, 0, 0}), boost::test_tools::per_element());
    const auto wrong = evaluate<cross_entropy>(numbers{size, -size, 0}, classes{1});
    BOOST_TEST(wrong.loss == 2 * size);
    BOOST_TEST(wrong.gradient == (numbers{1, -1, 0}), boost::test_tools::per_element());
  }
  const auto single = evaluate<cross_entropy>(std::vector<float>{1e30F, -1e30F}, classes{1});
  BOOST_TEST(std::isfinite(single.loss));
  BOOST_TEST(single.gradient == (std::vector<float>{1, -1}), boost::test_tools::per_element());
  // Further apart than a float can say.
  BOOST_TEST(evaluate<cross_entropy>(std::vector<float>{3e38F, -3e38F}, classes{1}).loss ==
             2 * static_cast<double>(3e38F));
}
BOOST_AUTO_TEST_CASE(equal_logits) {
  for (const double value : {0.0, 1e4, -1e30}) {
    const auto computed = evaluate<cross_entropy>(numbers{value, value, value, value}, classes{2});
    close(computed.loss, std::log(4.0L), 4e-16L);
    BOOST_TEST(computed.gradient == (numbers{0.25, 0.25, -0.75, 0.25}), boost::test_tools::per_element());
  }
}
BOOST_AUTO_TEST_CASE(one_class) {
  const auto computed = evaluate<cross_entropy>(numbers{-7}, classes{0});
  BOOST_TEST(computed.loss == 0);
  BOOST_TEST(computed.gradient[0] == 0);
}
BOOST_AUTO_TEST_CASE(not_a_number_shows) {
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  for (const numbers& y : {numbers{not_a_number, 1}, numbers{1, not_a_number}, numbers{not_a_number, not_a_number}}) {
    const auto computed = evaluate<cross_entropy>(y, classes{0});
    BOOST_TEST((std::isnan(computed.gradient[0]) && std::isnan(computed.gradient[1])));
  }
}
BOOST_AUTO_TEST_CASE(wrong_targets_are_refused) {
  const std::string text = loss_tests::refusal<cross_entropy, 3>(classes{0, 1, 3, 2}, 4);
  BOOST_TEST(text == "pergrad: batch: record 2 has the target 3 that this loss does not take: it takes 0 to 2");
  BOOST_TEST((loss_tests::refusal<cross_entropy, 3>(classes{-1}, 1)).find("the target -1") != std::string::npos);
  BOOST_TEST(
      (loss_tests::refusal<cross_entropy, 3>(classes{std::numeric_limits<std::int32_t>::min()}, 1)).find("pergrad: ") ==
      0U);
  BOOST_TEST((loss_tests::refusal<cross_entropy, 3>(classes{0, 1, 2}, 2)).find("pergrad: dataset: ") == 0U);
}

// The formula of the head of cross_entropy.hpp, as PyTorch states it: against the smoothed distribution.
BOOST_AUTO_TEST_CASE(label_smoothing) {
  using smoothed = pergrad::cross_entropy_with_label_smoothing<0.3>;
  const numbers y{0.3, -1.25, 2.5, 0.7};
  for (const std::int32_t target : {0, 1, 2, 3}) {
    long double sum = 0;
    for (const double value : y) sum += std::exp(static_cast<long double>(value));
    const auto computed = evaluate<smoothed>(y, classes{target});
    long double loss = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const long double share = 0.3L / 4 + (static_cast<std::int32_t>(i) == target ? 0.7L : 0);
      const long double log_p = static_cast<long double>(y[i]) - std::log(sum);
      loss -= share * log_p;
      close(computed.gradient[i], std::exp(log_p) - share, 8e-16L);
    }
    close(computed.loss, loss, 8e-16L);
    loss_tests::gradient_is_the_derivative<smoothed>(y, classes{target});
  }
}
BOOST_AUTO_TEST_CASE(no_smoothing_is_cross_entropy_bit_for_bit) {
  const auto plain = evaluate<cross_entropy>(numbers{0.3, -1.25, 2.5}, classes{1});
  const auto smoothed =
      evaluate<pergrad::cross_entropy_with_label_smoothing<0.0>>(numbers{0.3, -1.25, 2.5}, classes{1});
  BOOST_TEST(plain.loss == smoothed.loss);
  BOOST_TEST(plain.gradient == smoothed.gradient, boost::test_tools::per_element());
  const numbers without_one_class{0.3, -std::numeric_limits<double>::infinity(), 2.5};
  BOOST_TEST(evaluate<pergrad::cross_entropy_with_label_smoothing<0.0>>(without_one_class, classes{0}).loss ==
             evaluate<cross_entropy>(without_one_class, classes{0}).loss);
}
BOOST_AUTO_TEST_CASE(label_smoothing_in_a_batch) {
  using smoothed = pergrad::cross_entropy_with_label_smoothing<0.1>;
  loss_tests::one_number_a_sample<smoothed, 3>(numbers{1, -2, 3, 0.5, 0.25, -1}, classes{2, 0});
  BOOST_TEST((loss_tests::refusal<smoothed, 3>(classes{0, 3}, 2)).find("target 3") != std::string::npos);
}
BOOST_AUTO_TEST_CASE(takes_rows_of_classes_only) {
  BOOST_TEST(cross_entropy::accepts(shape{10}));
  BOOST_TEST(!cross_entropy::accepts(shape{2, 10}));
  BOOST_TEST(!cross_entropy::accepts(shape{1, 2, 10}));
  BOOST_TEST(cross_entropy::target_count(shape{10}) == 1U);
}
BOOST_AUTO_TEST_CASE(one_scalar_for_every_sample) {
  static_assert(pergrad::loss<cross_entropy>);
  loss_tests::one_number_a_sample<cross_entropy, 3>(numbers{1, 2, 3, -4, 5, 6, 0, 0, 9, 1e4, -1e4, 2},
                                                    classes{0, 1, 2, 1});
}

BOOST_AUTO_TEST_SUITE_END()
