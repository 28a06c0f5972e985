// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_elementwise_test.cpp - the networks of elementwise_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "elementwise"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_elementwise)
#include "elementwise_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
