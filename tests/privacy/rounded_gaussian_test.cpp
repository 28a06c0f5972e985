// SPDX-License-Identifier: Apache-2.0
// tests/privacy/rounded_gaussian_test.cpp - the integers of the noise: pinned, the same for any vector width; each of
// them what arithmetic with more digits gives; and what is not proven is found
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include <pergrad/privacy/noise/rounded_gaussian.hpp>

#include "keys.hpp"
#include "rounded_gaussian_golden.hpp"

BOOST_AUTO_TEST_SUITE(rounded_gaussian)

namespace {

namespace detail = pergrad::detail;
using detail::gaussian_bits;

constexpr std::uint64_t seed = 20261124;
const pergrad::chacha_key key = key_of_seed(seed, detail::randomness::noise);
const pergrad::chacha_nonce nonce = pergrad::make_nonce(pergrad::random_purpose::gradient_noise, 7);

using real = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<150>>;

/// Both integers from Box and Muller's formula with 150 digits: no line of it is the library's.
std::array<std::int64_t, 2> with_many_digits(const gaussian_bits& bits, double sigma) {
  real u = 0;
  real r = 0;
  for (int i = gaussian_bits::words; i-- > 0;) {
    u = (u + bits.u[i]) / 4294967296.0;
    r = i == 0 ? (r + (bits.v[0] & 0x3fff'ffffU)) / 1073741824.0 : (r + bits.v[i]) / 4294967296.0;
  }
  const real pi = 4 * atan(real{1});
  const real radius = sigma * sqrt(-2 * log(u));
  const real angle = pi / 4 * (2 * r - 1);
  real cosine = radius * cos(angle);
  real sine = radius * sin(angle);
  if ((bits.v[0] & 0x4000'0000U) != 0) cosine = -cosine;
  if ((bits.v[0] & 0x8000'0000U) != 0) swap(cosine, sine);
  const auto nearest = [](const real& x) { return static_cast<std::int64_t>(floor(x + 0.5)); };
  return {nearest(cosine), nearest(sine)};
}

struct tile {
  alignas(64) double k[detail::gaussian_block];
  alignas(64) double margins[detail::gaussian_block / 2];
};

}  // namespace

BOOST_AUTO_TEST_CASE(hash_is_the_pinned_one_for_every_width) {
  BOOST_TEST(noise_golden::noise_hash<4>() == noise_golden::expected);
  if constexpr (detail::native_lanes >= 8) BOOST_TEST(noise_golden::noise_hash<8>() == noise_golden::expected);
  if constexpr (detail::native_lanes >= 16) BOOST_TEST(noise_golden::noise_hash<16>() == noise_golden::expected);
}

BOOST_AUTO_TEST_CASE(exact_pairs_are_those_of_many_digits) {
  std::mt19937 random{1};
  for (int turn = 0; turn < 600; ++turn) {
    gaussian_bits bits{};
    for (int i = 0; i < gaussian_bits::words; ++i) {
      bits.u[i] = static_cast<std::uint32_t>(random());
      bits.v[i] = static_cast<std::uint32_t>(random());
    }
    if (turn % 5 == 1) bits.u[0] = turn % 2 == 0 ? 0 : ~0U;
    if (turn % 5 == 1) bits.u[1] = turn % 2 == 0 ? bits.u[1] >> (turn % 32) : ~0U;
    if (turn % 5 == 2) bits.v[0] = (bits.v[0] & 0xc000'0000U) | (turn % 2 == 0 ? 0x2000'0000U : 0x1fff'ffffU);
    if (turn % 5 == 2) bits.v[1] = turn % 2 == 0 ? 0 : ~0U;
    const double sigma = std::ldexp(1 + static_cast<double>(random()) * 0x1p-32, static_cast<int>(random() % 42) + 4);
    std::int64_t k[2];
    detail::exact_pair(bits, sigma, k);
    const auto wanted = with_many_digits(bits, sigma);
    BOOST_TEST((k[0] == wanted[0] && k[1] == wanted[1]), "turn " << turn << ", sigma " << sigma);
  }
}

// Where U has many leading zeros, its first 128 bits do not settle anything: the pair reads on.
BOOST_AUTO_TEST_CASE(bits_are_read_until_they_settle_a_rounding) {
  for (int zero_words = 2; zero_words < 7; ++zero_words) {
    gaussian_bits bits{};
    for (int i = 0; i < gaussian_bits::words; ++i) {
      bits.u[i] = i < zero_words ? 0 : 0x9e3779b9U * static_cast<std::uint32_t>(i);
      bits.v[i] = 0x12345678U + static_cast<std::uint32_t>(i);
    }
    std::int64_t k[2];
    BOOST_TEST(detail::round_pair(4, bits, 0x1p46, k) == (zero_words <= 2));
    detail::exact_pair(bits, 0x1p46, k);
    const auto wanted = with_many_digits(bits, 0x1p46);
    BOOST_TEST(k[0] == wanted[0]);
    BOOST_TEST(k[1] == wanted[1]);
    BOOST_TEST(std::hypot(static_cast<double>(k[0]), static_cast<double>(k[1])) > 9.4 * 0x1p46);  // the tail goes on
  }
  gaussian_bits none{};
  std::int64_t k[2];
  detail::exact_pair(none, 16, k);
  BOOST_TEST(std::hypot(static_cast<double>(k[0]), static_cast<double>(k[1])) > 20.9 * 16);
}

BOOST_AUTO_TEST_CASE(every_rounding_that_is_kept_is_right) {
  std::size_t open = 0;
  for (const double sigma : {16.0, 0x1p20, 0x1.7p24, 0x1p32, 0x1p38}) {
    for (std::uint64_t number = 0; number < 40; ++number) {
      tile fast{};
      static_cast<void>(detail::fill_rounded_block<detail::native_lanes>(key, nonce, number, 2 * sigma * sigma, fast.k,
                                                                         fast.margins));
      tile settled{};
      detail::fill_rounded_gaussians(key, nonce, number, sigma, settled.k);
      std::size_t wrong = 0;
      for (std::uint32_t pair = 0; pair < 256; ++pair) {
        std::int64_t exact[2];
        detail::exact_pair(detail::bits_of_pair(key, nonce, number, pair), sigma, exact);
        const bool is_open = std::signbit(fast.margins[pair]);
        open += is_open ? 1U : 0U;
        for (std::size_t i = 0; i < 2; ++i) {
          const auto wanted = static_cast<double>(exact[i]);
          if (!is_open && fast.k[pair + 256 * i] != wanted) ++wrong;
          if (settled.k[pair + 256 * i] != wanted) ++wrong;
        }
      }
      BOOST_TEST(wrong == 0U);
    }
  }
  BOOST_TEST(open > 0U);
}

// The arithmetic made worse on purpose, by an error of the radius: as long as it is within the bound that the test of a
// rounding counts on, no kept rounding is wrong; a larger error is seen. So the test is neither idle nor too generous.
BOOST_AUTO_TEST_CASE(worse_arithmetic_is_found_out) {
  constexpr double sigma = 0x1p38;
  const auto wrong_with = [&](double error) {
    std::size_t wrong = 0;
    for (std::uint64_t number = 0; number < 60; ++number) {
      tile fast{};
      const double twice_variance = 2 * sigma * sigma * (1 + 2 * error);
      static_cast<void>(
          detail::fill_rounded_block<detail::native_lanes>(key, nonce, number, twice_variance, fast.k, fast.margins));
      for (std::uint32_t pair = 0; pair < 256; ++pair) {
        std::int64_t exact[2];
        detail::exact_pair(detail::bits_of_pair(key, nonce, number, pair), sigma, exact);
        const bool differs =
            fast.k[pair] != static_cast<double>(exact[0]) || fast.k[pair + 256] != static_cast<double>(exact[1]);
        if (differs && !std::signbit(fast.margins[pair])) ++wrong;
      }
    }
    return wrong;
  };
  BOOST_TEST(wrong_with(0x1p-50) == 0U);
  BOOST_TEST(wrong_with(-0x1p-49) == 0U);
  const std::size_t found = wrong_with(0x1p-44);
  BOOST_TEST_MESSAGE(found << " wrong roundings with an error of 2^-44");
  BOOST_TEST(found > 20U);
}

BOOST_AUTO_TEST_CASE(keys_purposes_steps_and_tiles_give_different_noise) {
  tile one{};
  detail::fill_rounded_gaussians(key, nonce, 3, 0x1p20, one.k);
  const auto agreeing = [&](const pergrad::chacha_key& of, const pergrad::chacha_nonce& under, std::uint64_t number) {
    tile other{};
    detail::fill_rounded_gaussians(of, under, number, 0x1p20, other.k);
    std::size_t same = 0;
    for (std::size_t i = 0; i < detail::gaussian_block; ++i) same += one.k[i] == other.k[i] ? 1U : 0U;
    return same;
  };
  using pergrad::random_purpose;
  BOOST_TEST(agreeing(key, nonce, 3) == detail::gaussian_block);
  BOOST_TEST(agreeing(key, nonce, 4) < 3U);
  BOOST_TEST(agreeing(key, pergrad::make_nonce(random_purpose::gradient_noise, 8), 3) < 3U);
  BOOST_TEST(agreeing(key, pergrad::make_nonce(random_purpose::gradient_noise, 7 + (std::uint64_t{1} << 32U)), 3) < 3U);
  BOOST_TEST(agreeing(key, pergrad::make_nonce(random_purpose::auxiliary_noise, 7), 3) < 3U);
  BOOST_TEST(agreeing(key_of_seed(1, detail::randomness::noise), nonce, 3) < 3U);
  BOOST_TEST(agreeing(key_of_seed(seed, detail::randomness::sampling), nonce, 3) < 3U);
}

BOOST_AUTO_TEST_CASE(continued_streams_are_nobody_elses) {
  const auto first = pergrad::continued(nonce, 0);
  BOOST_TEST((first != nonce));
  BOOST_TEST((first != pergrad::continued(nonce, 1)));
  for (std::uint32_t purpose = 1; purpose < 256; ++purpose) {
    BOOST_TEST(first.words[0] != purpose);
  }
}

BOOST_AUTO_TEST_CASE(more_elements_than_a_step_has_are_refused) {
  BOOST_CHECK_NO_THROW(detail::require_gaussians(0, pergrad::gaussians_per_step));
  BOOST_CHECK_THROW(detail::require_gaussians(1, pergrad::gaussians_per_step), std::out_of_range);
  BOOST_CHECK_THROW(detail::require_gaussians(~std::uint64_t{0}, 1), std::out_of_range);
}

BOOST_AUTO_TEST_SUITE_END()
