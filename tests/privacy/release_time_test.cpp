// SPDX-License-Identifier: Apache-2.0
// tests/privacy/release_time_test.cpp - a release takes as long whatever the sum is
//
// One noise for all, as it is drawn for the same step; sums take turns in the same memory, as some pages of a cache are
// slower than others, and of each the shortest of many times counts, which other programs cannot make shorter. A
// release that does more for some sums is planted, and has to be found.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/release.hpp>

BOOST_AUTO_TEST_SUITE(privacy_release_time)

namespace {

using clock_type = std::chrono::steady_clock;

/// Sums that arithmetic might take longer over, and an ordinary one.
template <class Scalar>
std::vector<std::vector<Scalar>> every_kind_of_sum(std::size_t count) {
  using limits = std::numeric_limits<Scalar>;
  std::vector<std::vector<Scalar>> sums;
  for (const Scalar value : {Scalar{0}, Scalar{0.3F}, Scalar{-0.3F}, limits::denorm_min(), limits::min() / 3,
                             limits::max(), limits::lowest(), limits::infinity(), limits::quiet_NaN()}) {
    sums.emplace_back(count, value);
  }
  // signs that no branch predicts
  std::vector<Scalar> mixed(count);
  std::uint32_t random = 1;
  for (Scalar& value : mixed) {
    random = random * 1664525U + 1013904223U;
    value = (random >> 31U) != 0 ? Scalar{0.3F} : limits::denorm_min();
  }
  sums.push_back(mixed);
  return sums;
}

/// By how much the slowest kind of sum takes longer than the fastest. Rounds go on until that is less than `enough`.
template <class Scalar, class Release>
double largest_ratio(double enough, const Release& release) {
  constexpr std::size_t count = 4 * pergrad::detail::gaussian_block;
  const auto sums = every_kind_of_sum<Scalar>(count);
  std::vector<double> shortest(sums.size(), 1e9);
  std::vector<Scalar> sum(count);
  std::vector<Scalar> out(count);
  double ratio = 0;
  for (int round = 0; round < 20; ++round) {
    for (int turn = 0; turn < 50; ++turn) {
      for (std::size_t k = 0; k < sums.size(); ++k) {
        std::copy(sums[k].begin(), sums[k].end(), sum.begin());
        const auto begin = clock_type::now();
        release(sum, out);
        const std::chrono::duration<double> took = clock_type::now() - begin;
        shortest[k] = std::min(shortest[k], took.count());
      }
    }
    const auto [least, most] = std::ranges::minmax(shortest);
    ratio = most / least;
    if (ratio < enough) break;
  }
  return ratio;
}

constexpr double alike = 1.04;

template <class Scalar>
void check(bool with_integers) {
  constexpr std::size_t count = 4 * pergrad::detail::gaussian_block;
  const auto grid = pergrad::release_grid::of(1, count);
  pergrad::seeded_generator generator{3};
  const pergrad::detail::release_gate<Scalar> gate{grid, pergrad::sensitivity_in_steps(grid, {}, 1),
                                                   pergrad::noise_multiplier{1}, 1, generator};
  BOOST_TEST_REQUIRE(gate.stretches() == 1U);
  const std::vector<std::int64_t> integers(count, 12345);
  const auto release = [&](const std::vector<Scalar>& sum, std::vector<Scalar>& out) {
    gate.release(0, {sum.data(), with_integers ? integers.data() : nullptr}, out.data(), {});
  };
  BOOST_TEST(largest_ratio<Scalar>(alike, release) < alike);
  // What one in 16 elements costs more: those that are too large are halved until they fit, and subnormal ones are
  // looked at.
  const auto planted = [&](const std::vector<Scalar>& sum, std::vector<Scalar>& out) {
    gate.release(0, {sum.data(), with_integers ? integers.data() : nullptr}, out.data(), {});
    for (std::size_t i = 0; i < count; i += 16) {
      volatile Scalar value = sum[i];
      while (std::isfinite(value) && std::fabs(value) > Scalar{1e6F}) value = value / 2;
    }
  };
  BOOST_TEST(largest_ratio<Scalar>(alike, planted) > alike);
}

}  // namespace

BOOST_AUTO_TEST_CASE(no_sum_takes_longer_than_another) {
  check<float>(false);
  check<double>(false);
}
BOOST_AUTO_TEST_CASE(nor_beside_integers) {
  check<float>(true);
  check<double>(true);
}

BOOST_AUTO_TEST_SUITE_END()
