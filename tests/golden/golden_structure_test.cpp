// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_structure_test.cpp - the networks of structure_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "structure"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_structure)
#include "structure_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
