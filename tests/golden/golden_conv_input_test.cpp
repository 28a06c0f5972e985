// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_conv_input_test.cpp - the networks of conv_input_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "conv_input"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_conv_input)
#include "conv_input_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
