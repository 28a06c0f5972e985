// SPDX-License-Identifier: Apache-2.0
// tests/layers/conv3d_test.cpp - 3-d convolutions: the laws, their definition, and nets, pools and all, that need only
// 2-d
#include <boost/test/unit_test.hpp>

#include <pergrad/pergrad.hpp>

#include "affine_reference.hpp"
#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(conv3d_layer)

namespace {

using layer_tests::agree;
using layer_tests::agrees_with_its_definition;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::adaptive_avg_pool2d;
using pergrad::adaptive_avg_pool3d;
using pergrad::avg_pool2d;
using pergrad::avg_pool3d;
using pergrad::basic_network;
using pergrad::conv2d;
using pergrad::conv3d;
using pergrad::dilation;
using pergrad::extent;
using pergrad::flatten;
using pergrad::groups;
using pergrad::linear;
using pergrad::max_pool2d;
using pergrad::max_pool3d;
using pergrad::no_bias;
using pergrad::padding;
using pergrad::relu;
using pergrad::sequential;
using pergrad::shape;
using pergrad::stride;

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { keeps_the_laws<conv3d<3, 2, padding<1>>, shape{2, 3, 2, 3}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(deep_laws) {
  keeps_the_laws_in_double<
      sequential<conv3d<4, 3, padding<1>>, relu, conv3d<2, extent{2, 3, 2}, stride<2, 1, 2>, padding<1, 2, 0>>>,
      shape{2, 3, 4, 4}>();
}
#endif
BOOST_AUTO_TEST_CASE(definition) {
  agrees_with_its_definition<conv3d<3, 2>, shape{2, 3, 4, 5}>({3, 2, 3, 4});
  agrees_with_its_definition<
      conv3d<4, extent{3, 2, 2}, stride<2, 1, 3>, padding<2, 1, 0>, dilation<1, 2, 3>, groups<2>>, shape{2, 4, 3, 8}>(
      {4, 3, 3, 2});
  agrees_with_its_definition<conv3d<3, extent{2, 4, 3}, no_bias>, shape{2, 2, 4, 3}>({3, 1, 1, 1});
}
BOOST_AUTO_TEST_CASE(one_plane_is_an_image) {
  agree<basic_network<double, shape{2, 1, 7, 6}, conv3d<3, extent{3, 2}, padding<1, 1>>, pergrad::tanh,
                      max_pool3d<extent{2, 3}, stride<1, 2>>, avg_pool3d<extent{2, 1}>, adaptive_avg_pool3d<1, 2, 2>,
                      flatten, linear<3>>,
        basic_network<double, shape{2, 7, 6}, conv2d<3, extent{3, 2}, padding<1>>, pergrad::tanh,
                      max_pool2d<extent{2, 3}, stride<1, 2>>, avg_pool2d<extent{2, 1}>, adaptive_avg_pool2d<2>, flatten,
                      linear<3>>>();
}
BOOST_AUTO_TEST_CASE(planes_are_rows_of_an_image) {
  agree<basic_network<double, shape{2, 7, 6, 1}, conv3d<3, extent{3, 2, 1}, stride<2, 1, 1>, padding<1, 1, 0>>,
                      pergrad::tanh, max_pool3d<extent{2, 3, 1}, stride<1>, padding<1, 1, 0>>,
                      avg_pool3d<extent{2, 2, 1}>, adaptive_avg_pool3d<2, 2, 1>, flatten, linear<3>>,
        basic_network<double, shape{2, 7, 6}, conv2d<3, extent{3, 2}, stride<2, 1>, padding<1>>, pergrad::tanh,
                      max_pool2d<extent{2, 3}, stride<1>, padding<1>>, avg_pool2d<2>, adaptive_avg_pool2d<2>, flatten,
                      linear<3>>>();
}

BOOST_AUTO_TEST_SUITE_END()
