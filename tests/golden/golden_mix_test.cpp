// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_mix_test.cpp - the networks of mix_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "mix"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_mix)
#include "mix_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
