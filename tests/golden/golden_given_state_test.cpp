// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_given_state_test.cpp - the networks of given_state_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "given_state"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_given_state)
#include "given_state_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
