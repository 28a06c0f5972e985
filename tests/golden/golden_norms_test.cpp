// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_norms_test.cpp - the networks of norms_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "norms"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_norms)
#include "norms_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
