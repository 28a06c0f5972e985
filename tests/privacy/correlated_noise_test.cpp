// SPDX-License-Identifier: Apache-2.0
// tests/privacy/correlated_noise_test.cpp - correlated noise through the gate: the recursion, bits, and what a record
// can do to all of a run
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include <pergrad/privacy/correlated/strategies.hpp>
#include <pergrad/privacy/release.hpp>

BOOST_AUTO_TEST_SUITE(correlated_noise)

namespace {

using pergrad::noise_multiplier;
using pergrad::participation;
using pergrad::release_grid;
namespace detail = pergrad::detail;

constexpr std::size_t elements = 1500;
const release_grid grid = release_grid::of(0.7, elements);
const double of_one_sum = pergrad::sensitivity_in_steps(grid, {}, 1);
const double unit = std::ldexp(1.0, grid.unit - grid.steps);

const pergrad::banded_noise banded{12, {0.5, 0.375, 0.3125, -0.25}};
const pergrad::buffered_noise buffered{12, {0.99, 0.6}, {0.08, 0.5}};
const pergrad::tree_noise tree{12};
constexpr participation pattern{.separation = 3};

/// Steps of a run in units of the grid: places of sums[t] and its noise.
template <class Filter>
std::vector<std::vector<double>> run_of(Filter& filter, std::size_t first, std::size_t last,
                                        const std::vector<std::vector<double>>& sums, std::uint64_t seed = 3,
                                        bool backwards = false) {
  std::vector<std::vector<double>> released;
  pergrad::seeded_generator generator{seed, 2 * first};
  for (std::size_t t = first; t < last; ++t) {
    static_cast<void>(generator.next_step());  // sampling's
    const detail::release_gate<double> gate{grid, of_one_sum, noise_multiplier{1.5}, 1, generator, &filter};
    std::vector<double> out(elements);
    for (std::size_t i = 0; i < gate.stretches(); ++i) {
      const std::size_t number = backwards ? gate.stretches() - 1 - i : i;
      gate.release(number, {sums.empty() ? nullptr : sums[t].data(), nullptr}, out.data(), {}, backwards ? i % 2 : 0);
    }
    for (double& each : out) each /= unit;
    released.push_back(std::move(out));
  }
  return released;
}

/// The fresh noise of the same steps.
std::vector<std::vector<double>> fresh_of(double total, std::size_t steps) {
  std::vector<std::vector<double>> fresh;
  pergrad::seeded_generator generator{3};
  for (std::size_t t = 0; t < steps; ++t) {
    static_cast<void>(generator.next_step());
    const detail::release_gate<double> gate{grid, total, noise_multiplier{1.5}, 1, generator};
    std::vector<double> out(elements);
    for (std::size_t i = 0; i < gate.stretches(); ++i) gate.release(i, {}, out.data(), {});
    for (double& each : out) each /= unit;
    fresh.push_back(std::move(out));
  }
  return fresh;
}

template <class Strategy>
auto filter_of(const Strategy& strategy) {
  return strategy.make_filter(strategy.sensitivity(pattern), elements, 2);
}
template <class Visit>
void for_each_strategy(const Visit& visit) {
  visit(banded);
  visit(buffered);
  visit(tree);
}

}  // namespace

BOOST_AUTO_TEST_CASE(noise_is_what_the_recursion_says) {
  const auto filter = filter_of(banded);
  const double total = filter->sensitivity(of_one_sum, elements);
  const auto n = run_of(*filter, 0, 12, {});
  const auto z = fresh_of(total, 12);
  const auto c = banded.coefficients();
  for (std::size_t t = 0; t < 12; ++t) {
    for (std::size_t i = 0; i < elements; ++i) {
      double feedback = 0;
      for (std::size_t k = std::min<std::size_t>(t, c.size() - 1); k > 0; --k) feedback += c[k] * n[t - k][i];
      BOOST_REQUIRE(n[t][i] == z[t][i] - std::nearbyint(feedback));
    }
  }
}

BOOST_AUTO_TEST_CASE(one_band_is_independent_noise) {
  const pergrad::banded_noise one{12, std::span<const double>{}};
  const auto filter = filter_of(one);
  BOOST_TEST((run_of(*filter, 0, 12, {}) == fresh_of(filter->sensitivity(of_one_sum, elements), 12)));
  BOOST_TEST((run_of(*filter_of(one.regenerated()), 0, 12, {}) == run_of(*filter_of(one), 0, 12, {})));
}

BOOST_AUTO_TEST_CASE(buffers_are_a_toeplitz_matrix) {
  const auto filter = filter_of(buffered);
  const auto n = run_of(*filter, 0, 12, {});
  const auto z = fresh_of(filter->sensitivity(of_one_sum, elements), 12);
  const auto c = buffered.coefficients();
  for (std::size_t t = 0; t < 12; ++t) {
    for (std::size_t i = 0; i < elements; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k <= t; ++k) sum += c[k] * n[t - k][i];
      BOOST_REQUIRE(std::abs(sum - z[t][i]) <= 0.51);  // one rounding, and a little of the buffers' own
    }
  }
}

BOOST_AUTO_TEST_CASE(prefixes_of_a_tree_have_few_terms) {
  const auto filter = filter_of(tree);
  const auto n = run_of(*filter, 0, 12, {});
  const auto z = fresh_of(filter->sensitivity(of_one_sum, elements), 12);
  for (std::size_t i = 0; i < elements; ++i) {
    double prefix = 0;
    for (std::size_t t = 1; t <= 12; ++t) {
      prefix += n[t - 1][i];
      double terms = 0;
      for (std::size_t end = t; end > 0; end &= end - 1) terms += z[end - 1][i];
      BOOST_REQUIRE(prefix == terms);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_sum_shifts_its_own_step_alone) {
  std::mt19937 random{4};
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> sums(12, std::vector<double>(elements));
  for (auto& sum : sums) {
    for (double& each : sum) each = normal(random);
  }
  for_each_strategy([&](const auto& strategy) {
    const auto with = run_of(*filter_of(strategy), 0, 12, sums);
    const auto without = run_of(*filter_of(strategy), 0, 12, {});
    for (std::size_t t = 0; t < 12; ++t) {
      for (std::size_t i = 0; i < elements; ++i) {
        BOOST_REQUIRE(with[t][i] - without[t][i] == std::nearbyint(std::ldexp(sums[t][i], grid.steps)));
      }
    }
  });
}

// In memory or drawn again, in any order of stretches and on any thread, in one run or in two: the same bits.
BOOST_AUTO_TEST_CASE(one_noise_however_it_is_made) {
  for_each_strategy([&](const auto& strategy) {
    const auto wanted = run_of(*filter_of(strategy), 0, 12, {});
    BOOST_TEST((run_of(*filter_of(strategy), 0, 12, {}, 3, true) == wanted));
    BOOST_TEST((run_of(*filter_of(strategy.regenerated()), 0, 12, {}) == wanted));
    BOOST_TEST((run_of(*filter_of(strategy.regenerated()), 0, 12, {}, 3, true) == wanted));
    for (std::size_t cut = 1; cut < 12; ++cut) {
      const auto first = filter_of(strategy);
      const auto begun = run_of(*first, 0, cut, {});
      const auto second = filter_of(cut % 2 == 0 ? strategy : strategy.regenerated());
      second->restart(0, first->drawn());
      BOOST_TEST(second->begun() == cut);
      const auto rest = run_of(*second, cut, 12, {});
      for (std::size_t t = cut; t < 12; ++t) BOOST_TEST((rest[t - cut] == wanted[t]));
    }
    // Steps that nobody saw.
    const auto skipping = filter_of(strategy);
    const auto head = run_of(*skipping, 0, 4, {});
    for (const std::uint64_t drawn : {9U, 11U}) skipping->skip(drawn);
    const auto tail = run_of(*skipping, 6, 12, {});
    for (std::size_t t = 6; t < 12; ++t) BOOST_TEST((tail[t - 6] == wanted[t]));
  });
}

// With a new key nothing of the earlier part is left, and what joins both parts is left out.
BOOST_AUTO_TEST_CASE(noise_begins_anew) {
  const auto filter = filter_of(banded);
  static_cast<void>(run_of(*filter, 0, 5, {}));
  filter->restart(5, {});
  const auto anew = run_of(*filter, 5, 12, {}, 8);
  const auto other = filter_of(banded);
  other->restart(5, {});
  BOOST_TEST((run_of(*other, 5, 12, {}, 8) == anew));
  BOOST_CHECK_THROW(filter->restart(13, {}), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(there_is_no_step_beyond_the_last_one) {
  const auto filter = filter_of(banded);
  static_cast<void>(run_of(*filter, 0, 12, {}));
  BOOST_CHECK_THROW(static_cast<void>(run_of(*filter, 12, 13, {})), std::logic_error);
  // Sums of products must be exact.
  const auto of_growth = pergrad::banded_noise{100, {2.0}}.make_filter({1, 1}, elements, 1);
  BOOST_CHECK_THROW(of_growth->require_room(grid, 16), std::invalid_argument);
  BOOST_CHECK_THROW(filter->require_room(grid, 0x1p40), std::invalid_argument);
  BOOST_CHECK_THROW(filter_of(buffered)->require_room(grid, 0x1p40), std::invalid_argument);
}

// Noise of other steps would be of other sums.
BOOST_AUTO_TEST_CASE(all_steps_have_one_grid_and_one_deviation) {
  const auto filter = filter_of(banded);
  static_cast<void>(run_of(*filter, 0, 3, {}));
  pergrad::seeded_generator generator{3};
  const auto step = [&](const release_grid& of, double bound, double multiplier) {
    const detail::release_gate<double> gate{of, bound, noise_multiplier{multiplier}, 1, generator, filter.get()};
  };
  BOOST_CHECK_THROW(step(grid, of_one_sum, 1.6), std::logic_error);
  BOOST_CHECK_THROW(step(grid, of_one_sum / 2, 1.5), std::logic_error);
  BOOST_CHECK_THROW(step(release_grid::of(1.4, elements), of_one_sum, 1.5), std::logic_error);
  BOOST_TEST(filter->begun() == 3U);
  step(grid, of_one_sum, 1.5);
  BOOST_TEST(filter->begun() == 4U);
}

BOOST_AUTO_TEST_CASE(sensitivity_counts_every_rounding) {
  const auto sensitivity = banded.sensitivity(pattern);
  const auto filter = banded.make_filter(sensitivity, 100, 1);
  BOOST_TEST(filter->sensitivity(1000, 100) >= 1000 * sensitivity.of_sums + std::sqrt(100.0 * 12));
  BOOST_TEST(filter->sensitivity(1000, 100) <= (1000 * sensitivity.of_sums + std::sqrt(100.0 * 12)) * (1 + 1e-9));
  const auto of_tree = tree.sensitivity(pattern);
  BOOST_TEST(tree.make_filter(of_tree, 100, 1)->sensitivity(1000, 100) <= 1000 * of_tree.of_sums * (1 + 1e-9));
  // A buffer that hardly forgets has no more errors than steps.
  const std::vector<double> decay{1 - 0x1p-30};
  const std::vector<double> scale{1};
  BOOST_TEST(detail::buffered_recursion(decay, scale, 1000).rounding() <= 1 + 1010 * 0x1p-20);
  // At the size of a network the grid costs next to nothing.
  for (const std::size_t parameters : {26'010U, 1'000'000U, 100'000'000U}) {
    const release_grid of_network = release_grid::of(1, parameters);
    const double sum = pergrad::sensitivity_in_steps(of_network, {}, 1);
    const pergrad::banded_noise eight{1000, {0.77, 0.71, 0.68, 0.65, 0.62, 0.59, 0.54}};
    const auto of_run = eight.sensitivity({.separation = 100});
    BOOST_TEST(eight.make_filter(of_run, 1, 1)->sensitivity(sum, parameters) <= sum * of_run.of_sums * (1 + 2e-3));
  }
}

namespace {

/// Whoever has seen all releases: his f of each step, under the hypothesis that these are the sums.
template <class Recursion>
class history {
 public:
  explicit history(const Recursion& recursion)
      : recursion_{recursion}, rows_(recursion.rows() * detail::gaussian_block) {}
  /// A_t = G_t - f_t, and then n_t = h_t - G_t goes into the history.
  std::vector<double> query(std::uint64_t t, const std::vector<double>& sum, const std::vector<double>& released) {
    double k[detail::gaussian_block]{};
    auto copy = rows_;
    recursion_.step(t, copy.data(), k);  // -f
    std::vector<double> asked(sum.size());
    double known[detail::gaussian_block]{};
    for (std::size_t i = 0; i < sum.size(); ++i) {
      asked[i] = sum[i] + k[i];
      known[i] = released[i] - sum[i] - k[i];
    }
    recursion_.step(t, rows_.data(), known);
    for (std::size_t i = 0; i < sum.size(); ++i) BOOST_REQUIRE(known[i] == released[i] - sum[i]);
    return asked;
  }

 private:
  Recursion recursion_;
  std::vector<typename Recursion::cell> rows_;
};

/// The largest sum_t ‖A_t - A'_t‖² over histories, of records that move sums by at most `bound` in the steps of a set.
template <class Recursion>
double most_seen(const Recursion& recursion, std::uint64_t steps, std::uint64_t apart, double bound, bool is_aligned,
                 std::uint32_t seed) {
  constexpr std::size_t width = 40;
  std::mt19937 random{seed};
  std::normal_distribution<double> normal;
  double most = 0;
  for (int trial = 0; trial < 20; ++trial) {
    history<Recursion> with{recursion};
    history<Recursion> without{recursion};
    const std::size_t first = is_aligned ? 0 : random() % apart;
    std::vector<double> direction(width, 1 / std::sqrt(static_cast<double>(width)));
    double seen = 0;
    for (std::uint64_t t = 0; t < steps; ++t) {
      std::vector<double> sum(width);
      std::vector<double> released(width);
      for (std::size_t i = 0; i < width; ++i) {
        sum[i] = std::nearbyint(1000 * normal(random));
        released[i] = std::nearbyint(5000 * normal(random));
      }
      std::vector<double> more = sum;
      if (t >= first && (t - first) % apart == 0) {
        if (!is_aligned) {
          double norm = 0;
          for (double& each : direction) norm += std::pow(each = normal(random), 2);
          for (double& each : direction) each /= std::sqrt(norm);
        }
        for (std::size_t i = 0; i < width; ++i) more[i] += std::trunc(bound * direction[i]);
      }
      const auto a = without.query(t, sum, released);
      const auto b = with.query(t, more, released);
      for (std::size_t i = 0; i < width; ++i) seen += std::pow(a[i] - b[i], 2);
    }
    most = std::max(most, seen);
  }
  return std::sqrt(most);
}

}  // namespace

// The claim of filter.hpp, for any history: what a record does to all queries together keeps to the bound, and comes
// near it. With a bound of a few steps of the grid, rounding is most of it.
BOOST_AUTO_TEST_CASE(no_history_shows_more_than_the_bound) {
  constexpr std::size_t width = 40;
  const auto check = [&](const auto& strategy, const auto& recursion, std::uint64_t apart) {
    for (const double bound : {7.0, 40.0, 5000.0}) {
      const auto of_run = strategy.sensitivity({.separation = apart});
      const double proven = strategy.make_filter(of_run, width, 1)->sensitivity(bound, width);
      for (std::uint32_t seed = 1; seed < 4; ++seed) {
        BOOST_TEST(most_seen(recursion, strategy.steps(), apart, bound, false, seed) <= proven);
        const double aligned = most_seen(recursion, strategy.steps(), apart, bound, true, seed);
        BOOST_TEST(aligned <= proven);
        if (bound == 5000 && of_run.rounded_steps != 0) BOOST_TEST(aligned >= 0.98 * proven);
        // Without what rounding adds, the claim would be false.
        if (bound == 7 && of_run.rounded_steps != 0 && apart >= 5) BOOST_TEST(aligned > bound * of_run.of_sums);
      }
    }
  };
  const std::vector<double> c{0.77, 0.71, 0.68, 0.65};
  const pergrad::banded_noise five{30, c};
  const detail::banded_recursion recursion{c, 30};
  check(five, recursion, 5);
  check(five, recursion, 2);
  check(five, recursion, 30);
  const std::vector<double> decays{0.99, 0.6};
  const std::vector<double> scales{0.08, 0.5};
  check(pergrad::buffered_noise{30, decays, scales}, detail::buffered_recursion{decays, scales, 30}, 5);
  check(pergrad::buffered_noise{30, decays, scales}, detail::buffered_recursion{decays, scales, 30}, 30);
  check(pergrad::tree_noise{30}, detail::tree_recursion{30}, 5);
  check(pergrad::tree_noise{30}, detail::tree_recursion{30}, 30);
}

BOOST_AUTO_TEST_SUITE_END()
