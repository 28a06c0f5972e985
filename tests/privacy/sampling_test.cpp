// SPDX-License-Identifier: Apache-2.0
// tests/privacy/sampling_test.cpp - Poisson sampling: exact threshold, right rate, right dispersion, independent draws.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/sampling.hpp>

#include "keys.hpp"

BOOST_AUTO_TEST_SUITE(privacy_sampling)

namespace {

using pergrad::chacha_key;
using pergrad::poisson_sampling;
using pergrad::sampling_probability;

constexpr std::uint64_t seed = 20240502;
const pergrad::seeded_generator generator{seed};
const chacha_key key = key_of_seed(seed, pergrad::detail::randomness::sampling);

pergrad::detail::secret_stream<pergrad::detail::randomness::sampling> stream(std::uint64_t step) {
  return generator.stream<pergrad::detail::randomness::sampling>(step);
}

std::vector<std::uint64_t> batch(const poisson_sampling& sampling, std::uint64_t step, std::uint32_t record_count) {
  pergrad::seeded_generator at_step{seed, step};
  const auto drawn = pergrad::unaccounted::draw(sampling, at_step, record_count);
  BOOST_TEST(at_step.step() == step + 1);
  return {drawn.begin(), drawn.end()};
}

/// The record's 64-bit word, from the layout that sampling.hpp states, by scalar ChaCha20.
std::uint64_t word_of(std::uint64_t step, std::uint64_t record) {
  const auto nonce = pergrad::make_nonce(pergrad::random_purpose::record_sampling, step);
  const auto block = static_cast<std::uint32_t>(16 * (record / 128) + record % 16);
  const auto row = static_cast<std::size_t>(record % 128 / 16);
  const auto words = pergrad::chacha20_block(key, nonce, block);
  return (static_cast<std::uint64_t>(words[row]) << 32U) | words[8 + row];
}

}  // namespace

BOOST_AUTO_TEST_CASE(batches_are_the_records_below_the_threshold) {
  constexpr std::uint32_t record_count = 5003;
  for (const double q : {0.3, 1e-3, 0.999}) {
    const poisson_sampling sampling{sampling_probability{q}};
    for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{0x123456789}}) {
      std::vector<std::uint64_t> wanted;
      for (std::uint64_t record = 0; record < record_count; ++record) {
        if (word_of(step, record) < static_cast<std::uint64_t>(q * 0x1p64)) wanted.push_back(record);
      }
      const auto got = batch(sampling, step, record_count);
      BOOST_CHECK_EQUAL_COLLECTIONS(got.begin(), got.end(), wanted.begin(), wanted.end());
    }
  }
}

BOOST_AUTO_TEST_CASE(low_half_of_the_word_decides_ties) {
  // Two thresholds that a double holds, one at most at the record's word and one above it; high halves all agree.
  const std::uint64_t word = word_of(9, 4242);
  const std::uint64_t below = word & ~std::uint64_t{0xfff};
  const std::uint64_t above = below + 0x1000;
  const auto contains = [](std::uint64_t threshold) {
    const poisson_sampling sampling{sampling_probability{std::ldexp(static_cast<double>(threshold), -64)}};
    const auto records = batch(sampling, 9, 5000);
    return std::binary_search(records.begin(), records.end(), std::uint64_t{4242});
  };
  BOOST_TEST((below >> 32U) == (word >> 32U));
  BOOST_TEST((above >> 32U) == (word >> 32U));
  BOOST_TEST(!contains(below));
  BOOST_TEST(contains(above));
}

BOOST_AUTO_TEST_CASE(accounted_probability_is_the_one_used) {
  BOOST_TEST(poisson_sampling{sampling_probability{0.01}}.probability().value() == 0.01);
  BOOST_TEST(poisson_sampling{sampling_probability{1.0}}.probability().value() == 1.0);
  BOOST_TEST(poisson_sampling{sampling_probability{0.0}}.probability().value() == 0.0);
  BOOST_TEST(poisson_sampling{sampling_probability{0x1p-64}}.probability().value() == 0x1p-64);
  BOOST_TEST(poisson_sampling{sampling_probability{0x1.8p-64}}.probability().value() == 0x1p-64);
  BOOST_TEST(poisson_sampling{sampling_probability{0x1p-65}}.probability().value() == 0.0);
  for (const double q : {1e-5, 1e-12, 1e-17, 0.1, 0.9999999999999999}) {
    const double used = poisson_sampling{sampling_probability{q}}.probability().value();
    BOOST_TEST(used <= q);
    BOOST_TEST(q - used < 0x1p-64);
  }
  const auto event = poisson_sampling{sampling_probability{0.25}}.event(pergrad::noise_multiplier{1.5});
  BOOST_TEST((event == pergrad::sampled_gaussian_event{0.25, 1.5}));
}

BOOST_AUTO_TEST_CASE(everybody_and_nobody) {
  BOOST_TEST(batch(poisson_sampling{sampling_probability{0.0}}, 3, 1000).empty());
  const auto all = batch(poisson_sampling{sampling_probability{1.0}}, 3, 1000);
  BOOST_TEST(all.size() == 1000U);
  BOOST_TEST(std::is_sorted(all.begin(), all.end()));
  BOOST_TEST(batch(poisson_sampling{sampling_probability{0.5}}, 3, 0).empty());
}

BOOST_AUTO_TEST_CASE(a_record_does_not_depend_on_how_many_there_are) {
  const poisson_sampling sampling{sampling_probability{0.2}};
  auto more = batch(sampling, 1, 4000);
  const auto fewer = batch(sampling, 1, 3333);
  more.erase(std::lower_bound(more.begin(), more.end(), std::uint64_t{3333}), more.end());
  BOOST_TEST((more == fewer));
}

BOOST_AUTO_TEST_CASE(rate_and_dispersion) {
  // Blocks of 1/q steps: a shuffled loader includes each record exactly once per block (dispersion 0), Poisson sampling
  // Binomial(1/q, q) times (dispersion 1 - q). Seeds are fixed, so thresholds of 4 standard errors cannot flake.
  constexpr double q = 0.01;
  constexpr std::uint32_t record_count = 100'000;
  constexpr std::uint64_t step_count = 200;
  const poisson_sampling sampling{sampling_probability{q}};
  std::vector<int> inclusions(record_count);
  double batch_square = 0;
  double together = 0;  // inclusions in two consecutive steps
  std::vector<char> before(record_count);
  std::vector<char> now(record_count);
  double total = 0;
  for (std::uint64_t step = 0; step < step_count; ++step) {
    double size = 0;
    std::fill(now.begin(), now.end(), char{0});
    for (const std::uint64_t record : batch(sampling, step, record_count)) {
      ++inclusions[record];
      now[record] = 1;
      size += 1;
      together += before[record] != 0 ? 1 : 0;
    }
    std::swap(before, now);
    total += size;
    batch_square += (size - record_count * q) * (size - record_count * q);
  }
  const double draws = static_cast<double>(record_count) * static_cast<double>(step_count);
  const double rate_z = (total - draws * q) / std::sqrt(draws * q * (1 - q));
  BOOST_TEST_MESSAGE("inclusion rate z " << rate_z);
  BOOST_TEST(std::abs(rate_z) < 4);

  double chi_square = 0;
  const double mean = q * static_cast<double>(step_count);
  for (const int count : inclusions) chi_square += (count - mean) * (count - mean) / (mean * (1 - q));
  const double records = static_cast<double>(record_count);
  // Variance of one term is 2 + (1 - 6 q (1 - q)) / (T q (1 - q)).
  const double term_variance = 2 + (1 - 6 * q * (1 - q)) / (mean * (1 - q));
  const double dispersion_z = (chi_square - records) / std::sqrt(records * term_variance);
  BOOST_TEST_MESSAGE("dispersion z " << dispersion_z << ", index " << chi_square / records * (1 - q));
  BOOST_TEST(std::abs(dispersion_z) < 4);

  const double steps = static_cast<double>(step_count);
  const double size_z = (batch_square / (records * q * (1 - q)) - steps) / std::sqrt(2 * steps);
  BOOST_TEST_MESSAGE("batch size variance z " << size_z);
  BOOST_TEST(std::abs(size_z) < 4);

  const double pairs = records * (steps - 1) * q * q;
  const double pair_z = (together - pairs) / std::sqrt(pairs);
  BOOST_TEST_MESSAGE("consecutive steps z " << pair_z);
  BOOST_TEST(std::abs(pair_z) < 4);
}

// Threads mark stretches of their own; together they find what one call finds.
BOOST_AUTO_TEST_CASE(marks_are_the_records) {
  constexpr std::uint32_t count = 128 * 9 + 77;
  for (const double q : {0.0, 0.003, 0.4, 1.0}) {
    const poisson_sampling sampling{sampling_probability{q}};
    std::vector<std::uint64_t> bits(20, 0x5555'5555'5555'5555U);  // what was there must not count
    const std::span<std::uint64_t> all{bits};
    sampling.mark(stream(3), 1024, all.subspan(16));
    sampling.mark(stream(3), 128, all.subspan(2, 14));
    sampling.mark(stream(3), 0, all.first(2));
    std::vector<std::uint64_t> found;
    poisson_sampling::visit_marked(bits, 0, count, [&](std::uint64_t record) { found.push_back(record); });
    BOOST_TEST((found == batch(sampling, 3, count)));
    std::vector<std::uint64_t> wanted;
    for (std::uint64_t record = 0; record < count; ++record) {
      const auto threshold = q == 1 ? 0 : static_cast<std::uint64_t>(std::ldexp(q, 64));
      if (q == 1 || word_of(3, record) < threshold) wanted.push_back(record);
    }
    BOOST_TEST((found == wanted));
    BOOST_TEST(((q < 0.1) == (found.size() < 100)));
  }
  const poisson_sampling sampling{sampling_probability{0.5}};
  std::vector<std::uint64_t> bits(3);
  BOOST_CHECK_THROW(sampling.mark(stream(0), 64, std::span{bits}.first(2)), std::invalid_argument);
  BOOST_CHECK_THROW(sampling.mark(stream(0), 128, bits), std::invalid_argument);
  BOOST_CHECK_THROW(sampling.mark(stream(0), std::uint64_t{1} << 35U, std::span{bits}.first(2)), std::out_of_range);
}

BOOST_AUTO_TEST_SUITE_END()
