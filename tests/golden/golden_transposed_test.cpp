// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_transposed_test.cpp - the networks of transposed_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "transposed"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_transposed)
#include "transposed_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
