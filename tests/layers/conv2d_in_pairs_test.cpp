// SPDX-License-Identifier: Apache-2.0
// tests/layers/conv2d_in_pairs_test.cpp - convolutions with even kernels that are filtered in pairs: every law, and
// their definition
#include <boost/test/unit_test.hpp>

#include <cstddef>

#include <pergrad/pergrad.hpp>

#include "affine_reference.hpp"
#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(conv2d_in_pairs)

namespace {

using namespace pergrad;

/// The convolution behind one node with parameters, and its weights' gradient.
template <class Layer, shape Input>
constexpr bool is_in_pairs() {
  constexpr const auto& table = on_host::program<basic_network<double, Input, layer_tests::element_bias, Layer>>::table;
  return table.nodes[1].in_pairs && table.outer[0].in_pairs;
}
template <class Layer, shape Input>
void agrees_with_its_definition(shape output) {
  static_assert(is_in_pairs<Layer, Input>());
  layer_tests::agrees_with_its_definition<Layer, Input>(output);
}

using even = conv2d<32, 4>;
static_assert(is_in_pairs<even, shape{32, 11, 11}>());
static_assert(!is_in_pairs<even, shape{32, 10, 10}>());  // few outputs
static_assert(!is_in_pairs<conv2d<8, 4>, shape{8, 12, 12}>());
static_assert(!is_in_pairs<conv2d<64, 2>, shape{64, 12, 12}>());
static_assert(!is_in_pairs<conv2d<64, 5>, shape{64, 12, 12}>());  // another convolution
static_assert(!is_in_pairs<conv2d<64, extent{4, 5}>, shape{64, 16, 16}>());
static_assert(!is_in_pairs<conv2d<64, 4, stride<2>>, shape{64, 32, 32}>());
static_assert(!is_in_pairs<conv2d<64, 4, dilation<2>>, shape{64, 32, 32}>());
static_assert(!is_in_pairs<conv2d<64, 4, groups<2>>, shape{64, 16, 16}>());

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { layer_tests::keeps_the_laws<even, shape{32, 11, 11}>(); }
BOOST_AUTO_TEST_CASE(odd_sizes) {
  agrees_with_its_definition<conv2d<48, extent{6, 4}, padding<2>>, shape{33, 17, 12}>({48, 16, 13});
}
BOOST_AUTO_TEST_CASE(large_kernel) {
  agrees_with_its_definition<conv2d<70, 8, no_bias>, shape{40, 16, 17}>({70, 9, 10});
}

BOOST_AUTO_TEST_SUITE_END()
