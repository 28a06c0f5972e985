// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_pool13_test.cpp - the networks of pool13_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "pool13"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_pool13)
#include "pool13_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
