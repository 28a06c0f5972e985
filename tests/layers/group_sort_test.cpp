// SPDX-License-Identifier: Apache-2.0
// tests/layers/group_sort_test.cpp - group_sort keeps every law and sorts each group, with what may be equal or NaN
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(group_sort_layer)

namespace {

using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::respond;
using pergrad::group_sort;
using pergrad::shape;

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

BOOST_AUTO_TEST_CASE(keeps_laws) { keeps_the_laws<group_sort<>, shape{6}>(); }
BOOST_AUTO_TEST_CASE(keeps_laws_on_lengths) {
  using network = pergrad::basic_network<double, pergrad::variable(shape{5, 2}), pergrad::linear<6>, group_sort<3>,
                                         pergrad::mean_over_positions>;
  layer_tests::network_keeps_the_laws<network>();
  layer_tests::keeps_the_law_of_lengths<network>();
}
BOOST_AUTO_TEST_CASE(sorts_features_in_their_groups) {
  const auto seen = respond<group_sort<>, shape{6}>({2, 1, 3, 4, -1, -1}, {1, 2, 3, 4, 5, 6});
  BOOST_TEST(seen.output == (std::vector<double>{1, 2, 3, 4, -1, -1}), boost::test_tools::per_element());
  BOOST_TEST(seen.input_gradient == (std::vector<double>{2, 1, 3, 4, 5, 6}), boost::test_tools::per_element());
}
BOOST_AUTO_TEST_CASE(sorts_features_of_each_position) {
  const auto seen = respond<group_sort<3>, shape{2, 3}>({3, 1, 2, 0, 5, 0}, {1, 2, 3, 4, 5, 6});
  BOOST_TEST(seen.output == (std::vector<double>{1, 2, 3, 0, 0, 5}), boost::test_tools::per_element());
  BOOST_TEST(seen.input_gradient == (std::vector<double>{3, 1, 2, 4, 6, 5}), boost::test_tools::per_element());
}
BOOST_AUTO_TEST_CASE(sorts_channels_of_each_pixel) {
  const auto seen = respond<group_sort<>, shape{4, 1, 2}>({5, 1, 4, 2, 7, 9, 8, 6}, {1, 2, 3, 4, 5, 6, 7, 8});
  BOOST_TEST(seen.output == (std::vector<double>{4, 1, 5, 2, 7, 6, 8, 9}), boost::test_tools::per_element());
  BOOST_TEST(seen.input_gradient == (std::vector<double>{3, 2, 1, 4, 5, 8, 7, 6}), boost::test_tools::per_element());
}
BOOST_AUTO_TEST_CASE(every_place_is_written) {
  // Each value is somewhere in its group, whatever stands beside it; what cannot be compared comes last.
  const double nan = std::nan("");
  std::vector<double> group{2, nan, -infinity, 1};
  std::sort(group.begin(), group.end(), [](double a, double b) { return a < b || (b != b && a == a); });
  do {
    const auto seen = respond<group_sort<4>, shape{4}>(group, {1, 2, 3, 4});
    BOOST_TEST((seen.output[0] == -infinity && seen.output[1] == 1 && seen.output[2] == 2));
    BOOST_TEST(std::isnan(seen.output[3]));
    double sum = 0;
    for (const double each : seen.input_gradient) sum += each * each;
    BOOST_TEST(sum == 30.0);
  } while (std::next_permutation(group.begin(), group.end(),
                                 [](double a, double b) { return a < b || (b != b && a == a); }));
}

BOOST_AUTO_TEST_SUITE_END()
