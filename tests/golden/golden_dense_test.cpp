// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_dense_test.cpp - the networks of dense_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "dense"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_dense)
#include "dense_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
