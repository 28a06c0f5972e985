// SPDX-License-Identifier: Apache-2.0
// tests/layers/upsample_test.cpp - nearest-neighbour upsampling: the laws, and small examples in 1, 2 and 3 dimensions
#include <boost/test/unit_test.hpp>

#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(upsample_layer)

namespace {

using layer_tests::keeps_the_laws_in_double;
using layer_tests::respond;
using pergrad::extent;
using pergrad::shape;
using pergrad::upsample;

using numbers = std::vector<double>;

void equal(const numbers& computed, const numbers& expected) {
  BOOST_TEST(computed == expected, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { keeps_the_laws_in_double<upsample<extent{2, 3}>, shape{3, 3, 2}>(); }
BOOST_AUTO_TEST_CASE(sequence) {
  const auto y = respond<upsample<2>, shape{2, 2}>({1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  equal(y.output, {1, 1, 2, 2, 3, 3, 4, 4});
  equal(y.input_gradient, {3, 7, 11, 15});
}
BOOST_AUTO_TEST_CASE(image) {
  const auto y = respond<upsample<extent{1, 3}>, shape{1, 2, 1}>({1, 2}, {1, 2, 3, 4, 5, 6});
  equal(y.output, {1, 1, 1, 2, 2, 2});
  equal(y.input_gradient, {6, 15});
}
BOOST_AUTO_TEST_CASE(volume) {
  const auto y =
      respond<upsample<2>, shape{1, 1, 1, 2}>({1, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  equal(y.output, {1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2});
  equal(y.input_gradient, {1 + 2 + 5 + 6 + 9 + 10 + 13 + 14, 3 + 4 + 7 + 8 + 11 + 12 + 15 + 16});
}

BOOST_AUTO_TEST_SUITE_END()
