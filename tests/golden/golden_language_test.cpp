// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_language_test.cpp - the networks of language_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "language"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_language)
#include "language_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
