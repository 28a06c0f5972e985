// SPDX-License-Identifier: Apache-2.0
// tests/attacks/matrix.hpp - every attack on every victim: cells, counted for the family-wise error
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "attacks/victims.hpp"

namespace matrix {

using attacks::tally;

/// Of all victims of a program.
inline int cells = 0;

/// No attack is right more often than it may.
inline void check_private(const std::vector<tally>& found, double sigma, const std::string& what) {
  std::printf("%-48s sigma %-6g", what.c_str(), sigma);
  for (const tally& each : found) {
    ++cells;
    const double if_always_right = attacks::tail(each.trials, each.trials, attacks::most_allowed(sigma));
    BOOST_TEST_REQUIRE(if_always_right < attacks::error_of_a_cell / 2, "too few trials to fail");
    std::printf(" %5.3f", each.rate());
    BOOST_TEST(attacks::is_private(each, sigma), what << ", sigma " << sigma << ": " << each.attack << " is right "
                                                      << each.right << " of " << each.trials << " times");
  }
  std::printf("  of %d\n", found.front().trials);
  BOOST_TEST(cells <= attacks::most_cells);
}

/// In the short tier every other one: the least, at which the trade-off is the bound, one in the middle, and the most,
/// at which the noise reaches the coarsest numbers.
inline const std::vector<double> every_sigma = std::getenv("PERGRAD_LONG_TESTS") == nullptr
                                                   ? std::vector<double>{1, 100, 1e5}
                                                   : std::vector<double>{1, 10, 100, 1e3, 1e4, 1e5};
/// For what has been attacked with every one of them in float.
inline const std::vector<double> sigmas_of_doubles =
    std::getenv("PERGRAD_LONG_TESTS") == nullptr ? std::vector<double>{1, 1e5} : every_sigma;
inline const std::vector<victims::route> every_route{
    victims::route::trainer,   victims::route::by_hand,       victims::route::totals,
    victims::route::loop,      victims::route::sgd_step,      victims::route::momentum_steps,
    victims::route::adam_step, victims::route::momentum_loop, victims::route::adam_loop};

/// Whom to attack how often.
struct campaign {
  const char* name;
  int trials;
  std::vector<double> sigmas = every_sigma;
  victims::what_is_done done{};  ///< but for the noise
};

/// All attacks on all routes.
template <class Network, class Generator = pergrad::seeded_generator, class Executor>
void attack_all(const Executor& executor, const campaign& plan) {
  for (const victims::route way : every_route) {
    for (const double sigma : plan.sigmas) {
      const auto seed = static_cast<std::uint64_t>(cells);
      victims::what_is_done done = plan.done;
      done.sigma = sigma;
      const auto generator = [&] {
        if constexpr (Generator::is_private) {
          return Generator{};
        } else {
          return Generator{seed};
        }
      };
      victims::library<Network, Generator, Executor> victim{executor, way, done, generator()};
      check_private(attacks::decide_neighbours(victim, plan.trials, 5 + seed), sigma,
                    std::string{plan.name} + ", " + victims::names[static_cast<int>(way)]);
    }
  }
}

/// Two releases of one run.
template <class Network, class Executor>
void attack_successive(const Executor& executor, const std::string& name, const victims::what_is_done& done = {}) {
  for (const auto way :
       {victims::route::trainer, victims::route::by_hand, victims::route::totals, victims::route::loop}) {
    victims::what_is_done with_noise = done;
    with_noise.sigma = 100;
    victims::library<Network, pergrad::seeded_generator, Executor> victim{executor, way, with_noise};
    victims::successive both{victim};
    check_private(attacks::decide_neighbours(both, attacks::trials(60, 500), 5), 100,
                  name + ", twice, " + victims::names[static_cast<int>(way)]);
  }
}

/// The likelihood is right as often as the noise allows and no more often: the noise is as large as it says, and what
/// the attacker takes for the sums is what is under it.
template <class Network, class Executor>
void check_size_of_noise(const Executor& executor, const std::vector<victims::route>& routes) {
  for (const victims::route way : routes) {
    victims::library<Network, pergrad::seeded_generator, Executor> victim{executor, way, {.records = 40}};
    const auto found = attacks::decide_neighbours(victim, attacks::trials(800, 8000), 5);
    check_private(found, 1, std::string{"size of the noise, "} + victims::names[static_cast<int>(way)]);
    BOOST_TEST(found.back().attack == "likelihood");
    BOOST_TEST(found.back().rate() > attacks::most_allowed(1) - 0.09, victims::names[static_cast<int>(way)]);
  }
}

/// Half of a vocabulary, each word in one record.
struct half_of_the_words {
  std::size_t each;  ///< words of a record
  std::vector<std::int32_t> ids;
  std::vector<bool> used;
  std::vector<std::int32_t> classes;

  half_of_the_words(std::size_t vocabulary, std::size_t of_a_record, std::uint32_t class_count)
      : each{of_a_record}, ids(vocabulary), used(vocabulary), classes(vocabulary / 2 / of_a_record) {
    std::mt19937 random{5};
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    ids.resize(vocabulary / 2);
    for (const std::int32_t id : ids) used[static_cast<std::size_t>(id)] = true;
    for (std::int32_t& y : classes) y = static_cast<std::int32_t>(random() % class_count);
  }
};

/// What is released of a table of words: its first values, `width` a word, in one step or several on the same records.
struct word_table {
  struct steps {
    double sigma;
    int former;                ///< words of which the former noise let guess right
    std::size_t releases = 1;  ///< more than one of a transposed table only
  };
  const char* name;
  std::size_t width;
  std::vector<steps> sigmas;
  bool is_transposed = false;  ///< the first values of all words, then the second ones
};

/// Which words a batch used, with nothing known about the data. Both kinds of noise meet the same attackers.
template <class Network, class Executor>
void attack_words(const Executor& executor, const pergrad::batch<Network, pergrad::cross_entropy>& records,
                  const std::vector<bool>& used, const word_table& table) {
  namespace pg = pergrad;
  using scalar = typename Network::scalar;
  const std::size_t words = used.size();
  const auto in_every_release = [&](std::size_t releases, const auto& values_of_one) {
    attacks::observation seen;
    for (std::size_t i = 0; i < releases; ++i) {
      const auto values = values_of_one();
      seen.values.insert(seen.values.end(), values.begin(), values.begin() + static_cast<int>(words * table.width));
    }
    return seen;
  };
  const Network model{executor, pg::kaiming_uniform{5}};
  pg::tape<Network> tape{executor, pg::max_batch{records.size()}};
  const auto g = pg::per_sample_gradients(model, pg::cross_entropy{}, records, tape);
  const pg::l2_clip_norm clip{0.7};
  const auto clipped = pg::sum(pg::clip(g, clip));
  const auto sum = pg::unprotected::evaluate(executor, clipped);
  const std::vector<double> sums(sum.begin(), sum.end());
  const auto grid = pg::release_grid::of(clip.value(), Network::parameter_count);
  pg::seeded_generator generator{13};
  std::mt19937_64 random{19};
  for (const auto& [sigma, right, releases] : table.sigmas) {
    const auto elements_of = [&, count = table.width * releases](std::size_t word) {
      return table.is_transposed ? attacks::stretch{word, count, words} : attacks::stretch{word * count, count};
    };
    const attacks::setting known{sigma, sigma * clip.value(), std::ldexp(1.0, grid.unit - grid.steps),
                                 std::is_same_v<scalar, double>};
    const auto of_former = in_every_release(
        releases, [&] { return planted::release<scalar>(planted::kind::former, sums, known, random); });
    for (const tally& each : attacks::decide_words(of_former, used, elements_of, known, 7)) {
      if (each.attack != "floats, fused") continue;
      std::printf("planted: %s, sigma %g: %d of %d\n", table.name, sigma, each.right, each.trials);
      BOOST_TEST(attacks::wins(each, right, each.trials));
    }
    pg::unprotected::rehearsed_gradient<Network> update{executor};
    const auto released = in_every_release(releases, [&, multiplier = sigma] {
      pg::evaluate_into(executor, update,
                        clipped + pg::unaccounted::gaussian_noise(pg::noise_multiplier{multiplier}, generator));
      return update.values();
    });
    // The Gaussian mechanism n times is one with sigma / sqrt(n).
    check_private(attacks::decide_words(released, used, elements_of, known, 7),
                  sigma / std::sqrt(static_cast<double>(releases)), table.name);
  }
}

}  // namespace matrix
