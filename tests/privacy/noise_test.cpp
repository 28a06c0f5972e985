// SPDX-License-Identifier: Apache-2.0
// tests/privacy/noise_test.cpp - the bits of the noise: pinned, the same for any split, width and type; tails reached.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/noise.hpp>

#include "noise_golden.hpp"

BOOST_AUTO_TEST_SUITE(privacy_noise)

namespace {

using pergrad::random_purpose;
namespace detail = pergrad::detail;

const pergrad::chacha_key key = pergrad::seeded_generator{20240503}.key();
constexpr auto purpose = random_purpose::gradient_noise;

template <int Lanes>
std::vector<float> standard(std::uint64_t step, std::uint64_t first, std::size_t count) {
  std::vector<float> z(count);
  pergrad::fill_gaussian<float, Lanes>(key, purpose, step, first, std::span{z});
  return z;
}

std::vector<float> standard(std::uint64_t step, std::uint64_t first, std::size_t count) {
  return standard<detail::native_lanes>(step, first, count);
}

std::array<float, 2> pair_of(std::uint64_t u, std::uint32_t angle) {
  std::array<float, 2> z{};
  detail::box_muller<1>(static_cast<std::uint32_t>(u >> 32U), static_cast<std::uint32_t>(u & 0xffff'ffffU), angle, z[0],
                        z[1]);
  return z;
}

}  // namespace

BOOST_AUTO_TEST_CASE(hash_is_the_pinned_one_for_every_width) {
  BOOST_TEST(noise_golden::noise_hash<4>() == noise_golden::expected);
  if constexpr (detail::native_lanes >= 8) BOOST_TEST(noise_golden::noise_hash<8>() == noise_golden::expected);
  if constexpr (detail::native_lanes >= 16) BOOST_TEST(noise_golden::noise_hash<16>() == noise_golden::expected);
}

BOOST_AUTO_TEST_CASE(scalar_reference_gives_the_same_bits) {
  for (const std::uint64_t step : {std::uint64_t{0}, ~std::uint64_t{0}}) {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1'000'000'007}}) {
      const auto z = standard(step, first, 1500);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < z.size(); ++i) {
        wrong += std::bit_cast<std::uint32_t>(z[i]) !=
                         std::bit_cast<std::uint32_t>(pergrad::gaussian(key, purpose, step, first + i))
                     ? 1U
                     : 0U;
      }
      BOOST_TEST(wrong == 0U);
    }
  }
  noise_golden::fnv scalar;
  noise_golden::fnv vector;
  noise_golden::hash_special_words<1>(scalar);
  noise_golden::hash_special_words<detail::native_lanes>(vector);
  BOOST_TEST(scalar.value() == vector.value());
}

BOOST_AUTO_TEST_CASE(any_split_of_a_range_gives_the_same_bits) {
  constexpr std::size_t count = 3001;
  constexpr std::uint64_t first = 777;
  const auto whole = standard(4, first, count);
  for (const std::size_t piece : {1U, 7U, 16U, 255U, 512U, 513U, 1000U}) {
    std::vector<float> parts(count);
    for (std::size_t at = 0; at < count; at += piece) {
      pergrad::fill_gaussian(key, purpose, 4, first + at, std::span{parts}.subspan(at, std::min(piece, count - at)));
    }
    BOOST_TEST((parts == whole), "pieces of " << piece);
  }
}

BOOST_AUTO_TEST_CASE(sums_are_one_fused_step_per_element) {
  constexpr std::size_t count = 1100;
  constexpr double deviation = 0.7;
  const auto z = standard(11, 5, count);
  std::vector<float> single(count);
  std::vector<double> twice(count);
  for (std::size_t i = 0; i < count; ++i) {
    single[i] = static_cast<float>(i) - 500.5F;
    twice[i] = static_cast<double>(i) * 1e-3;
  }
  const auto single_before = single;
  const auto twice_before = twice;
  pergrad::add_gaussian(key, purpose, 11, 5, deviation, std::span{single});
  pergrad::add_gaussian(key, purpose, 11, 5, deviation, std::span{twice});
  const float scale = std::nextafter(static_cast<float>(deviation), 1.0F);
  BOOST_REQUIRE(static_cast<double>(static_cast<float>(deviation)) < deviation);
  for (std::size_t i = 0; i < count; ++i) {
    BOOST_REQUIRE(single[i] == std::fma(scale, z[i], single_before[i]));
    BOOST_REQUIRE(twice[i] == std::fma(deviation, static_cast<double>(z[i]), twice_before[i]));
  }
}

BOOST_AUTO_TEST_CASE(float_deviation_is_never_below_the_accounted_one) {
  for (const double x : {0.1, 0.37, 1.0, 1e-40, 1e-46, 3.3e38, 123.456, 1.0000000001}) {
    const float up = detail::rounded_up<float>(x);
    BOOST_TEST(static_cast<double>(up) >= x);
    BOOST_TEST(static_cast<double>(std::nextafter(up, 0.0F)) < x);
  }
  BOOST_TEST(detail::rounded_up<float>(0.0) == 0.0F);
  BOOST_CHECK_THROW(static_cast<void>(detail::rounded_up<float>(1e39)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(bad_requests_throw_and_write_nothing) {
  std::vector<float> values(2, 1.0F);
  const auto add = [&](std::uint64_t first, double deviation) {
    pergrad::add_gaussian(key, purpose, 0, first, deviation, std::span{values});
  };
  BOOST_CHECK_THROW(add(0, -1.0), std::invalid_argument);
  BOOST_CHECK_THROW(add(0, std::numeric_limits<double>::quiet_NaN()), std::invalid_argument);
  BOOST_CHECK_THROW(add(0, std::numeric_limits<double>::infinity()), std::invalid_argument);
  BOOST_CHECK_THROW(add(0, 1e39), std::invalid_argument);
  BOOST_CHECK_THROW(add(pergrad::gaussians_per_step - 1, 1.0), std::out_of_range);
  BOOST_CHECK_THROW(add(~std::uint64_t{0}, 1.0), std::out_of_range);
  BOOST_CHECK_THROW(static_cast<void>(pergrad::gaussian(key, purpose, 0, pergrad::gaussians_per_step)),
                    std::out_of_range);
  BOOST_TEST((values == std::vector<float>(2, 1.0F)));
  BOOST_CHECK_NO_THROW(add(pergrad::gaussians_per_step - 2, 1.0));
  add(0, 0.0);
}

BOOST_AUTO_TEST_CASE(tail_reaches_nine_point_four) {
  const double farthest = std::sqrt(128 * std::log(2.0));
  for (const std::uint64_t u : {std::uint64_t{0}, std::uint64_t{1}}) {
    const auto z = pair_of(u, 0);
    BOOST_TEST(z[0] > 9.4F);
    BOOST_TEST(std::abs(static_cast<double>(z[0]) - farthest) < 2e-6);
    BOOST_TEST(pair_of(u, 0x4000'0000U)[1] > 9.4F);
    BOOST_TEST(pair_of(u, 0x8000'0000U)[0] < -9.4F);
    BOOST_TEST(pair_of(u, 0xc000'0000U)[1] < -9.4F);
  }
  const auto near_zero = pair_of(~std::uint64_t{0}, 0);
  BOOST_TEST(near_zero[0] > 0.0F);
  BOOST_TEST(near_zero[0] < 1e-4F);
}

BOOST_AUTO_TEST_CASE(transform_is_accurate_over_its_whole_domain) {
  double worst_log = 0;
  double worst_angle = 0;
  for (const auto& word : noise_golden::special_words()) {
    const std::uint64_t u = (static_cast<std::uint64_t>(word[0]) << 32U) | word[1];
    // The implementation keeps 32 bits below the leading zeros and centres the cell; so does this reference.
    const int zeros = std::countl_zero(u | 1U);
    const std::uint64_t kept = ((u | (word[0] == 0 ? 1U : 0U)) << static_cast<unsigned>(zeros)) >> 32U;
    const bool doubled = kept < 0xb504f334U;
    const double fraction = static_cast<double>(doubled ? ((kept << 1U) | 1U) : (kept | 1U)) * (doubled ? 0.5 : 1.0);
    const double wanted = -2 * (std::log1p((fraction - 0x1p32) * 0x1p-32) - zeros * std::log(2.0));
    const auto got = static_cast<double>(detail::minus_two_log<1>(word[0], word[1]));
    worst_log = std::max(worst_log, std::abs(got - wanted) / wanted);
    const auto z = pair_of(u, word[2]);
    const double angle =
        2 * std::acos(-1.0) *
        (static_cast<double>(word[2] & 0x3fff'ffffU) * 0x1p-32 + static_cast<double>(word[2] >> 30U) * 0.25 -
         ((word[2] & 0x2000'0000U) != 0 ? 0.25 : 0.0) + 0x1p-33);
    const double radius = std::sqrt(got);
    worst_angle = std::max(worst_angle, std::abs(static_cast<double>(z[0]) - radius * std::cos(angle)) / radius);
    worst_angle = std::max(worst_angle, std::abs(static_cast<double>(z[1]) - radius * std::sin(angle)) / radius);
  }
  BOOST_TEST_MESSAGE("relative error of -2 ln u " << worst_log << ", of the direction " << worst_angle);
  BOOST_TEST(worst_log < 2e-7);
  BOOST_TEST(worst_angle < 2.5e-7);
}

BOOST_AUTO_TEST_CASE(keys_purposes_and_steps_give_different_noise) {
  const auto z = standard(0, 0, 512);
  std::vector<float> other(512);
  const auto agreeing = [&] {
    std::size_t same = 0;
    for (std::size_t i = 0; i < z.size(); ++i) same += z[i] == other[i] ? 1U : 0U;
    return same;
  };
  pergrad::fill_gaussian(key, purpose, 1, 0, std::span{other});
  BOOST_TEST(agreeing() < 3U);
  pergrad::fill_gaussian(key, random_purpose::auxiliary_noise, 0, 0, std::span{other});
  BOOST_TEST(agreeing() < 3U);
  pergrad::fill_gaussian(pergrad::seeded_generator{1}.key(), purpose, 0, 0, std::span{other});
  BOOST_TEST(agreeing() < 3U);
  pergrad::fill_gaussian(key, purpose, std::uint64_t{1} << 32U, 0, std::span{other});
  BOOST_TEST(agreeing() < 3U);
}

BOOST_AUTO_TEST_SUITE_END()
