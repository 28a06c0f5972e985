// SPDX-License-Identifier: Apache-2.0
// tests/layers/select_last_test.cpp - select_last keeps every law and takes each sample's own last position
#include <boost/test/unit_test.hpp>

#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(select_last_layer)

namespace {

using layer_tests::expect_no_violation;
using layer_tests::keeps_the_laws;
using layer_tests::respond;
using pergrad::basic_network;
using pergrad::linear;
using pergrad::select_last;
using pergrad::shape;
using pergrad::variable;

}  // namespace

BOOST_AUTO_TEST_CASE(keeps_laws) { keeps_the_laws<select_last, shape{4, 3}>(); }
BOOST_AUTO_TEST_CASE(keeps_laws_on_lengths) {
  expect_no_violation(pergrad::testing::check_network<
                      basic_network<double, variable(shape{5, 2}), linear<3>, pergrad::tanh, select_last>>());
}
template <class Last>
using behind_a_convolution = basic_network<double, variable(shape{6, 2}), pergrad::transpose, pergrad::conv1d<4, 3>,
                                           pergrad::transpose, Last, linear<3>>;
BOOST_AUTO_TEST_CASE(keeps_laws_where_no_position_is_left) {
  expect_no_violation(pergrad::testing::check_network<behind_a_convolution<select_last>>());
  expect_no_violation(pergrad::testing::check_network<behind_a_convolution<pergrad::mean_over_positions>>());
}
BOOST_AUTO_TEST_CASE(takes_the_last_position) {
  const auto seen = respond<select_last, shape{3, 2}>({1, 2, 3, 4, 5, 6}, {7, 8});
  BOOST_TEST(seen.output == (std::vector<double>{5, 6}), boost::test_tools::per_element());
  BOOST_TEST(seen.input_gradient == (std::vector<double>{0, 0, 0, 0, 7, 8}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(nothing_behind_a_length_exists) {
  layer_tests::keeps_the_law_of_lengths<
      basic_network<double, variable(shape{5, 2}), linear<3>, pergrad::tanh, select_last>>();
  layer_tests::keeps_the_law_of_lengths<behind_a_convolution<select_last>>();
}

BOOST_AUTO_TEST_SUITE_END()
