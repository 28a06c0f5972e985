// SPDX-License-Identifier: Apache-2.0
// tests/cuda/elementwise_test.cpp - activations with constants, and losses with options, on a device as on the host
#include "device_fixture.hpp"

BOOST_AUTO_TEST_SUITE(cuda_elementwise)

namespace {

using namespace device_fixture;

using activated = pg::basic_network<double, pg::shape{7}, pg::linear<9>, pg::leaky_relu<0.2>, pg::linear<8>, pg::silu,
                                    pg::linear<6>, pg::elu<0.7>, pg::gelu_tanh, pg::linear<3>>;

}  // namespace

BOOST_AUTO_TEST_CASE(activations_and_losses_are_the_hosts) {
  compare_gradients<activated, pg::cross_entropy_with_label_smoothing<0.1>>("label smoothing");
  compare_gradients<activated, pg::focal<>>("focal");
  compare_gradients<activated, pg::huber<0.5>>("huber");
  compare_gradients<activated, pg::binary_focal_with_logits<>>("binary focal");
}

BOOST_AUTO_TEST_SUITE_END()
