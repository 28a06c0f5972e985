// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_conv1d_test.cpp - the networks of conv1d_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "conv1d"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_conv1d)
#include "conv1d_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
