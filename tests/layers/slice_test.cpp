// SPDX-License-Identifier: Apache-2.0
// tests/layers/slice_test.cpp - slice and take_positions keep every law and take what they say
#include <boost/test/unit_test.hpp>

#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(slice_layers)

namespace {

using layer_tests::expect_no_violation;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::respond;
using pergrad::basic_network;
using pergrad::linear;
using pergrad::shape;
using pergrad::slice;
using pergrad::take_positions;
using pergrad::variable;

}  // namespace

BOOST_AUTO_TEST_CASE(of_features) { keeps_the_laws_in_double<slice<1, 3>, shape{5}>(); }
BOOST_AUTO_TEST_CASE(of_positions) { keeps_the_laws_in_double<take_positions<1, 2>, shape{4, 3}>(); }
BOOST_AUTO_TEST_CASE(first_positions_of_samples_with_lengths) {
  using network =
      basic_network<double, variable(shape{5, 2}), linear<3>, take_positions<0, 3>, pergrad::mean_over_positions>;
  static_assert(network::structure::shapes[2] == variable(shape{3, 3}));
  expect_no_violation(pergrad::testing::check_network<network>());
}
BOOST_AUTO_TEST_CASE(takes_features) {
  const auto seen = respond<slice<1, 2>, shape{4}>({1, 2, 3, 4}, {7, 8});
  BOOST_TEST(seen.output == (std::vector<double>{2, 3}), boost::test_tools::per_element());
  BOOST_TEST(seen.input_gradient == (std::vector<double>{0, 7, 8, 0}), boost::test_tools::per_element());
}
BOOST_AUTO_TEST_CASE(takes_positions) {
  const auto seen = respond<take_positions<1, 1>, shape{3, 2}>({1, 2, 3, 4, 5, 6}, {7, 8});
  BOOST_TEST(seen.output == (std::vector<double>{3, 4}), boost::test_tools::per_element());
  BOOST_TEST(seen.input_gradient == (std::vector<double>{0, 0, 7, 8, 0, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
