// SPDX-License-Identifier: Apache-2.0
// tests/layers/reshape_test.cpp - reshape, transpose and flatten: the same values, whatever the order they are stored
// in
#include <boost/test/unit_test.hpp>

#include <numeric>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "affine_reference.hpp"
#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(reshape_layers)

namespace {

using layer_tests::agree;
using layer_tests::element_bias;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::respond;
using pergrad::avg_pool1d;
using pergrad::basic_network;
using pergrad::conv1d;
using pergrad::conv2d;
using pergrad::extent;
using pergrad::flatten;
using pergrad::linear;
using pergrad::max_pool1d;
using pergrad::max_pool2d;
using pergrad::padding;
using pergrad::projection;
using pergrad::reshape;
using pergrad::residual;
using pergrad::sequential;
using pergrad::shape;
using pergrad::transpose;

using numbers = std::vector<double>;

numbers counted(std::size_t count) {
  numbers result(count);
  std::iota(result.begin(), result.end(), 1.0);
  return result;
}

/// Does the node copy its input?
template <class Network>
[[nodiscard]] bool staged(std::size_t node) {
  return pergrad::on_host::program<Network>::table.nodes[node].staged;
}

}  // namespace

BOOST_AUTO_TEST_CASE(reshape_keeps_the_order) {
  const auto y = respond<reshape<shape{4, 6}>, shape{2, 3, 4}>(counted(24), counted(24));
  BOOST_TEST(y.output == counted(24), boost::test_tools::per_element());
  BOOST_TEST(y.input_gradient == counted(24), boost::test_tools::per_element());
}
BOOST_AUTO_TEST_CASE(transpose_exchanges_the_axes) {
  const auto y = respond<transpose, shape{2, 3}>({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6});
  BOOST_TEST(y.output == (numbers{1, 4, 2, 5, 3, 6}), boost::test_tools::per_element());
  BOOST_TEST(y.input_gradient == (numbers{1, 3, 5, 2, 4, 6}), boost::test_tools::per_element());
}
BOOST_AUTO_TEST_CASE(twice_transposed_is_as_before) {
  const auto y =
      respond<sequential<transpose, pergrad::tanh, transpose>, shape{2, 3}>({0, 0, 0, 0, 0, 0}, {1, 2, 3, 4, 5, 6});
  BOOST_TEST(y.input_gradient == counted(6), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(laws_of_a_transposition) { keeps_the_laws_in_double<transpose, shape{3, 5}>(); }
BOOST_AUTO_TEST_CASE(laws_through_every_order) {
  // image -> sequence -> linear position by position -> transposed -> image again
  keeps_the_laws_in_double<
      sequential<conv2d<4, 3, padding<1>>, reshape<shape{6, 8}>, linear<5>, pergrad::tanh, transpose, conv1d<3, 3>,
                 reshape<shape{2, 2, 3}>, max_pool2d<2, pergrad::stride<1>>>,
      shape{3, 3, 4}>();
}
BOOST_AUTO_TEST_CASE(laws_with_several_readers) {
  keeps_the_laws_in_double<
      sequential<residual<transpose, conv1d<5, 3, padding<1>>, transpose, projection<linear<5>>>,
                 residual<flatten, reshape<shape{5, 6}>, conv1d<5, 3, padding<1>>, reshape<shape{6, 5}>>, flatten,
                 reshape<shape{3, 5, 2}>, conv2d<2, 2>>,
      shape{6, 4}>();
}

BOOST_AUTO_TEST_CASE(pointwise_convolution_is_a_linear_layer) {
  agree<
      basic_network<double, shape{7, 4}, linear<5>, pergrad::tanh, transpose, max_pool1d<2>, flatten, linear<2>>,
      basic_network<double, shape{7, 4}, transpose, conv1d<5, 1>, pergrad::tanh, max_pool1d<2>, flatten, linear<2>>>();
}
BOOST_AUTO_TEST_CASE(flat_and_back_is_the_same_image) {
  agree<basic_network<double, shape{2, 5, 4}, conv2d<3, 2>, pergrad::tanh, flatten, pergrad::tanh,
                      reshape<shape{3, 4, 3}>, conv2d<2, 2>>,
        basic_network<double, shape{2, 5, 4}, conv2d<3, 2>, pergrad::tanh, pergrad::tanh, conv2d<2, 2>>>();
}
BOOST_AUTO_TEST_CASE(flat_values_come_in_order) {
  // A layer that looks at positions of the flat order sees the same as one that looks at the image's.
  agree<basic_network<double, shape{2, 5, 4}, conv2d<3, 2>, flatten, element_bias, linear<2>>,
        basic_network<double, shape{2, 5, 4}, conv2d<3, 2>, element_bias, flatten, linear<2>>>();
  agree<basic_network<double, shape{2, 5, 4}, conv2d<3, 2>, reshape<shape{12, 3}>, element_bias, flatten, linear<2>>,
        basic_network<double, shape{2, 5, 4}, conv2d<3, 2>, element_bias, flatten, linear<2>>>();
  agree<basic_network<double, shape{2, 6}, conv1d<3, 2>, flatten, linear<2>>,
        basic_network<double, shape{2, 6, 1}, conv2d<3, extent{2, 1}>, flatten, linear<2>>>();
}

BOOST_AUTO_TEST_CASE(what_moves_and_what_does_not) {
  using towards_conv1d = basic_network<float, shape{9, 4}, transpose, conv1d<6, 3>, transpose, linear<5>>;
  for (std::size_t node = 0; node < 4; ++node) BOOST_TEST(!staged<towards_conv1d>(node));
  // Without the transposition positions and channels change places in memory.
  using without = basic_network<float, shape{9, 4}, linear<5>, conv1d<6, 3>, flatten, linear<2>>;
  BOOST_TEST(!staged<without>(0));
  BOOST_TEST(staged<without>(1));
  BOOST_TEST(!staged<without>(3));
  // The network's input is stored as its first reader wants it.
  using image_of_rows = basic_network<float, shape{1, 8, 8}, reshape<shape{8, 8}>, linear<5>, flatten, linear<2>>;
  for (std::size_t node = 0; node < 4; ++node) BOOST_TEST(!staged<image_of_rows>(node));
  using channels_first = basic_network<float, shape{4, 9}, avg_pool1d<2>, conv1d<6, 3>, flatten, linear<2>>;
  for (std::size_t node = 0; node < 4; ++node) BOOST_TEST(!staged<channels_first>(node));
}

BOOST_AUTO_TEST_SUITE_END()
