// SPDX-License-Identifier: Apache-2.0
// tests/layers/conv1d_test.cpp - 1-d convolutions: the laws, their definition, and the same net, pools and all, in 2-d
#include <boost/test/unit_test.hpp>

#include <pergrad/pergrad.hpp>

#include "affine_reference.hpp"
#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(conv1d_layer)

namespace {

using layer_tests::agree;
using layer_tests::agrees_with_its_definition;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::adaptive_avg_pool1d;
using pergrad::adaptive_avg_pool2d;
using pergrad::avg_pool1d;
using pergrad::avg_pool2d;
using pergrad::basic_network;
using pergrad::conv1d;
using pergrad::conv2d;
using pergrad::dilation;
using pergrad::extent;
using pergrad::flatten;
using pergrad::groups;
using pergrad::linear;
using pergrad::max_pool1d;
using pergrad::max_pool2d;
using pergrad::no_bias;
using pergrad::padding;
using pergrad::sequential;
using pergrad::shape;
using pergrad::stride;
using pergrad::transpose;

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { keeps_the_laws<conv1d<4, 3, padding<1>>, shape{3, 7}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(laws_behind_a_transposition) {
  keeps_the_laws_in_double<sequential<transpose, conv1d<4, 3, stride<2>, padding<2>, groups<2>>, transpose>,
                           shape{9, 6}>();
}
#endif
BOOST_AUTO_TEST_CASE(definition) {
  agrees_with_its_definition<conv1d<4, 3>, shape{3, 7}>({4, 5});
  agrees_with_its_definition<conv1d<4, 4, stride<3>, padding<2>, dilation<2>, groups<2>>, shape{6, 11}>({4, 3});
  agrees_with_its_definition<conv1d<5, 1, no_bias>, shape{3, 4}>({5, 4});
}
BOOST_AUTO_TEST_CASE(the_same_in_two_dimensions) {
  agree<
      basic_network<double, shape{3, 14}, conv1d<5, 3, padding<2>>, pergrad::tanh, max_pool1d<3, stride<2>, padding<1>>,
                    conv1d<4, 2, stride<2>>, avg_pool1d<2, stride<1>>, adaptive_avg_pool1d<2>, flatten, linear<3>>,
      basic_network<double, shape{3, 14, 1}, conv2d<5, extent{3, 1}, padding<2, 0>>, pergrad::tanh,
                    max_pool2d<extent{3, 1}, stride<2, 1>, padding<1, 0>>, conv2d<4, extent{2, 1}, stride<2, 1>>,
                    avg_pool2d<extent{2, 1}, stride<1>>, adaptive_avg_pool2d<2, 1>, flatten, linear<3>>>();
}

BOOST_AUTO_TEST_SUITE_END()
