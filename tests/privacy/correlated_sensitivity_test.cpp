// SPDX-License-Identifier: Apache-2.0
// tests/privacy/correlated_sensitivity_test.cpp - what a record can do to C G: published values, all sets one by one,
// and strategies' bounds
#include <boost/test/unit_test.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include <pergrad/privacy/correlated/optimise.hpp>
#include <pergrad/privacy/correlated/strategies.hpp>

BOOST_AUTO_TEST_SUITE(correlated_sensitivity)

namespace {

using pergrad::participation;

/// Bounds are rounded up, by less than this.
void check_bound(double bound, double exact, double slack = 1e-6) {
  BOOST_TEST(bound >= exact);
  BOOST_TEST(bound <= exact * (1 + slack));
}

/// max_p ‖|C| u_p‖² by looking at every set.
double by_all_sets(const std::vector<double>& rows, const participation& pattern) {
  const auto n = static_cast<std::size_t>(pattern.steps);
  double most = 0;
  for (std::uint32_t set = 0; set < (1U << n); ++set) {
    if (static_cast<std::uint64_t>(std::popcount(set)) > pattern.most) continue;
    bool is_one = true;
    for (std::uint64_t apart = 1; apart < pattern.separation && apart < n; ++apart) {
      is_one = is_one && (set & set >> apart) == 0;
    }
    if (!is_one) continue;
    double sum = 0;
    for (std::size_t row = 0; row < rows.size(); row += n) {
      double value = 0;
      for (std::size_t s = 0; s < n; ++s) {
        if ((set >> s & 1U) != 0) value += std::abs(rows[row + s]);
      }
      sum += value * value;
    }
    most = std::max(most, sum);
  }
  return most;
}

std::vector<double> toeplitz(const std::vector<double>& c, std::size_t n) {
  std::vector<double> rows(n * n);
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t s = 0; s <= t && s < n; ++s) rows[t * n + s] = t - s < c.size() ? c[t - s] : 0;
  }
  return rows;
}

/// All sums of a binary tree that end within so many leaves.
std::vector<double> tree(std::size_t leaves) {
  std::vector<double> rows;
  for (std::size_t length = 1; length <= leaves; length *= 2) {
    for (std::size_t first = 0; first + length <= leaves; first += length) {
      for (std::size_t s = 0; s < leaves; ++s) rows.push_back(s >= first && s < first + length ? 1 : 0);
    }
  }
  return rows;
}

}  // namespace

// jax_privacy tests/matrix_factorization/sensitivity_test.py
BOOST_AUTO_TEST_CASE(published_banded_matrices) {
  std::vector<double> diagonal(25);
  const double values[] = {0, 3, 0, 1, 2};
  for (std::size_t i = 0; i < 5; ++i) diagonal[6 * i] = values[i];
  check_bound(pergrad::squared_sensitivity(diagonal, {.steps = 5, .separation = 2}), 13);
  check_bound(pergrad::squared_sensitivity(diagonal, {.steps = 5, .separation = 2, .most = 1}), 9);
  const std::vector<double> banded{1, 0, 0, 0, 2, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, -6};
  check_bound(pergrad::squared_sensitivity(banded, {.steps = 4, .separation = 2}), 41);
  check_bound(pergrad::squared_sensitivity(banded, {.steps = 4, .separation = 3}), 41);
  check_bound(pergrad::squared_sensitivity(banded, {.steps = 4, .separation = 2, .most = 1}), 36);
}

BOOST_AUTO_TEST_CASE(published_numbers_of_participations) {
  const std::uint64_t of_five[] = {5, 3, 2, 2, 1, 1};
  for (std::uint64_t apart = 1; apart <= 6; ++apart) {
    BOOST_TEST((participation{5, apart}.times()) == of_five[apart - 1]);
  }
  BOOST_TEST((participation{5, 1, 2}.times()) == 2U);
  BOOST_TEST((participation{5, 2, 4}.times()) == 3U);
  BOOST_CHECK_THROW((participation{0, 1}.require()), std::invalid_argument);
  BOOST_CHECK_THROW((participation{1, 0}.require()), std::invalid_argument);
  BOOST_CHECK_THROW((participation{1, 1, 0}.require()), std::invalid_argument);
}

// tensorflow_privacy's _max_tree_sensitivity_square_sum(participations, separation, steps), where a separation of s are
// s steps in between: (1, 7, 8), (3, 3, 9), (3, 2, 7), (8, 2, 24).
BOOST_AUTO_TEST_CASE(published_trees) {
  BOOST_TEST(by_all_sets(tree(8), {8, 8, 1}) == 4);
  BOOST_TEST(by_all_sets(tree(9), {9, 4, 3}) == 11);
  BOOST_TEST(by_all_sets(tree(7), {7, 3, 3}) == 9);
  BOOST_TEST(by_all_sets(tree(8), {8, 1}) == 120);
  check_bound(pergrad::squared_sensitivity(tree(8), {8, 8, 1}), 4);
  check_bound(pergrad::squared_sensitivity(tree(8), {8, 1}), 120);
  BOOST_TEST(pergrad::squared_sensitivity(tree(9), {9, 4, 3}) >= 11);
  BOOST_TEST(pergrad::squared_sensitivity(tree(24), {24, 3, 8}) >= 88);
}

// No bound is below the worst of all sets; where the proof says so, it is that one.
BOOST_AUTO_TEST_CASE(bounds_hold_for_every_set) {
  std::mt19937 random{3};
  std::uniform_real_distribution<double> uniform{-1, 1};
  for (int trial = 0; trial < 60; ++trial) {
    const std::size_t n = 1 + random() % 11;
    const participation pattern{n, 1 + random() % 5, 1 + random() % 4};
    std::vector<double> rows(n * n);
    for (std::size_t i = 0; i < n * n; ++i) rows[i] = i % n <= i / n ? uniform(random) : 0;
    BOOST_TEST(pergrad::squared_sensitivity(rows, pattern) >= by_all_sets(rows, pattern));

    std::vector<double> c(1 + random() % n);
    for (double& each : c) each = uniform(random);
    const double exact = by_all_sets(toeplitz(c, n), pattern);
    BOOST_TEST(pergrad::squared_toeplitz_sensitivity(c, pattern) >= exact);
    for (double& each : c) each = std::abs(each);
    std::sort(c.begin(), c.end(), std::greater<>{});
    const double falling = by_all_sets(toeplitz(c, n), pattern);
    const double bound = pergrad::squared_toeplitz_sensitivity(c, pattern);
    BOOST_TEST(bound >= falling);
    if (pattern.separation < c.size()) check_bound(bound, falling);
  }
  const std::vector<double> banded{1, 0.7, 0.4};
  check_bound(pergrad::squared_toeplitz_sensitivity(banded, {12, 3, 4}), 4 * (1 + 0.49 + 0.16));
  check_bound(pergrad::squared_toeplitz_sensitivity(banded, {12, 3, 2}), 2 * (1 + 0.49 + 0.16));
}

BOOST_AUTO_TEST_CASE(strategies_know_their_matrix) {
  for (const std::uint64_t n : {1U, 2U, 7U, 8U, 12U}) {
    for (const std::uint64_t apart : {1U, 2U, 3U, 5U}) {
      for (const std::uint64_t most : {1U, 2U, 20U}) {
        const participation pattern{n, apart, most};
        // Rows of a tree: sums over (t - 2^j, t], t from 1.
        std::vector<double> rows;
        for (std::uint64_t t = 1; t <= n; ++t) {
          const std::uint64_t length = t & (~t + 1);
          for (std::uint64_t s = 1; s <= n; ++s) rows.push_back(s > t - length && s <= t ? 1 : 0);
        }
        const double exact = by_all_sets(rows, pattern);
        const double bound = pergrad::tree_noise{n}.sensitivity(pattern).of_sums;
        BOOST_TEST(bound * bound >= exact);
        if (most == 1) BOOST_TEST(bound * bound <= exact * (1 + 1e-6));
        BOOST_TEST(pergrad::tree_noise{n}.sensitivity(pattern).rounded_steps == 0U);

        const pergrad::buffered_noise buffered{n, {0.9, 0.5}, {0.3, 0.5}};
        const auto c = buffered.coefficients();
        BOOST_TEST(c[0] == 1);
        for (std::size_t k = 1; k < c.size(); ++k) {
          const auto lag = static_cast<double>(k - 1);
          BOOST_TEST(c[k] == 0.3 * std::pow(0.9, lag) + 0.5 * std::pow(0.5, lag), boost::test_tools::tolerance(1e-7));
        }
        const double of_buffers = buffered.sensitivity(pattern).of_sums;
        check_bound(of_buffers * of_buffers, by_all_sets(toeplitz(c, n), pattern), 2e-6);
        BOOST_TEST(buffered.sensitivity(pattern).rounded_steps == n);
      }
    }
  }
  const pergrad::banded_noise banded{100, {0.5, 0.375}};
  BOOST_TEST(banded.bands() == 3U);
  const auto apart = banded.sensitivity({.separation = 3, .most = 5});
  check_bound(apart.of_sums * apart.of_sums, 5 * (1 + 0.25 + 0.140625), 2e-6);
  BOOST_TEST(apart.rounded_steps == 10U);
  const auto one = banded.sensitivity_of_one();
  check_bound(one.of_sums * one.of_sums, 1 + 0.25 + 0.140625, 2e-6);
  BOOST_TEST(one.rounded_steps == 2U);
  BOOST_CHECK_THROW((pergrad::banded_noise{0, {0.5}}), std::invalid_argument);
  BOOST_CHECK_THROW((pergrad::banded_noise{10, {std::nan("")}}), std::invalid_argument);
  BOOST_CHECK_THROW((pergrad::banded_noise{std::uint64_t{1} << 25U, {0.5}}), std::invalid_argument);
  BOOST_CHECK_THROW((pergrad::buffered_noise{10, {1.0}, {0.1}}), std::invalid_argument);
  BOOST_CHECK_THROW((pergrad::buffered_noise{10, {0.5}, {-0.1}}), std::invalid_argument);
  BOOST_CHECK_THROW((pergrad::buffered_noise{10, {0.5, 0.4}, {0.6, 0.6}}), std::invalid_argument);
  BOOST_CHECK_THROW((pergrad::buffered_noise{10, {0.5, 0.4}, {0.6}}), std::invalid_argument);
}

// The square root of prefix sums is the best Toeplitz strategy for the last iterate (Fichtenberger, Henzinger and
// Upadhyay 2023): coefficients binom(2 k, k) / 4^k.
BOOST_AUTO_TEST_CASE(all_bands_give_the_square_root) {
  const pergrad::sgd_workload workload{.steps = 64, .error = pergrad::iterate_error::last};
  std::vector<double> found(63);  // begins at independent noise
  pergrad::detail::minimise(found, [&](const std::vector<double>& at, std::vector<double>* gradient) {
    return pergrad::detail::banded_loss(workload, at, gradient);
  });
  const auto at_once = pergrad::optimal_banded_noise(workload, 64);
  double binomial = 1;
  for (std::size_t k = 1; k < 64; ++k) {
    binomial *= (2 * static_cast<double>(k) - 1) / (2 * static_cast<double>(k));
    BOOST_TEST(std::abs(found[k - 1] - binomial) < 1e-4);  // the minimum is flat
    BOOST_TEST(std::abs(at_once.coefficients()[k] - binomial) < 1e-4);
  }
}

// jax_privacy tests/matrix_factorization/buffered_toeplitz_test.py, test_optimize_single_participation_golden: two
// buffers for the last of 100,000 iterates decay by 0.9999528892 and 0.9857068667, with scales 0.0122853238 and
// 0.1878393665.
BOOST_AUTO_TEST_CASE(two_published_buffers) {
  const pergrad::sgd_workload workload{.steps = 100'000, .error = pergrad::iterate_error::last};
  const pergrad::buffered_noise published{100'000, {0.9999528892, 0.9857068667}, {0.0122853238, 0.1878393665}};
  const auto found = pergrad::optimal_buffered_noise(workload, 2, {.most = 1});
  const auto ours = found.coefficients();
  const auto theirs = published.coefficients();
  for (const std::size_t k : {1U, 10U, 100U, 1000U, 10'000U}) {
    BOOST_TEST(ours[k] == theirs[k], boost::test_tools::tolerance(2e-5));
  }
}

// Its neighbours are worse, for other workloads too: the gradient is right.
BOOST_AUTO_TEST_CASE(optima_are_optima) {
  std::vector<double> rates(40);
  for (std::size_t t = 0; t < rates.size(); ++t) rates[t] = 1 - 0.02 * static_cast<double>(t);
  for (const pergrad::sgd_workload& workload :
       {pergrad::sgd_workload{.steps = 200}, pergrad::sgd_workload{.steps = 200, .momentum = 0.9},
        pergrad::sgd_workload{.steps = 40, .momentum = 0.5, .rates = rates},
        pergrad::sgd_workload{.steps = 40, .rates = rates, .error = pergrad::iterate_error::last}}) {
    const participation pattern{.separation = 8};
    const auto found = pergrad::optimal_banded_noise(workload, 8);
    const std::vector<double> best{found.coefficients().begin(), found.coefficients().end()};
    const double error = pergrad::squared_error(workload, best, pattern);
    const auto root = pergrad::detail::square_root_coefficients(workload.momentum, 8);
    BOOST_TEST(error < pergrad::squared_error(workload, root, pattern));
    BOOST_TEST(error < 0.5 * pergrad::squared_error(workload, std::vector<double>{1}, pattern));
    for (std::size_t k = 1; k < 8; ++k) {
      for (const double moved : {-0.01, 0.01}) {
        auto other = best;
        other[k] += moved;
        BOOST_TEST(pergrad::squared_error(workload, other, pattern) > error);
      }
    }
  }
  const pergrad::sgd_workload workload{.steps = 300};
  const auto three = pergrad::optimal_buffered_noise(workload, 3, {.separation = 50});
  const double error = pergrad::squared_error(workload, three.coefficients(), {.separation = 50});
  const double of_two = pergrad::squared_error(
      workload, pergrad::optimal_buffered_noise(workload, 2, {.separation = 50}).coefficients(), {.separation = 50});
  BOOST_TEST(error <= of_two * (1 + 1e-9));
  BOOST_TEST(of_two < 0.3 * pergrad::squared_error(workload, std::vector<double>{1}, {.separation = 50}));
}

BOOST_AUTO_TEST_SUITE_END()
