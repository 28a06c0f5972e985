// SPDX-License-Identifier: Apache-2.0
// tests/network/shape_by_value_test.cpp - shapes arrive as they were sent, whatever registers carry them
#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(shapes)

namespace {

using pergrad::shape;

#if !defined(__clang__)  // which makes no copies for constant arguments, and does not know the word
[[gnu::noclone]]
#endif
[[gnu::noinline]] std::array<std::size_t, 6>
taken_apart(shape of) {
  return {of.e0, of.e1, of.e2, of.e3, of.ids, of.varying_axis()};
}

constexpr shape make(std::size_t first, std::size_t second, std::size_t third, std::size_t fourth, std::size_t ids,
                     std::size_t axis) {
  shape made{first, second, third, fourth};
  made.ids = ids;
  made.set_varying_axis(axis);
  return made;
}
template <std::size_t First, std::size_t Second, std::size_t Third, std::size_t Fourth, std::size_t Ids = 0,
          std::size_t Axis = 0>
void arrives() {
  constexpr shape sent = make(First, Second, Third, Fourth, Ids, Axis);
  const std::array<std::size_t, 6> expected{First, Second, Third, Fourth, Ids, Axis};
  BOOST_TEST(taken_apart(sent) == expected, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_CASE(arrive_by_value) {
  arrives<28, 28, 0, 0>();
  arrives<3, 3, 3, 0>();
  arrives<3, 3, 3, 3>();
  arrives<1, 1, 0, 0>();
  arrives<1, 5, 5, 0>();
  arrives<1, 5, 5, 5>();
  arrives<5, 5, 1, 1>();
  arrives<7, 0, 0, 0>();
  arrives<65, 0, 0, 0, 65, 1>();
  arrives<1, 0, 0, 0, 1, 1>();
  arrives<1, 1, 0, 0, 0, 1>();
  arrives<2, 2, 0, 0, 0, 2>();
}

BOOST_AUTO_TEST_SUITE_END()
