// SPDX-License-Identifier: Apache-2.0
// tests/main.cpp - the entry point that every room's test program shares.
#define BOOST_TEST_MODULE pergrad
#include <boost/test/unit_test.hpp>
