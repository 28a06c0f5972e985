// SPDX-License-Identifier: Apache-2.0
// tests/attacks/planted_test.cpp - every attack finds the weakness that was planted for it, as often as it was measured
// in the former releases
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "attacks/victims.hpp"

BOOST_AUTO_TEST_SUITE(attacks_planted)

namespace {

using attacks::tally;
using planted::kind;
using victims::route;
using victims::weak;

const tally& of(const std::vector<tally>& all, const std::string& attack) {
  for (const tally& each : all) {
    if (each.attack == attack) return each;
  }
  throw std::logic_error("no attack " + attack);
}

/// The 25,450-parameter net and its 300 records, with the record and without.
template <class Scalar>
struct sums {
  using net = victims::mlp<Scalar>;
  pergrad::host executor{pergrad::threads{1}};
  victims::library<net> of;
  explicit sums(double sigma, route way = route::by_hand, double step = 0.25)
      : of{executor, way, {.sigma = sigma, .step = step}} {}
  [[nodiscard]] std::vector<tally> attacked(kind which, int trials) const {
    weak<net> victim{which, of};
    return attacks::decide_neighbours(victim, trials, 5);
  }
};

void check_wins(const tally& found, int right, int trials, const std::string& what) {
  std::printf("planted: %-40s %-22s %d of %d\n", what.c_str(), found.attack.c_str(), found.right, found.trials);
  BOOST_TEST(attacks::wins(found, right, trials), what << ": " << found.right << " of " << found.trials);
  // The library's releases are judged by this: chance would pass it.
  BOOST_TEST(!attacks::is_private(found, 100), what << ": " << found.right << " of " << found.trials);
}

}  // namespace

BOOST_AUTO_TEST_CASE(former_sums_fall) {
  const int trials = attacks::trials(40, 200);
  for (const double sigma : {100.0, 1e3, 1e4, 1e5}) {
    const auto found = sums<float>{sigma}.attacked(kind::former, trials);
    check_wins(of(found, "angles between"), sigma == 100 ? 200 : 100, sigma == 100 ? 200 : 100,
               "former, sigma " + std::to_string(sigma));
  }
}

BOOST_AUTO_TEST_CASE(sixteen_pairs_suffice) {
  const sums<float> of_net{100};
  weak<victims::mlp<float>> victim{kind::former, of_net.of};
  std::mt19937_64 coins{3};
  tally found{"angles between", 0, attacks::trials(100, 1000)};
  for (int trial = 0; trial < found.trials; ++trial) {
    const bool with = (coins() >> 63U) != 0;
    const auto seen = victim.observe(with);
    const auto score = [&](bool guess) {  // the first 16 of a tile, whose partners lie behind them
      return attacks::scores::angles(seen, victim.guess(guess), {512, 16}, victim.known);
    };
    found.right += (score(true) < score(false)) == with ? 1 : 0;
  }
  check_wins(found, 200, 200, "former, 16 pairs, sigma 100");
}

BOOST_AUTO_TEST_CASE(former_sums_of_doubles_fall_element_by_element) {
  const sums<double> of_net{1000};
  weak<victims::mlp<double>> victim{kind::former, of_net.of};
  const auto seen = victim.observe(true);
  std::size_t confirm = 0;
  std::size_t refute = 0;
  std::size_t differ = 0;
  for (std::size_t i = 0; i < seen.values.size(); ++i) {
    if (victim.guess(true).sum[i] == victim.guess(false).sum[i]) continue;
    ++differ;
    const auto score = [&](bool guess) {
      return attacks::scores::reachable<attacks::scores::formula::fused>(seen, victim.guess(guess), {i, 1},
                                                                         victim.known);
    };
    confirm += score(true) == 0 ? 1U : 0U;
    refute += score(false) < 0 ? 1U : 0U;
  }
  BOOST_TEST(confirm == differ);
  BOOST_TEST(static_cast<double>(refute) > 0.999 * static_cast<double>(differ), refute << " of " << differ);
  check_wins(of(of_net.attacked(kind::former, attacks::trials(40, 100)), "floats, fused"), 100, 100,
             "former doubles, sigma 1000");
}

BOOST_AUTO_TEST_CASE(former_parameters_after_a_step_fall) {
  for (const double step : {0.25, 0.005, 0.0016, 0.0002}) {
    check_wins(
        of(sums<float>{100, route::sgd_step, step}.attacked(kind::former, attacks::trials(40, 100)), "angles between"),
        100, 100, "former, step of " + std::to_string(step));
  }
  for (const auto way : {route::momentum_steps, route::adam_step}) {
    check_wins(of(sums<float>{100, way}.attacked(kind::former, attacks::trials(40, 100)), "angles between"), 100, 100,
               std::string{"former, "} + victims::names[static_cast<int>(way)]);
  }
}

BOOST_AUTO_TEST_CASE(other_weaknesses_fall) {
  const int trials = attacks::trials(40, 100);
  check_wins(of(sums<float>{1e4}.attacked(kind::textbook, trials), "angles"), 50, 50, "textbook, sigma 10000");
  check_wins(of(sums<float>{100}.attacked(kind::textbook, trials), "floats, rounded twice"), 100, 100,
             "textbook, sigma 100");
  check_wins(of(sums<float>{100}.attacked(kind::textbook, trials), "precision"), 100, 100, "textbook, sigma 100");
  check_wins(of(sums<double>{100}.attacked(kind::textbook, trials), "precision"), 100, 100,
             "textbook doubles, sigma 100");
  for (const double sigma : {100.0, 1e4}) {
    check_wins(of(sums<float>{sigma}.attacked(kind::summed, trials), "cancellation"), 100, 100,
               "summed, sigma " + std::to_string(sigma));
  }
  check_wins(of(sums<double>{100}.attacked(kind::unrounded, trials), "lattice"), 100, 100, "unrounded, sigma 100");
  check_wins(of(sums<double>{1000}.attacked(kind::coarse, trials), "low bits"), 100, 100, "coarse, sigma 1000");
}

BOOST_AUTO_TEST_CASE(noise_that_comes_twice_cancels) {
  const sums<float> of_net{1e4};
  weak<victims::mlp<float>> victim{kind::repeated, of_net.of};
  victims::successive both{victim};
  check_wins(of(attacks::decide_neighbours(both, attacks::trials(40, 100), 5), "likelihood"), 100, 100,
             "repeated, sigma 10000");
}

// What is allowed at most is what the likelihood gives, and noise that is too small shows.
BOOST_AUTO_TEST_CASE(half_the_noise_is_seen) {
  const int trials = attacks::trials(400, 4000);
  for (const double sigma : {0.7, 1.0}) {
    const tally found = of(sums<double>{sigma}.attacked(kind::half, trials), "likelihood");
    std::printf("planted: half the noise, sigma %g: %d of %d, allowed %.3f\n", sigma, found.right, found.trials,
                attacks::most_allowed(sigma));
    BOOST_TEST(!attacks::is_private(found, sigma));
  }
}

BOOST_AUTO_TEST_SUITE_END()
