// SPDX-License-Identifier: Apache-2.0
// tests/cuda/laws_test.cpp - the laws on a device, of layers that are not on tiles
#include "device_fixture.hpp"
#include "device_laws.hpp"

namespace {

using namespace device_fixture;
using device_laws::expect_laws;

/// What the fixture's networks do not have: blocks that are repeated, and pools one after the other.
template <class Scalar>
using repeated =
    pg::basic_network<Scalar, pg::shape{2, 7, 7}, pg::repeat<2, pg::conv2d<2, 3, pg::padding<1>>, pg::tanh>,
                      pg::sequential<pg::avg_pool2d<2>, pg::max_pool2d<2, pg::stride<1>>>, pg::flatten, pg::linear<3>>;

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_laws)

BOOST_AUTO_TEST_CASE(a_perceptron_with_binary_cross_entropy) {
  expect_laws<mlp<double>, pg::binary_cross_entropy_with_logits>("mlp", 1000);
}
BOOST_AUTO_TEST_CASE(convolutions_pools_and_residuals_with_cross_entropy) {
  expect_laws<cnn<double>, pg::cross_entropy>("cnn", 1000);
}
BOOST_AUTO_TEST_CASE(positions_averages_and_the_users_layers_with_squared_errors) {
  expect_laws<mixed<double>, pg::mean_squared_error>("mixed", 1000);
}
BOOST_AUTO_TEST_CASE(repeated_blocks) { expect_laws<repeated<double>, pg::cross_entropy>("repeated", 1000); }
#ifdef PERGRAD_ALL_NETWORKS  // most of a minute
BOOST_AUTO_TEST_CASE(the_laws_about_bits_and_bounds_in_float) {
  expect_laws<cnn<float>, pg::cross_entropy>("cnn, float", 500);
}
#endif

BOOST_AUTO_TEST_SUITE_END()
