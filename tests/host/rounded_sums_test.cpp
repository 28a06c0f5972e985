// SPDX-License-Identifier: Apache-2.0
// tests/host/rounded_sums_test.cpp - shares of gradients that are rounded to integers and added up: any number of them,
// with ties, wherever they lie, beside one after the other
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(host_rounded_sums)

namespace {

template <class Scalar, class Integer>
void check(double factor, double largest) {
  std::mt19937 bits{7};
  std::uniform_real_distribution<double> uniform{-largest, largest};
  for (std::size_t count = 0; count < 70; ++count) {
    for (const std::size_t first : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
      std::vector<Scalar> shares(first + count);
      for (std::size_t i = 0; i < shares.size(); ++i) {
        // Every third one is a tie: an odd number of halves, negative ones included.
        shares[i] = static_cast<Scalar>(i % 3 == 0 ? (static_cast<double>(i) - 30.5) / factor : uniform(bits));
      }
      std::vector<Integer> sums(first + count + 1);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<Integer>(1000 * i) - 5000;
      std::vector<Integer> expected = sums;
      for (std::size_t i = first; i < first + count; ++i) {
        expected[i] += static_cast<Integer>(std::nearbyint(factor * static_cast<double>(shares[i])));
      }
      pergrad::on_host::add_rounded_to(sums.data() + first, factor, shares.data() + first,
                                       static_cast<pergrad::on_host::index>(count));
      BOOST_TEST(sums == expected, boost::test_tools::per_element());
    }
  }
}

}  // namespace

// A power of two as factor: products are exact, so that ties stay ties.
BOOST_AUTO_TEST_CASE(every_count_and_place) {
  check<float, std::int32_t>(0x1p20, 0x1p9);
  check<float, std::int64_t>(0x1p20, 0x1p29);
  check<double, std::int64_t>(0x1p20, 0x1p29);
  check<double, std::int64_t>(1.0, 0x1p49);
}

BOOST_AUTO_TEST_SUITE_END()
