// SPDX-License-Identifier: Apache-2.0
// tests/privacy/rounded_gaussian_statistics_test.cpp - 1.3e8 draws: moments, distribution, tails, low bits, angles,
// independence
//
// The key is fixed, so every statistic is one fixed number; thresholds are those of single tests at about 1e-4.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/privacy/noise/rounded_gaussian.hpp>

#include "keys.hpp"

BOOST_AUTO_TEST_SUITE(rounded_gaussian_statistics)

namespace {

constexpr std::uint64_t seed = 20240504;
const pergrad::chacha_key key = key_of_seed(seed, pergrad::detail::randomness::noise);
constexpr auto purpose = pergrad::random_purpose::gradient_noise;
constexpr double sigma = 0x1p20;

/// z = k / sigma, tile by tile.
void draw_into(std::uint64_t step, std::uint64_t first_tile, std::span<double> z,
               pergrad::random_purpose what = purpose) {
  alignas(64) double k[pergrad::detail::gaussian_block];
  const auto nonce = pergrad::make_nonce(what, step);
  for (std::size_t at = 0; at < z.size(); at += pergrad::detail::gaussian_block) {
    pergrad::detail::fill_rounded_gaussians(key, nonce, first_tile + at / pergrad::detail::gaussian_block, sigma, k);
    const std::size_t count = std::min(z.size() - at, pergrad::detail::gaussian_block);
    for (std::size_t i = 0; i < count; ++i) z[at + i] = k[i] / sigma;
  }
}
std::vector<double> draws(std::uint64_t step, std::size_t count, pergrad::random_purpose what = purpose) {
  std::vector<double> z(count);
  draw_into(step, 0, z, what);
  return z;
}

double below(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }

/// Correlation of a and b, and of their squares, in standard errors.
void independent(const char* what, std::span<const double> a, std::span<const double> b) {
  double products = 0;
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    products += a[i] * b[i];
    squares += (a[i] * a[i] - 1) * (b[i] * b[i] - 1);
  }
  const double root = std::sqrt(static_cast<double>(a.size()));
  BOOST_TEST_MESSAGE(what << ": z " << products / root << ", of squares " << squares / (2 * root));
  BOOST_TEST(std::abs(products / root) < 4, what);
  BOOST_TEST(std::abs(squares / (2 * root)) < 4, what);
}

void uniform(const char* what, std::span<const double> cells) {
  double count = 0;
  for (const double cell : cells) count += cell;
  const double share = count / static_cast<double>(cells.size());
  double chi_square = 0;
  for (const double cell : cells) chi_square += (cell - share) * (cell - share) / share;
  const auto freedom = static_cast<double>(cells.size() - 1);
  BOOST_TEST_MESSAGE(what << ": chi square " << chi_square << " of " << freedom);
  BOOST_TEST(std::abs(chi_square - freedom) < 4 * std::sqrt(2 * freedom), what);
}

}  // namespace

BOOST_AUTO_TEST_CASE(moments_distribution_tails_and_low_bits) {
  BOOST_TEST_MESSAGE("seed " << seed);
  constexpr std::size_t chunk = 1 << 16;
  constexpr std::size_t chunks = 2000;
  constexpr double count = static_cast<double>(chunk) * static_cast<double>(chunks);
  constexpr int reach = 10;
  constexpr int per_unit = 1024;
  // Four tables in turn, so that neighbouring increments do not wait for each other.
  constexpr std::size_t cells = 2 * reach * per_unit;
  std::vector<std::uint32_t> histogram(4 * cells);
  std::array<double, 4> moments{};
  constexpr std::size_t buckets = 8;  // of the place of z in [-2, 2)
  std::vector<std::uint32_t> low_bits(buckets * 256);
  std::vector<double> z(chunk);
  for (std::size_t turn = 0; turn < chunks; ++turn) {
    // Eight steps, each read over a long range of elements.
    draw_into(turn % 8, turn / 8 * chunk / 512, z);
    std::array<double, 4> sums{};
    for (std::size_t i = 0; i < chunk; ++i) {
      const double x = z[i];
      const double square = x * x;
      sums[0] += x;
      sums[1] += square;
      sums[2] += square * x;
      sums[3] += square * square;
      ++histogram[(i % 4) * cells + static_cast<std::size_t>((x + reach) * per_unit)];
      if (x >= -2 && x < 2) {
        const auto k = static_cast<std::int64_t>(x * sigma);
        ++low_bits[static_cast<std::size_t>((x + 2) * 2) * 256 + static_cast<std::size_t>(k & 255)];
      }
    }
    for (std::size_t i = 0; i < 4; ++i) moments[i] += sums[i];
  }
  const std::array<double, 4> expected{0, 1, 0, 3};
  const std::array<double, 4> variance{1, 2, 15, 96};
  for (std::size_t i = 0; i < 4; ++i) {
    const double score = (moments[i] / count - expected[i]) * std::sqrt(count / variance[i]);
    BOOST_TEST_MESSAGE("moment " << i + 1 << ": z " << score);
    BOOST_TEST(std::abs(score) < 4);
  }

  std::vector<double> cumulated(cells + 1);
  for (std::size_t i = 0; i < cells; ++i) {
    double here = 0;
    for (std::size_t table = 0; table < 4; ++table) here += static_cast<double>(histogram[table * cells + i]);
    cumulated[i + 1] = cumulated[i] + here;
  }
  double distance = 0;
  // A cell begins where rounding to the next integer begins, half a step below its edge.
  const auto edge = [&](std::size_t i) { return static_cast<double>(i) / per_unit - reach - 0.5 / sigma; };
  for (std::size_t i = 0; i <= cells; ++i) {
    distance = std::max(distance, std::abs(cumulated[i] / count - below(edge(i))));
  }
  BOOST_TEST_MESSAGE("Kolmogorov-Smirnov sqrt(n) D " << distance * std::sqrt(count));
  BOOST_TEST(distance * std::sqrt(count) < 2.22);  // exceeded with probability 1e-4

  for (const double from : {1.0, 2.0, 3.0, 4.0, 4.5, 5.0}) {
    const double share = 2 * below(-from);
    const auto cut = static_cast<std::size_t>((reach - from) * per_unit);
    const double outside = cumulated[cut] + count - cumulated[cells - cut];
    const double score = (outside - count * share) / std::sqrt(count * share * (1 - share));
    BOOST_TEST_MESSAGE("beyond " << from << ": " << outside << ", z " << score);
    BOOST_TEST(std::abs(score) < 4);
  }

  // Wherever z lies, the low bits of k are uniform: the grid shows nothing of how the noise was made.
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    std::vector<double> here(low_bits.begin() + static_cast<std::ptrdiff_t>(256 * bucket),
                             low_bits.begin() + static_cast<std::ptrdiff_t>(256 * (bucket + 1)));
    uniform("low bits", here);
  }
}

BOOST_AUTO_TEST_CASE(radius_and_angle_of_a_pair_are_uniform_and_independent) {
  constexpr std::size_t count = 1 << 22;
  constexpr std::size_t angles = 64;
  constexpr std::size_t rings = 16;
  const auto z = draws(11, count);
  std::vector<double> cells(angles * rings);
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 512 >= 256) continue;
    const double turn = std::atan2(z[i + 256], z[i]) / (2 * std::acos(-1.0)) + 0.5;
    const double u = std::exp(-(z[i] * z[i] + z[i + 256] * z[i + 256]) / 2);
    const std::size_t angle = std::min(angles - 1, static_cast<std::size_t>(turn * angles));
    ++cells[std::min(rings - 1, static_cast<std::size_t>(u * rings)) * angles + angle];
  }
  uniform("radius and angle", cells);
}

BOOST_AUTO_TEST_CASE(elements_steps_and_purposes_are_independent) {
  constexpr std::size_t count = 4'000'000;
  const auto z = draws(0, count + 1024);
  const auto all = std::span{z};
  for (const std::size_t lag : {1U, 2U, 16U, 63U, 64U, 255U, 256U, 257U, 512U}) {  // 256: the other half of a pair
    independent("lag", all.first(count), all.subspan(lag, count));
  }
  for (const std::uint64_t step : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 32U}) {
    const auto other = draws(step, count);
    independent("step", all.first(count), other);
  }
  const auto other = draws(0, count, pergrad::random_purpose::auxiliary_noise);
  independent("purpose", all.first(count), other);
}

BOOST_AUTO_TEST_SUITE_END()
