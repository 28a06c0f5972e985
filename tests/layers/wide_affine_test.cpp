// SPDX-License-Identifier: Apache-2.0
// tests/layers/wide_affine_test.cpp - more channels than a block of packed weights has, and layers whose weights are
// read where they lie: outputs and gradients by definition
#include <boost/test/unit_test.hpp>

#include <pergrad/pergrad.hpp>

#include "affine_reference.hpp"

BOOST_AUTO_TEST_SUITE(wide_affine_layers)

using layer_tests::agrees_with_its_definition;
using namespace pergrad;

BOOST_AUTO_TEST_CASE(blocks_of_channels) {
  agrees_with_its_definition<conv2d<70, 3, padding<1>>, shape{67, 3, 4}>({70, 3, 4});
  agrees_with_its_definition<conv2d<134, 2, stride<2>, groups<2>>, shape{130, 4, 3}>({134, 2, 1});
  agrees_with_its_definition<conv2d<129, 1>, shape{128, 2, 2}>({129, 2, 2});
}
BOOST_AUTO_TEST_CASE(blocks_of_channels_transposed) {
  agrees_with_its_definition<conv_transpose2d<66, 3, stride<2>>, shape{65, 3, 2}>({66, 7, 5});
}
BOOST_AUTO_TEST_CASE(a_whole_image_in_one_window) {
  agrees_with_its_definition<conv2d<191, extent{13, 19}>, shape{3, 13, 19}>({191, 1, 1});
}
BOOST_AUTO_TEST_CASE(a_large_linear_layer) { agrees_with_its_definition<linear<515>, shape{509}>({515}); }

BOOST_AUTO_TEST_SUITE_END()
