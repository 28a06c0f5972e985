// SPDX-License-Identifier: Apache-2.0
// tests/layers/conv_transpose2d_test.cpp - transposed convolutions: the laws, and their definition for every option
#include <boost/test/unit_test.hpp>

#include <pergrad/pergrad.hpp>

#include "affine_reference.hpp"
#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(conv_transpose2d_layer)

namespace {

using layer_tests::agrees_with_its_definition;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::conv2d;
using pergrad::conv_transpose2d;
using pergrad::dilation;
using pergrad::extent;
using pergrad::groups;
using pergrad::no_bias;
using pergrad::output_padding;
using pergrad::padding;
using pergrad::relu;
using pergrad::sequential;
using pergrad::shape;
using pergrad::stride;

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { keeps_the_laws<conv_transpose2d<3, 3, stride<2>, padding<1>>, shape{2, 3, 4}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(laws_between_convolutions) {
  keeps_the_laws_in_double<
      sequential<conv2d<4, 3, stride<2>>, relu,
                 conv_transpose2d<6, extent{3, 2}, stride<2>, output_padding<1, 0>, groups<2>>, relu, conv2d<2, 3>>,
      shape{2, 6, 7}>();
}
#endif
BOOST_AUTO_TEST_CASE(definition) {
  agrees_with_its_definition<conv_transpose2d<3, 2>, shape{2, 3, 4}>({3, 4, 5});
  agrees_with_its_definition<conv_transpose2d<3, extent{3, 4}, stride<2, 3>, padding<1, 2>, output_padding<1, 2>>,
                             shape{2, 4, 3}>({3, 8, 8});
  agrees_with_its_definition<
      conv_transpose2d<4, 3, stride<1, 2>, padding<2>, output_padding<1>, dilation<2, 3>, groups<2>, no_bias>,
      shape{6, 4, 3}>({4, 5, 8});
  agrees_with_its_definition<conv_transpose2d<5, 1, stride<2>>, shape{3, 2, 3}>({5, 3, 5});  // pixels with bias alone
  agrees_with_its_definition<conv_transpose2d<2, 3>, shape{3, 1, 1}>({2, 3, 3});
}

BOOST_AUTO_TEST_SUITE_END()
