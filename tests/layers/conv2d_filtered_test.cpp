// SPDX-License-Identifier: Apache-2.0
// tests/layers/conv2d_filtered_test.cpp - convolutions that run by minimal filtering: every law, and their definition
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "affine_reference.hpp"
#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(conv2d_by_minimal_filtering)

namespace {

using namespace pergrad;

using layer_tests::agrees_with_its_definition;

/// Both directions of the convolution behind one node with parameters run by minimal filtering.
template <class Layer, shape Input>
constexpr bool is_filtered() {
  const auto& row = on_host::program<basic_network<double, Input, layer_tests::element_bias, Layer>>::table.nodes[1];
  return row.winograd_rows > 0 && row.winograd_dx_rows > 0;
}
template <class Layer, shape Input>
void filtered_agrees_with_its_definition(shape output) {
  static_assert(is_filtered<Layer, Input>());
  agrees_with_its_definition<Layer, Input>(output);
}

using same_size = conv2d<32, 3, padding<1>>;
static_assert(is_filtered<same_size, shape{32, 8, 8}>());
static_assert(!is_filtered<conv2d<32, 3, padding<1>>, shape{32, 6, 6}>());               // few outputs
static_assert(!is_filtered<conv2d<8, 3, padding<1>>, shape{8, 16, 16}>());               // few channels
static_assert(!is_filtered<conv2d<32, 3, padding<1>, stride<2>>, shape{32, 32, 32}>());  // another convolution
static_assert(!is_filtered<conv2d<32, 3, padding<2>, dilation<2>>, shape{32, 16, 16}>());
static_assert(!is_filtered<conv2d<64, 3, padding<1>, groups<2>>, shape{64, 16, 16}>());
static_assert(!is_filtered<conv2d<32, 5, padding<2>>, shape{32, 16, 16}>());
static_assert(!is_filtered<conv2d<32, 3, padding<3>>, shape{32, 16, 16}>());

/// Its input gradient is added to the shortcut's.
using shortcut =
    basic_network<double, shape{32, 10, 8}, conv2d<32, 1>, residual<same_size, pergrad::tanh>, flatten, linear<3>>;

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { layer_tests::keeps_the_laws<same_size, shape{32, 8, 8}>(); }
BOOST_AUTO_TEST_CASE(laws_in_a_residual) {
  constexpr const auto& rows = on_host::program<shortcut>::table.nodes;
  static_assert(rows[1].winograd_dx_rows > 0 && rows[1].accumulate);
  layer_tests::network_keeps_the_laws<shortcut>();
}
BOOST_AUTO_TEST_CASE(odd_sizes) {
  filtered_agrees_with_its_definition<conv2d<48, 3, padding<1>>, shape{49, 19, 17}>({48, 19, 17});
}
BOOST_AUTO_TEST_CASE(without_padding) {
  filtered_agrees_with_its_definition<conv2d<70, 3, no_bias>, shape{40, 16, 17}>({70, 14, 15});
}
BOOST_AUTO_TEST_CASE(wide_padding) {
  filtered_agrees_with_its_definition<conv2d<40, 3, padding<2>>, shape{66, 14, 17}>({40, 16, 19});
}

BOOST_AUTO_TEST_SUITE_END()
