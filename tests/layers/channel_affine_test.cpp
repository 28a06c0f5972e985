// SPDX-License-Identifier: Apache-2.0
// tests/layers/channel_affine_test.cpp - channel_affine and scale: the laws and the formulas
#include <boost/test/unit_test.hpp>

#include <ratio>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"
#include "reference_norm.hpp"

BOOST_AUTO_TEST_SUITE(affine_layers)

namespace {

using layer_tests::agrees_with_the_formulas;
using layer_tests::groups_of;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::norm_structure;
using layer_tests::respond_to;
using pergrad::channel_affine;
using pergrad::conv2d;
using pergrad::frozen;
using pergrad::padding;
using pergrad::residual;
using pergrad::scale;
using pergrad::sequential;
using pergrad::shape;

norm_structure unnormalised(norm_structure structure) {
  structure.normalised = false;
  return structure;
}

}  // namespace

BOOST_AUTO_TEST_CASE(channel_affine_laws) { keeps_the_laws<channel_affine, shape{5, 3, 2}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(channel_affine_sequence_laws) { keeps_the_laws_in_double<channel_affine, shape{3, 5}>(); }
BOOST_AUTO_TEST_CASE(channel_affine_between_convolutions_laws) {
  using convolution = conv2d<2, 3, padding<1>>;
  keeps_the_laws_in_double<residual<convolution, residual<channel_affine, convolution>>, shape{2, 4, 3}>();
}
BOOST_AUTO_TEST_CASE(frozen_channel_affine_laws) {
  keeps_the_laws_in_double<sequential<frozen<channel_affine>, conv2d<2, 2>>, shape{3, 3, 3}>();
}
#endif
BOOST_AUTO_TEST_CASE(channel_affine_formulas) {
  constexpr long double exact = 2e-14L;
  agrees_with_the_formulas<double, channel_affine, shape{21, 2, 3}>(unnormalised(groups_of(21, 6, 1)), 2, exact);
  agrees_with_the_formulas<double, channel_affine, shape{5, 4}>(unnormalised(groups_of(5, 4, 1)), 2, exact);
  agrees_with_the_formulas<double, channel_affine, shape{9}>(unnormalised(groups_of(9, 1, 1)), 2, exact);
}

BOOST_AUTO_TEST_CASE(scale_laws) { keeps_the_laws<scale<std::ratio<-2, 3>>, shape{11}>(); }
BOOST_AUTO_TEST_CASE(scale_values) {
  const auto y = respond_to<scale<std::ratio<1, 4>>>({1.0, -3.0, 0.0});
  BOOST_TEST(y.output == (std::vector<double>{0.25, -0.75, 0.0}), boost::test_tools::per_element());
  BOOST_TEST(y.input_gradient == (std::vector<double>{0.25, 0.25, 0.25}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
