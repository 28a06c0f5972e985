// SPDX-License-Identifier: Apache-2.0
// tests/data/bounds_test.cpp - a printed upper bound is read as no less, a lower one as no more
#include "../../examples/common/bounds.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

BOOST_AUTO_TEST_SUITE(bounds)

using example::rounded_down;
using example::rounded_up;

double read(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

BOOST_AUTO_TEST_CASE(known_texts) {
  BOOST_TEST(rounded_up(0.1234, 3) == "0.124");
  BOOST_TEST(rounded_down(0.1236, 3) == "0.123");
  BOOST_TEST(rounded_up(3.0, 4) == "3.0000");
  BOOST_TEST(rounded_down(0.7255, 4) == "0.7255");
  BOOST_TEST(rounded_up(2.99991, 4) == "3.0000");
  BOOST_TEST(rounded_up(std::numeric_limits<double>::denorm_min(), 2) == "0.01");
  BOOST_TEST(rounded_up(std::numeric_limits<double>::infinity(), 2) == "inf");
  BOOST_TEST(read(rounded_up(std::numeric_limits<double>::max(), 4)) == std::numeric_limits<double>::max());
}

BOOST_AUTO_TEST_CASE(never_on_the_wrong_side_and_never_far) {
  std::mt19937_64 bits{1};
  std::uniform_real_distribution<double> share;
  for (int turn = 0; turn < 20'000; ++turn) {
    const int decimals = turn % 6;
    const double step = std::pow(10.0, -decimals);
    const double text = read(example::nearest(std::pow(10.0, 8 * share(bits) - 4), decimals));
    const double between = text + step * share(bits);
    for (const double value : {text, between, std::nextafter(text, 1e9), std::nextafter(text, -1e9)}) {
      const double up = read(rounded_up(value, decimals));
      const double down = read(rounded_down(value, decimals));
      BOOST_REQUIRE(down <= value);
      BOOST_REQUIRE(value <= up);
      BOOST_REQUIRE(up - down <= step * (1 + 1e-6));
    }
    BOOST_REQUIRE(read(rounded_up(text, decimals)) == text);
    BOOST_REQUIRE(read(rounded_down(text, decimals)) == text);
  }
}

BOOST_AUTO_TEST_SUITE_END()
