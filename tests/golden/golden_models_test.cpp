// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_models_test.cpp - the networks of models/transformers.hpp against Hugging Face's
#define PERGRAD_GOLDEN_GROUP "models"
#include <pergrad/models.hpp>

#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_models)
#include "models_cases.inc"

namespace {

/// The file that docs/huggingface.py makes has every name of the network, and the numbers are in their places.
template <class Network>
void loads(const std::string& name) {
  const pergrad::host exec{pergrad::threads{1}};
  Network net{exec, pergrad::zeros{}};
  pergrad::load_parameters(net, std::string{PERGRAD_GOLDEN_DIR} + "/data/" + name + ".safetensors");
  BOOST_TEST(std::ranges::equal(net.parameters(), golden::load(PERGRAD_GOLDEN_GROUP, name).parameters));
}

}  // namespace

#undef PERGRAD_GOLDEN
#define PERGRAD_GOLDEN(name, network, ...) \
  BOOST_AUTO_TEST_CASE(name##_by_file) { loads<typename golden::parenthesised<void network>::type>(#name); }
#include "models_cases.inc"

BOOST_AUTO_TEST_SUITE_END()
