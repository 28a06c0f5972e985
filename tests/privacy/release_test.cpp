// SPDX-License-Identifier: Apache-2.0
// tests/privacy/release_test.cpp - the gate: a public grid, a sum that acts by a shift alone, sensitivity that counts
// rounding
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/privacy/release.hpp>

#include "keys.hpp"

BOOST_AUTO_TEST_SUITE(release)

namespace {

using pergrad::noise_multiplier;
using pergrad::release_grid;
using pergrad::summation;
namespace detail = pergrad::detail;

template <class Scalar>
std::vector<Scalar> released(const release_grid& grid, const std::vector<Scalar>& sum,
                             const std::vector<std::int64_t>& integers = {}, double sigma = 1, double divisor = 1,
                             std::uint64_t step = 5) {
  pergrad::seeded_generator generator{3, step};
  const detail::release_gate<Scalar> gate{grid, pergrad::sensitivity_in_steps(grid, {}, 1), noise_multiplier{sigma},
                                          divisor, generator};
  std::vector<Scalar> out(grid.elements);
  const detail::unreleased_sum<Scalar> of{sum.empty() ? nullptr : sum.data(),
                                          integers.empty() ? nullptr : integers.data()};
  for (std::size_t i = 0; i < gate.stretches(); ++i) gate.release(i, of, out.data(), {});
  return out;
}

double step_of(const release_grid& grid) { return std::ldexp(1.0, grid.unit - grid.steps); }

}  // namespace

BOOST_AUTO_TEST_CASE(the_grid_is_a_power_of_two_from_public_numbers) {
  for (const double bound : {1e-30, 0.1, 0.5, 1.0, 1.5, 1e6, 1e38, 1.7e308}) {
    for (const std::size_t elements : {1U, 2U, 25'450U, 1'000'000U, 138'000'000U}) {
      const release_grid grid = release_grid::of(bound, elements);
      BOOST_TEST(std::ldexp(bound, -grid.unit) < 1);
      BOOST_TEST(std::ldexp(bound, -grid.unit) >= 0.5);
      // sqrt(d) g <= 2^-10 C, with room for the half steps that are added to the sensitivity
      const double share = std::sqrt(static_cast<double>(elements)) * std::ldexp(1.0, -grid.steps);
      BOOST_TEST(share * 0x1p10 <= std::ldexp(bound, -grid.unit) * 0.5);
      BOOST_TEST(share * 0x1p14 > 0.5);  // not finer than needed
    }
  }
  BOOST_CHECK_THROW(static_cast<void>(release_grid::of(0, 1)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(release_grid::of(std::numeric_limits<double>::infinity(), 1)),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(release_grid::of(std::nan(""), 1)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(sensitivity_counts_rounding) {
  const release_grid grid = release_grid::of(1, 10'000);
  const double bound = std::ldexp(1.0, grid.steps - grid.unit);
  BOOST_TEST(pergrad::sensitivity_in_steps(grid, {}, 1) >= bound + 50);
  BOOST_TEST(pergrad::sensitivity_in_steps(grid, {}, 1) < (bound + 50) * (1 + 1e-9));
  BOOST_TEST(pergrad::sensitivity_in_steps(grid, {}, 2) >= 2 * (bound + 50));
  const summation added = summation::of<float>(2048);
  BOOST_TEST(added.share() >= 2 * 2048 * summation::most_additions * 0x1p-24);
  BOOST_TEST(added.share() < 2 * 2048 * summation::most_additions * 0x1p-24 * 1.001);
  BOOST_TEST(pergrad::sensitivity_in_steps(grid, added, 1) >= bound * (1 + added.share()) + 200);
  BOOST_TEST(pergrad::sensitivity_in_steps(grid, added, 1) < bound * 1.02);
  // So many records that floating point would cost more: integers.
  BOOST_TEST(summation::of<float>(2400).capacity == 2400U);
  BOOST_TEST(summation::of<float>(65'536).capacity == 0U);
  BOOST_TEST(summation::of<double>(1U << 20U).capacity == 1U << 20U);
  for (const std::size_t capacity : {1U, 256U, 2048U, 2400U, 65'536U, 1U << 20U}) {
    BOOST_TEST(pergrad::sensitivity_in_steps(grid, summation::of<float>(capacity), 1) <= 1.02 * bound);
    BOOST_TEST(pergrad::sensitivity_in_steps(grid, summation::of<double>(capacity), 1) <= 1.02 * bound);
  }
}

// Whoever knows the noise finds the sum; a sum one step higher gives the same release, one step higher.
// What the longest sums that are allowed may be off by, by the formula itself, is what the sensitivity counts. One more
// addition or record would be refused or, of the largest sums, break the bound: no room is given away.
BOOST_AUTO_TEST_CASE(longer_ways_are_for_fewer_records) {
  const auto off = [](double unit, std::size_t additions, std::size_t records) {
    return std::expm1(static_cast<double>(additions) * std::log1p(unit)) * static_cast<double>(records);
  };
  for (const double unit : {0x1p-24, 0x1p-53}) {
    for (const std::size_t capacity : {1U, 7U, 64U, 350U, 2048U, 2500U}) {
      const summation added = summation::of(capacity, unit);
      const double counted = added.error * static_cast<double>(added.capacity);
      for (const std::size_t additions : {1U, 59U, 60U, 61U, 100U, 350U, 1000U, 2047U, 4096U}) {
        std::size_t records = 0;
        while (added.allows(records + 1, additions)) ++records;
        BOOST_TEST(off(unit, additions, records) <= counted, additions << " additions of " << records);
        BOOST_TEST((records == capacity || off(unit, additions, records + 3) > 0.99 * counted));
      }
      BOOST_TEST(!added.allows(1, 4097));
    }
  }
  BOOST_TEST(!summation{}.allows(1, 1));
}

BOOST_AUTO_TEST_CASE(a_sum_shifts_the_release_and_does_nothing_else) {
  constexpr std::size_t count = 3000;
  const release_grid grid = release_grid::of(0.7, count);
  const double step = std::ldexp(1.0, -grid.steps);  // in units
  std::mt19937 random{4};
  std::normal_distribution<double> normal;
  std::vector<double> sum(count);
  std::vector<double> higher(count);
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] = normal(random);
    higher[i] = sum[i] + step * static_cast<double>(i % 7);
  }
  const auto noise = released<double>(grid, {});
  const auto first = released(grid, sum);
  const auto second = released(grid, higher);
  for (std::size_t i = 0; i < count; ++i) {
    BOOST_TEST(noise[i] == step_of(grid) * std::nearbyint(noise[i] / step_of(grid)));
    BOOST_TEST(first[i] - noise[i] == step_of(grid) * std::nearbyint(sum[i] / step));
    BOOST_TEST(std::abs((second[i] - first[i]) / step_of(grid) - static_cast<double>(i % 7)) <= 1);
  }
}

BOOST_AUTO_TEST_CASE(floats_doubles_and_integers_get_the_same_noise) {
  constexpr std::size_t count = 2500;
  const release_grid grid = release_grid::of(1, count);
  std::vector<float> narrow(count);
  std::vector<double> wide(count);
  std::vector<std::int64_t> integers(count);
  std::vector<double> rest(count);
  for (std::size_t i = 0; i < count; ++i) {
    narrow[i] = static_cast<float>(static_cast<int>(i) - 1250) / 1024;
    wide[i] = static_cast<double>(narrow[i]);
    integers[i] = static_cast<std::int64_t>(i * i % 1000) - 500;
    rest[i] = wide[i] - std::ldexp(static_cast<double>(integers[i]), -grid.steps);
  }
  const auto of_doubles = released(grid, wide);
  BOOST_TEST((released(grid, rest, integers) == of_doubles));
  const auto of_floats = released(grid, narrow);
  for (std::size_t i = 0; i < count; ++i) BOOST_TEST(of_floats[i] == static_cast<float>(of_doubles[i]));
}

BOOST_AUTO_TEST_CASE(stretches_in_any_order_and_in_place) {
  constexpr std::size_t count = 5000;
  const release_grid grid = release_grid::of(1, count);
  std::vector<float> sum(count);
  for (std::size_t i = 0; i < count; ++i) sum[i] = static_cast<float>(i % 100) / 64;
  const auto wanted = released(grid, sum);
  pergrad::seeded_generator generator{3, 5};
  const detail::release_gate<float> gate{grid, pergrad::sensitivity_in_steps(grid, {}, 1), noise_multiplier{1}, 1,
                                         generator};
  auto in_place = sum;
  for (std::size_t i = gate.stretches(); i-- > 0;) gate.release(i, {in_place.data(), nullptr}, in_place.data(), {});
  BOOST_TEST((in_place == wanted));

  struct seen_type {
    std::vector<float> values;
    std::vector<int> times;
  } seen{std::vector<float>(count), std::vector<int>(count)};
  const detail::element_update<float> update{
      &seen, [](void* context, std::size_t first, float* values, std::size_t size) {
        auto* to = static_cast<seen_type*>(context);
        std::copy_n(values, size, to->values.begin() + static_cast<std::ptrdiff_t>(first));
        for (std::size_t i = first; i < first + size; ++i) ++to->times[i];
      }};
  for (std::size_t i = 0; i < gate.stretches(); ++i) gate.release(i, {sum.data(), nullptr}, nullptr, update);
  BOOST_TEST((seen.values == wanted));
  BOOST_TEST((seen.times == std::vector<int>(count, 1)));
}

BOOST_AUTO_TEST_CASE(the_divisor_scales_the_grid) {
  const release_grid grid = release_grid::of(1, 100);
  const auto whole = released<double>(grid, {});
  const auto half = released<double>(grid, {}, {}, 1, 2);
  for (std::size_t i = 0; i < 100; ++i) BOOST_TEST(half[i] == whole[i] / 2);
}

// Nothing that a sum can be makes a release that is not finite, and clamping brings no two sums further apart.
BOOST_AUTO_TEST_CASE(huge_and_tiny_sums_give_finite_releases) {
  const auto none = std::numeric_limits<float>::denorm_min();
  const auto most = std::numeric_limits<float>::max();
  const auto infinite = std::numeric_limits<float>::infinity();
  for (const double bound : {1e-30, 1.0, 3e37}) {
    const release_grid grid = release_grid::of(bound, 8);
    const std::vector<float> sum{0, none, -none, most, -most, infinite, -infinite, std::nanf("")};
    for (const float value : released(grid, sum)) BOOST_TEST(std::isfinite(value));
    const auto noise = released<float>(grid, {});
    const auto out = released(grid, sum);
    for (std::size_t i = 0; i < 3; ++i) BOOST_TEST(out[i] == noise[i]);
  }
  const release_grid grid = release_grid::of(1, 4);
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min() / 2;
  for (const double value : released<double>(grid, {1e300, -1e300, 1, 1}, {1, -1, lowest, -lowest})) {
    BOOST_TEST(std::isfinite(value));
    BOOST_TEST(std::abs(value) <= std::ldexp(1.01, 50 + grid.unit - grid.steps));
  }
}

BOOST_AUTO_TEST_CASE(noise_that_the_grid_cannot_carry_is_refused) {
  const release_grid grid = release_grid::of(1, 1000);
  const double sensitivity = pergrad::sensitivity_in_steps(grid, {}, 1);
  pergrad::seeded_generator generator{1};
  const auto make = [&](double sigma) {
    const detail::release_gate<float> gate{grid, sensitivity, noise_multiplier{sigma}, 1, generator};
  };
  BOOST_CHECK_NO_THROW(make(0.5));
  const std::uint64_t before = generator.step();
  BOOST_CHECK_THROW(make(1e-7), std::invalid_argument);
  BOOST_CHECK_THROW(make(1e12), std::invalid_argument);
  BOOST_TEST(generator.step() == before);
  release_grid large = grid;
  large.elements = pergrad::gaussians_per_step + 1;
  BOOST_CHECK_THROW((detail::release_gate<float>{large, sensitivity, noise_multiplier{1}, 1, generator}),
                    std::out_of_range);
  // A rehearsal may go without; a secret key may not (expressions/noise_test.cpp).
  const detail::release_gate<float> gate{grid, sensitivity, noise_multiplier{0}, 1, generator};
  std::vector<float> sum(1000, 0.25F);
  std::vector<float> out(1000);
  gate.release(0, {sum.data(), nullptr}, out.data(), {});
  BOOST_TEST((out == std::vector<float>(1000, std::ldexp(0.25F, grid.unit))));
}

BOOST_AUTO_TEST_SUITE_END()
