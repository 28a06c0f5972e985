// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_attention_test.cpp - the networks of attention_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "attention"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_attention)
#include "attention_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
