// SPDX-License-Identifier: Apache-2.0
// tests/cuda/tiled_laws_test.cpp - the laws on a device, of layers on tiles: in any order of threads
#include "device_fixture.hpp"
#include "device_laws.hpp"
#include "tiled_networks.hpp"

BOOST_AUTO_TEST_SUITE(cuda_tiled_laws)

namespace {

using namespace tiled_networks;
using device_laws::expect_laws;

}  // namespace

// The short tier has one network of each kind; of all layers it has what they compute, which is what the host computes.
BOOST_AUTO_TEST_CASE(ids_and_positions) {
  expect_laws<words<double>, pg::cross_entropy>("words", 1000);
#ifdef PERGRAD_ALL_NETWORKS
  expect_laws<bags<double>, pg::cross_entropy>("bags", 1000);
#endif
}
BOOST_AUTO_TEST_CASE(recurrent) {
  expect_laws<lstms<double>, pg::cross_entropy>("lstms", 1000);
#ifdef PERGRAD_ALL_NETWORKS
  expect_laws<grus<double>, pg::cross_entropy>("grus", 1000);
  expect_laws<rnns<double>, pg::cross_entropy>("rnns", 1000);
  expect_laws<wide_recurrent<double>, pg::cross_entropy>("wide recurrent layers", 1000);
  expect_laws<states<double>, pg::cross_entropy>("states", 1000);
#endif
}
BOOST_AUTO_TEST_CASE(attending) {
  expect_laws<attention<double>, pg::cross_entropy>("attention", 1000);
#ifdef PERGRAD_ALL_NETWORKS
  expect_laws<transformer<double>, pg::cross_entropy>("transformer", 1000);
  expect_laws<llama_block<double>, pg::cross_entropy>("llama block", 1000);
#endif
}
BOOST_AUTO_TEST_CASE(layered) {
  expect_laws<lstms<double, 4>, pg::cross_entropy>("lstms, layered", 1000);
#ifdef PERGRAD_ALL_NETWORKS  // more than a minute each
  expect_laws<transformer<double, 4>, pg::cross_entropy>("transformer, layered", 1000);
#endif
}
BOOST_AUTO_TEST_CASE(norms) {
  expect_laws<image_norms<double>, pg::cross_entropy>("image norms", 1000);
#ifdef PERGRAD_ALL_NETWORKS
  expect_laws<row_norms<double>, pg::cross_entropy>("row norms", 1000);
#endif
}

BOOST_AUTO_TEST_SUITE_END()
