// SPDX-License-Identifier: Apache-2.0
// tests/golden/golden_embedding_test.cpp - the networks of embedding_cases.inc against PyTorch
#define PERGRAD_GOLDEN_GROUP "embedding"
#include "golden_test.hpp"

BOOST_AUTO_TEST_SUITE(golden_embedding)
#include "embedding_cases.inc"
BOOST_AUTO_TEST_SUITE_END()
