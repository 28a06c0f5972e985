// SPDX-License-Identifier: Apache-2.0
// tests/comparing.hpp - results next to those that they should be: the same bits, or the same up to rounding
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace comparing {

/// Tells -0 from 0, and one NaN from another.
template <std::ranges::contiguous_range One, std::ranges::contiguous_range Other>
[[nodiscard]] bool same_bits(const One& one, const Other& other) {
  using value = std::ranges::range_value_t<One>;
  static_assert(std::is_same_v<value, std::ranges::range_value_t<Other>>);
  return std::ranges::size(one) == std::ranges::size(other) &&
         std::memcmp(std::ranges::data(one), std::ranges::data(other), std::ranges::size(one) * sizeof(value)) == 0;
}

/// Squared in long double.
template <class Scalar>
[[nodiscard]] long double norm_of(std::span<const Scalar> values) {
  long double sum = 0;
  for (const Scalar value : values) sum += static_cast<long double>(value) * static_cast<long double>(value);
  return std::sqrt(sum);
}
template <class Scalar>
[[nodiscard]] long double norm_of(const std::vector<Scalar>& values) {
  return norm_of(std::span<const Scalar>{values});
}

/// NaN if one of the differences is.
template <class Left, class Right>
[[nodiscard]] double largest_difference(const std::vector<Left>& found, const std::vector<Right>& wanted) {
  BOOST_TEST_REQUIRE(found.size() == wanted.size());
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = std::fabs(static_cast<double>(found[i]) - static_cast<double>(wanted[i]));
    if (!(error <= worst)) worst = error;
    if (std::isnan(error)) break;
  }
  return worst;
}

/// The same numbers up to `tolerance` relative to the largest one.
template <class Left, class Right>
void check_close(const std::vector<Left>& found, const std::vector<Right>& wanted, double tolerance,
                 const std::string& what) {
  BOOST_TEST_REQUIRE(found.size() == wanted.size(), what);
  double largest = 0;
  for (const Right value : wanted) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  const double worst = largest_difference(found, wanted);
  BOOST_TEST(largest > 0, what << ": compares nothing but zeros");
  BOOST_TEST(worst <= tolerance * largest, what << ": off by " << worst << " at a magnitude of " << largest);
}

}  // namespace comparing
