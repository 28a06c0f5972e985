// SPDX-License-Identifier: Apache-2.0
// tests/attacks/matrix.hpp - every attack on every victim: cells, counted for the family-wise error
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "attacks/victims.hpp"

namespace matrix {

using attacks::tally;

/// Of all victims of a program.
inline int cells = 0;

/// No attack is right more often than it may.
inline void check_private(const std::vector<tally>& found, double sigma, const std::string& what) {
  std::printf("%-44s sigma %-6g", what.c_str(), sigma);
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

inline const std::vector<double> every_sigma{1, 10, 100, 1e3, 1e4, 1e5};
inline const std::vector<victims::route> every_route{
    victims::route::trainer,  victims::route::by_hand,        victims::route::totals,   victims::route::loop,
    victims::route::sgd_step, victims::route::momentum_steps, victims::route::adam_step};

/// Whom to attack how often.
struct campaign {
  const char* name;
  int trials;
  std::vector<double> sigmas = every_sigma;
  std::size_t records = 300;
};

/// All attacks on all routes.
template <class Network, class Executor>
void attack_all(const Executor& executor, const campaign& plan) {
  for (const victims::route way : every_route) {
    for (const double sigma : plan.sigmas) {
      const auto seed = static_cast<std::uint64_t>(cells);
      victims::library<Network, pergrad::seeded_generator, Executor> victim{
          executor, way, {.sigma = sigma, .records = plan.records}, pergrad::seeded_generator{seed}};
      check_private(attacks::decide_neighbours(victim, plan.trials, 5 + seed), sigma,
                    std::string{plan.name} + ", " + victims::names[static_cast<int>(way)]);
    }
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

}  // namespace matrix
