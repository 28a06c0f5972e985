// SPDX-License-Identifier: Apache-2.0
// tests/attacks/device_test.cpp - the attacks on what a device releases, which the host plays
#include <boost/test/unit_test.hpp>

#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/cuda/run/trainer.hpp>

#include "attacks/matrix.hpp"

BOOST_AUTO_TEST_SUITE(attacks_device)

BOOST_AUTO_TEST_CASE(neighbours) {
  const pergrad::emulated device;
  // On embeddings a device does not train yet.
  matrix::attack_all<victims::small<float>>(device, {"device, mlp", attacks::trials(60, 500), {1, 100, 1e5}, 40});
  matrix::attack_all<victims::cnn<float>>(device, {"device, cnn", attacks::trials(60, 500), {1, 100, 1e5}, 40});
}

BOOST_AUTO_TEST_CASE(noise_has_the_size_that_it_says) {
  const pergrad::emulated device;
  matrix::check_size_of_noise<victims::small<float>>(device, {victims::route::trainer});
}

BOOST_AUTO_TEST_SUITE_END()
