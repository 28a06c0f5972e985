// SPDX-License-Identifier: Apache-2.0
// tests/layers/conv2d_dilated_test.cpp - dilated and depthwise convolutions keep every law
#include <boost/test/unit_test.hpp>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(conv2d_dilated_layer)

namespace {

using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::conv2d;
using pergrad::dilation;
using pergrad::extent;
using pergrad::groups;
using pergrad::no_bias;
using pergrad::padding;
using pergrad::shape;
using pergrad::stride;

}  // namespace

BOOST_AUTO_TEST_CASE(dilated) { keeps_the_laws<conv2d<3, 3, dilation<2>, padding<2>>, shape{2, 6, 7}>(); }
BOOST_AUTO_TEST_CASE(depthwise) { keeps_the_laws<conv2d<3, 3, groups<3>, padding<1>, no_bias>, shape{3, 5, 5}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(depthwise_twice_as_many) { keeps_the_laws_in_double<conv2d<4, 2, groups<2>>, shape{2, 4, 5}>(); }
BOOST_AUTO_TEST_CASE(dilated_strided_grouped) {
  keeps_the_laws_in_double<conv2d<4, extent{3, 2}, stride<2, 3>, padding<1, 2>, dilation<2, 3>, groups<2>>,
                           shape{4, 8, 7}>();
}
BOOST_AUTO_TEST_CASE(even_kernel_dilated) {
  keeps_the_laws_in_double<conv2d<2, 2, dilation<3, 1>, stride<1, 2>>, shape{3, 6, 5}>();
}
BOOST_AUTO_TEST_CASE(more_channels_than_a_vector) { keeps_the_laws_in_double<conv2d<19, 2>, shape{18, 3, 3}>(); }
#endif

BOOST_AUTO_TEST_SUITE_END()
