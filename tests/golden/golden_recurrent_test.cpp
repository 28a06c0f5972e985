// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_recurrent_test.cpp - the networks of recurrent_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "recurrent"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_recurrent)
#include "recurrent_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
