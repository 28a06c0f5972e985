// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_conv_test.cpp - the networks of conv_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "conv"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_conv)
#include "conv_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
