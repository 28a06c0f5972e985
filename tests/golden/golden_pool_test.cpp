// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_pool_test.cpp - the networks of pool_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "pool"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_pool)
#include "pool_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
