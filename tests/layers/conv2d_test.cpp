// SPDX-License-Identifier: Apache-2.0
// tests/layers/conv2d_test.cpp - convolutions keep every law: kernels, strides, paddings, dilations, groups, bias
#include <boost/test/unit_test.hpp>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(conv2d_layer)

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

BOOST_AUTO_TEST_CASE(dense) { keeps_the_laws<conv2d<4, 3, padding<1>>, shape{3, 6, 5}>(); }
BOOST_AUTO_TEST_CASE(strided) { keeps_the_laws<conv2d<3, 4, stride<2>, padding<3>>, shape{2, 7, 8}>(); }
BOOST_AUTO_TEST_CASE(grouped) { keeps_the_laws<conv2d<4, 3, groups<2>, padding<1>>, shape{6, 5, 4}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(one_pixel_kernel_without_bias) {
  keeps_the_laws_in_double<conv2d<5, 1, no_bias>, shape{3, 4, 3}>();
}
BOOST_AUTO_TEST_CASE(whole_image_kernel) { keeps_the_laws_in_double<conv2d<3, extent{4, 3}>, shape{2, 4, 3}>(); }
BOOST_AUTO_TEST_CASE(stride_larger_than_kernel) { keeps_the_laws_in_double<conv2d<2, 2, stride<3>>, shape{2, 8, 7}>(); }
BOOST_AUTO_TEST_CASE(flat_kernel_uneven_stride) {
  keeps_the_laws_in_double<conv2d<3, extent{1, 4}, stride<2, 1>, padding<0, 2>>, shape{2, 5, 6}>();
}
#endif

BOOST_AUTO_TEST_SUITE_END()
