// SPDX-License-Identifier: Apache-2.0
// tests/privacy/noise_statistics_test.cpp - 1.3e8 draws: moments, Kolmogorov-Smirnov, tails, radii with words of their
// own, angles, independence.
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

#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/noise.hpp>

BOOST_AUTO_TEST_SUITE(privacy_noise_statistics)

namespace {

constexpr std::uint64_t seed = 20240504;
const pergrad::chacha_key key = pergrad::seeded_generator{seed}.key();
constexpr auto purpose = pergrad::random_purpose::gradient_noise;

std::vector<float> draws(std::uint64_t step, std::uint64_t first, std::size_t count,
                         pergrad::random_purpose what = purpose) {
  std::vector<float> z(count);
  pergrad::fill_gaussian(key, what, step, first, std::span{z});
  return z;
}

double below(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }

/// Correlation of a and b, and of their squares, in standard errors.
std::array<double, 2> correlations(std::span<const float> a, std::span<const float> b) {
  double products = 0;
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    products += x * y;
    squares += (x * x - 1) * (y * y - 1);
  }
  const double root = std::sqrt(static_cast<double>(a.size()));
  return {products / root, squares / (2 * root)};
}

void independent(const char* what, std::span<const float> a, std::span<const float> b) {
  const auto z = correlations(a, b);
  BOOST_TEST_MESSAGE(what << ": z " << z[0] << ", of squares " << z[1]);
  BOOST_TEST(std::abs(z[0]) < 4, what);
  BOOST_TEST(std::abs(z[1]) < 4, what);
}

/// Largest distance between the share of sorted numbers below x and x itself, times the root of their number.
double distance_from_uniform(std::vector<double> sorted) {
  std::ranges::sort(sorted);
  const auto count = static_cast<double>(sorted.size());
  double distance = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double here = sorted[i] * count - static_cast<double>(i);
    distance = std::max({distance, here, 1 - here});
  }
  return distance / std::sqrt(count);
}

}  // namespace

BOOST_AUTO_TEST_CASE(moments_distribution_and_tails) {
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
  std::vector<double> long_radii;  // as uniform numbers, of pairs whose u is below 2^-16
  std::vector<float> z(chunk);
  for (std::size_t turn = 0; turn < chunks; ++turn) {
    // Eight steps, each read over a long range of elements.
    pergrad::fill_gaussian(key, purpose, turn % 8, turn / 8 * chunk, std::span{z});
    std::array<double, 4> sums{};
    for (std::size_t i = 0; i < chunk; ++i) {
      const auto x = static_cast<double>(z[i]);
      const double square = x * x;
      sums[0] += x;
      sums[1] += square;
      sums[2] += square * x;
      sums[3] += square * square;
      ++histogram[(i % 4) * cells + static_cast<std::size_t>((z[i] + static_cast<float>(reach)) * per_unit)];
    }
    for (std::size_t i = 0; i < 4; ++i) moments[i] += sums[i];
    for (std::size_t tile = 0; tile < chunk; tile += 512) {
      for (std::size_t i = tile; i < tile + 256; ++i) {
        const float square = z[i] * z[i] + z[i + 256] * z[i + 256];
        if (square < 22) continue;
        const auto x = static_cast<double>(z[i]);
        const auto y = static_cast<double>(z[i + 256]);
        const double u = std::exp(-(x * x + y * y) / 2);
        if (u < 0x1p-16) long_radii.push_back(u * 0x1p16);
      }
    }
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
  const auto edge = [&](std::size_t i) { return static_cast<double>(i) / per_unit - reach; };
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

  const double expected_radii = count / 2 * 0x1p-16;
  const double score = (static_cast<double>(long_radii.size()) - expected_radii) / std::sqrt(expected_radii);
  const double radii = distance_from_uniform(long_radii);
  BOOST_TEST_MESSAGE(long_radii.size() << " radii beyond 4.71: z " << score << ", Kolmogorov-Smirnov " << radii);
  BOOST_TEST(std::abs(score) < 4);
  BOOST_TEST(radii < 2.22);
}

BOOST_AUTO_TEST_CASE(radius_and_angle_of_a_pair_are_uniform_and_independent) {
  constexpr std::size_t count = 1 << 22;
  constexpr std::size_t angles = 64;
  constexpr std::size_t rings = 16;
  const auto z = draws(11, 0, count);
  std::vector<double> cells(angles * rings);
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 512 >= 256) continue;
    const auto x = static_cast<double>(z[i]);
    const auto y = static_cast<double>(z[i + 256]);
    const double turn = std::atan2(y, x) / (2 * std::acos(-1.0)) + 0.5;
    const double u = std::exp(-(x * x + y * y) / 2);
    const std::size_t angle = std::min(angles - 1, static_cast<std::size_t>(turn * angles));
    ++cells[std::min(rings - 1, static_cast<std::size_t>(u * rings)) * angles + angle];
  }
  const double share = static_cast<double>(count) / 2 / (angles * rings);
  double chi_square = 0;
  for (const double cell : cells) chi_square += (cell - share) * (cell - share) / share;
  const double freedom = angles * rings - 1;
  BOOST_TEST_MESSAGE("chi square " << chi_square << " of " << freedom);
  BOOST_TEST(std::abs(chi_square - freedom) < 4 * std::sqrt(2 * freedom));
}

BOOST_AUTO_TEST_CASE(elements_steps_and_purposes_are_independent) {
  constexpr std::size_t count = 4'000'000;
  const auto z = draws(0, 0, count + 1024);
  const auto all = std::span{z};
  for (const std::size_t lag : {1U, 2U, 16U, 255U, 256U, 257U, 512U}) {  // 256: the other half of a pair
    independent("lag", all.first(count), all.subspan(lag, count));
  }
  for (const std::uint64_t step : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 32U}) {
    const auto other = draws(step, 0, count);
    independent("step", all.first(count), other);
  }
  const auto other = draws(0, 0, count, pergrad::random_purpose::auxiliary_noise);
  independent("purpose", all.first(count), other);
}

BOOST_AUTO_TEST_SUITE_END()
