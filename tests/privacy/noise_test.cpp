// SPDX-License-Identifier: Apache-2.0
// tests/privacy/noise_test.cpp - the bits of the noise: pinned, the same for any split, width and type; its values
// those of the formula in long double; tails reached.
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
#include "noise_reference.hpp"

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

using words = std::array<std::uint32_t, 3>;

std::array<float, 2> pair_of(const words& from) {
  std::array<float, 2> z{};
  detail::box_muller<1>(noise_golden::uniform_of<1>(from), from[1], z[0], z[1]);
  return z;
}

float squared_radius_of(const words& from) { return detail::minus_two_log<1>(noise_golden::uniform_of<1>(from)); }

/// The second word with these eight bits of the uniform, the rest of it 0.
constexpr std::uint32_t eight_bits(std::uint32_t eight) { return eight << 23U; }

/// Elements of the first half of their tile whose first word is small, among tiles [0, tiles) of a step.
std::vector<std::uint64_t> long_radii(std::uint64_t step, std::uint64_t tiles) {
  std::vector<std::uint64_t> found;
  std::vector<std::uint32_t> blocks(256);
  for (std::uint64_t tile = 0; tile < tiles; ++tile) {
    pergrad::chacha20_keystream(key, pergrad::make_nonce(purpose, step), 48 * tile, std::span{blocks});
    for (std::size_t at = 0; at < blocks.size(); ++at) {
      if (blocks[at] < 0x1'0000U) found.push_back(512 * tile + 16 * (at % 16) + at / 16);
    }
  }
  return found;
}

/// |z - reference| in units of its pair's radius.
double error_of(float z, std::uint64_t step, std::uint64_t element) {
  const auto nonce = pergrad::make_nonce(purpose, step).words;
  const auto from = noise_reference::words_of(key.words, nonce, element);
  const long double wanted = noise_reference::gaussian(key.words, nonce, element);
  return static_cast<double>(std::abs(static_cast<long double>(z) - wanted) /
                             std::sqrt(noise_reference::squared_radius(from)));
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

BOOST_AUTO_TEST_CASE(tail_reaches_nine_point_nine_nine) {
  const double farthest = std::sqrt(144 * std::log(2.0));
  constexpr std::uint32_t middle = 0x40'0000;  // on an axis
  for (const std::uint32_t third : {0U, 1U}) {
    BOOST_TEST(std::abs(static_cast<double>(pair_of({0, middle, third})[0]) - farthest) < 2e-6);
    BOOST_TEST(std::abs(static_cast<double>(pair_of({0, middle | 1U, third})[0]) + farthest) < 2e-6);
    BOOST_TEST(std::abs(static_cast<double>(pair_of({0, middle | 0x8000'0000U, third})[1]) - farthest) < 2e-6);
    BOOST_TEST(std::abs(static_cast<double>(pair_of({0, middle | 0x8000'0001U, third})[1]) + farthest) < 2e-6);
  }
  const auto near_zero = pair_of({~0U, middle | eight_bits(0xff), 0});
  BOOST_TEST(near_zero[0] > 0.9e-6F);
  BOOST_TEST(near_zero[0] < 1e-6F);
}

BOOST_AUTO_TEST_CASE(transform_is_accurate_over_its_whole_domain) {
  double worst_log = 0;
  double worst_direction = 0;
  for (const auto& each : noise_golden::special_words()) {
    const long double wanted = noise_reference::squared_radius(each);
    const auto got = static_cast<long double>(squared_radius_of(each));
    worst_log = std::max(worst_log, static_cast<double>(std::abs(got - wanted) / wanted));
    const auto z = pair_of(each);
    const auto axes = noise_reference::direction(each[1]);
    for (std::size_t i = 0; i < 2; ++i) {
      const long double component = std::sqrt(got) * axes[i];
      worst_direction = std::max(
          worst_direction, static_cast<double>(std::abs(static_cast<long double>(z[i]) - component) / std::sqrt(got)));
    }
  }
  BOOST_TEST_MESSAGE("relative error of -2 ln u " << worst_log << ", of the direction " << worst_direction);
  BOOST_TEST(worst_log < 2e-7);
  BOOST_TEST(worst_direction < 2.5e-7);
}

BOOST_AUTO_TEST_CASE(values_are_those_of_the_formula) {
  double worst = 0;
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{999'999'488}}) {
    const auto z = standard(3, first, 4096);
    for (std::size_t i = 0; i < z.size(); ++i) worst = std::max(worst, error_of(z[i], 3, first + i));
  }
  BOOST_TEST_MESSAGE("worst error of a Gaussian " << worst << " of its radius");
  BOOST_TEST(worst < 2.5e-7);
}

// Up to a rounding the radius falls while u grows, over every seam of the uniform: where the third word begins and
// ends, where the eight bits are carried, and at one half, where the number's form changes.
BOOST_AUTO_TEST_CASE(radius_is_monotone_over_every_seam) {
  const auto below_and_above = [](const words& below, const words& above) {
    const auto far = static_cast<double>(squared_radius_of(below));
    const auto near = static_cast<double>(squared_radius_of(above));
    BOOST_TEST(near < far * (1 + 1.5e-7), "seam at " << above[0]);
    BOOST_TEST(near > far * (1 - 4e-7), "seam at " << above[0]);
  };
  below_and_above({0, eight_bits(0xff), ~0U}, {1, 0, 0});
  below_and_above({0xffff, eight_bits(0xff), ~0U}, {0x1'0000, 0, 0});
  for (unsigned bit = 17; bit < 32; ++bit) {
    const std::uint32_t power = 1U << bit;
    below_and_above({power - 1, eight_bits(0xff), 0}, {power, 0, 0});
    below_and_above({power, eight_bits(0xff), 0}, {power + 1, 0, 0});
  }
  for (std::uint32_t eight = 1; eight < 0x100; ++eight) {
    below_and_above({0x1'0000, eight_bits(eight - 1), 0}, {0x1'0000, eight_bits(eight), 0});
    below_and_above({0xffff, eight_bits(eight - 1), ~0U}, {0xffff, eight_bits(eight), 0});
  }
}

// 4000 tiles have 1,024,000 pairs: 15.6 of them with a small first word are expected. Of the three further ones, found
// by a search, the first word is 4 or 3: there another third word would be another radius.
BOOST_AUTO_TEST_CASE(a_small_first_word_has_a_third_and_leaves_its_tile_alone) {
  constexpr std::uint64_t step = 21;
  const auto nonce = pergrad::make_nonce(purpose, step).words;
  auto elements = long_radii(step, 4000);
  BOOST_TEST(elements.size() > 3U);
  BOOST_TEST(elements.size() < 40U);
  const std::array<std::uint64_t, 3> smallest{512 * 270174 + 199, 512 * 3044820 + 240, 512 * 3300054 + 10};
  elements.insert(elements.end(), smallest.begin(), smallest.end());
  double worst = 0;
  for (const std::uint64_t element : elements) {
    const std::uint64_t begin = element / 512 * 512;
    const auto z = standard(step, begin, 512);
    BOOST_TEST((standard<4>(step, begin, 512) == z));
    if constexpr (detail::native_lanes >= 8) BOOST_TEST((standard<8>(step, begin, 512) == z));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      worst = std::max(worst, error_of(z[i], step, begin + i));
      wrong += z[i] != pergrad::gaussian(key, purpose, step, begin + i) ? 1U : 0U;
    }
    BOOST_TEST(wrong == 0U);
    const std::size_t place = element % 512;
    BOOST_TEST(std::hypot(z[place], z[256 + place]) > 4.709F);
    const auto from = noise_reference::words_of(key.words, nonce, element);
    BOOST_TEST(from[0] < 0x1'0000U);
  }
  for (const std::uint64_t element : smallest) {
    auto from = noise_reference::words_of(key.words, nonce, element);
    BOOST_TEST(from[0] <= 4U);
    const long double radius = std::sqrt(noise_reference::squared_radius(from));
    from[2] ^= 0x8000'0000U;
    BOOST_TEST(std::abs(std::sqrt(noise_reference::squared_radius(from)) - radius) > 4 * 2.5e-7L * radius);
  }
  BOOST_TEST_MESSAGE(elements.size() << " pairs, worst error of a Gaussian " << worst << " of its radius");
  BOOST_TEST(worst < 2.5e-7);
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
