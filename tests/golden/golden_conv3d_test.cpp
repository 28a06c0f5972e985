// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_conv3d_test.cpp - the networks of conv3d_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "conv3d"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_conv3d)
#include "conv3d_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
