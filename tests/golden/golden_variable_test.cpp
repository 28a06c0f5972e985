// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_variable_test.cpp - the networks of variable_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "variable"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_variable)
#include "variable_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
