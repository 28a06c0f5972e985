// SPDX-License-Identifier: Apache-2.0
// tests/attacks/statistics_test.cpp - attacks on released counts: bits, the size of the noise, the sensitivity, and a
// step's gradient and statistic together; each finds what is planted for it
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "attacks/matrix.hpp"

BOOST_AUTO_TEST_SUITE(attacks_statistics)

namespace {

namespace pg = pergrad;
using attacks::hypothesis;
using attacks::observation;
using attacks::tally;

constexpr std::size_t records = 3000;

/// A histogram of `records` lengths, and one more.
template <class Generator = pg::seeded_generator>
struct histogram_victim {
  attacks::setting known;
  pg::bin_edges edges = pg::bin_edges::evenly(0, 1, 510);
  std::vector<double> values = std::vector<double>(records + 1);
  hypothesis guesses[2];
  pg::privacy_accountant ledger{};
  Generator generator;

  explicit histogram_victim(double sigma, Generator given = {}) : generator{std::move(given)} {
    const auto grid = pg::release_grid::of(1, edges.bins());
    known = {sigma, sigma, std::ldexp(1.0, grid.unit - grid.steps), true};
    std::mt19937 random{3};
    for (double& value : values) value = std::uniform_real_distribution<double>{-0.1, 1.1}(random);
    for (const bool with : {false, true}) {
      std::vector<double>& sum = guesses[with ? 1 : 0].sum;
      sum.resize(edges.bins());
      for (const double value : of(with)) ++sum[edges.bin_of(value)];
      guesses[with ? 1 : 0].on_grid = sum;
    }
  }
  [[nodiscard]] std::span<const double> of(bool with) const {
    return std::span{values}.first(records + (with ? 1 : 0));
  }
  [[nodiscard]] const hypothesis& guess(bool with) const { return guesses[with ? 1 : 0]; }
  [[nodiscard]] observation observe(bool with) {
    const auto seen = pg::release_histogram(ledger, generator, pg::noise_multiplier{known.sigma}, of(with), edges);
    return {{seen.counts().begin(), seen.counts().end()}};
  }
};

/// The same with planted noise.
struct weak_histogram {
  planted::kind which;
  histogram_victim<> of;
  attacks::setting known;
  std::mt19937_64 words{17};
  weak_histogram(planted::kind kind, double sigma) : which{kind}, of{sigma, pg::seeded_generator{1}}, known{of.known} {}
  [[nodiscard]] const hypothesis& guess(bool with) const { return of.guess(with); }
  [[nodiscard]] observation observe(bool with) {
    return {planted::release<double>(which, guess(with).sum, known, words)};
  }
};

[[nodiscard]] bool any_falls(const std::vector<tally>& found, double sigma) {
  bool falls = false;
  for (const tally& each : found) falls = falls || !attacks::is_private(each, sigma);
  return falls;
}

/// The worst distance in L2 between what two neighbouring data sets put under the noise; `count` makes a histogram.
using histogram = std::function<std::vector<double>(std::span<const double>, const pg::bin_edges&)>;
[[nodiscard]] double worst_distance(const histogram& count) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::mt19937 random{11};
  double worst = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> borders(1 + random() % 6);
    double border = -2;
    for (double& each : borders) each = border += 0.25 * static_cast<double>(1 + random() % 4);
    const pg::bin_edges edges{borders};
    std::vector<double> values(random() % 9);
    for (double& each : values) each = -2 + 0.25 * static_cast<double>(random() % 20);  // often on a border
    std::vector<double> more = values;
    const double extremes[] = {borders[0], borders.back(), infinity, -infinity, std::nan(""), -0.0, 1e-320};
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(random() % (values.size() + 1)), extremes[random() % 7]);
    const auto one = count(values, edges);
    const auto other = count(more, edges);
    double squared = 0;
    for (std::size_t i = 0; i < one.size(); ++i) squared += std::pow(one[i] - other[i], 2);
    worst = std::max(worst, std::sqrt(squared));
  }
  return worst;
}

}  // namespace

BOOST_AUTO_TEST_CASE(bits_of_a_histogram_tell_nothing) {
  for (const double sigma : {1.0, 100.0, 1e4}) {
    histogram_victim victim{sigma, pg::seeded_generator{11}};
    matrix::check_private(attacks::decide_neighbours(victim, attacks::trials(100, 1000), 5), sigma, "histogram");
  }
  histogram_victim<pg::os_keyed_generator> keyed{100};
  matrix::check_private(attacks::decide_neighbours(keyed, attacks::trials(100, 1000), 5), 100,
                        "histogram, key of the system");
}
BOOST_AUTO_TEST_CASE(planted_bits_of_a_histogram_fall) {
  for (const auto kind : {planted::kind::former, planted::kind::textbook}) {
    weak_histogram victim{kind, 100};
    BOOST_TEST(any_falls(attacks::decide_neighbours(victim, 100, 5), 100), "kind " << static_cast<int>(kind));
  }
}
BOOST_AUTO_TEST_CASE(the_noise_of_a_histogram_has_its_size) {
  histogram_victim victim{1, pg::seeded_generator{11}};
  const auto found = attacks::decide_neighbours(victim, attacks::trials(800, 8000), 5);
  matrix::check_private(found, 1, "size of a histogram's noise");
  BOOST_TEST(found.back().rate() > attacks::most_allowed(1) - 0.09);
  weak_histogram half{planted::kind::half, 1};
  BOOST_TEST(any_falls(attacks::decide_neighbours(half, 800, 5), 1));
}

BOOST_AUTO_TEST_CASE(a_record_moves_one_count_by_one) {
  const auto library = [](std::span<const double> values, const pg::bin_edges& edges) {
    pg::privacy_accountant ledger;
    pg::seeded_generator generator{1};
    const auto found = pg::release_histogram(ledger, generator, pg::noise_multiplier{0}, values, edges);
    return std::vector<double>(found.counts().begin(), found.counts().end());
  };
  BOOST_TEST(worst_distance(library) == 1);
  // Planted: a value on a border is in both bins; a NaN is in all bins whose borders it does not exceed.
  const auto both = [&](std::span<const double> values, const pg::bin_edges& edges) {
    auto counts = library(values, edges);
    for (const double value : values) {
      for (std::size_t i = 0; i < edges.values().size(); ++i) counts[i] += value == edges.values()[i] ? 1 : 0;
    }
    return counts;
  };
  const auto nowhere_above = [](std::span<const double> values, const pg::bin_edges& edges) {
    std::vector<double> counts(edges.bins());
    for (const double value : values) {
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const bool above = i > 0 && value < edges.values()[i - 1];
        const bool below = i + 1 < counts.size() && value >= edges.values()[i];
        counts[i] += !above && !below ? 1 : 0;
      }
    }
    return counts;
  };
  BOOST_TEST(worst_distance(both) > 1);
  BOOST_TEST(worst_distance(nowhere_above) > 1);
}

// Who sees gradient and statistic of a step decides better than one of them allows, and no better than the event of the
// step: as if the statistic were for nothing is what the attack would find. `Adapts`: the statistic are the counts of
// adaptive clipping.
template <bool Adapts>
void attack_gradient_and_statistic() {
  using net = victims::small<double>;
  constexpr double clip = Adapts ? 0.05 : 0.7;  // flat clipping: so that each record is clipped
  struct step_victim {
    attacks::setting known{1, clip, 0, true};
    victims::records<net> data{40, false};
    pg::host executor{pg::threads{1}};
    net network{executor, pg::kaiming_uniform{5}};
    hypothesis guesses[2];
    pg::seeded_generator generator{11};
    double event_noise = 0;

    [[nodiscard]] static pg::dp_sgd_options options(double sigma) {
      pg::dp_sgd_options made;
      made.clip = pg::l2_clip_norm{clip};
      if (!Adapts) made.clipping = pg::clipping_kind::automatic;  // so that each record uses nearly all of the bound
      made.noise = pg::noise_multiplier{sigma};
      made.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
      made.divisor = pg::expected_batch_size{40};
      made.learning_rate = pg::learning_rate{1e-300};
      if (Adapts) {
        made.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{sigma}};
      } else {
        made.statistic = pg::step_statistic{pg::noise_multiplier{sigma}, pg::bin_edges{{0.5, 1, 2, 4}}};
      }
      return made;
    }
    [[nodiscard]] observation release(bool with, double sigma, std::uint64_t first_step) {
      pg::dp_sgd trainer{executor, network, pg::cross_entropy{}, options(sigma), pg::seeded_generator{11, first_step}};
      trainer.step(data.view(with));
      observation seen{{trainer.last_update().values().begin(), trainer.last_update().values().end()}};
      for (const double count : trainer.last_statistic().counts()) seen.values.push_back(clip * count);
      event_noise = trainer.accountant().accountant().ledger()[0].event.noise_multiplier;
      return seen;
    }
    step_victim() {
      for (const bool with : {false, true}) {
        hypothesis& guess = guesses[with ? 1 : 0];
        guess.sum = guess.on_grid = release(with, 0, 0).values;
      }
    }
    [[nodiscard]] const hypothesis& guess(bool with) const { return guesses[with ? 1 : 0]; }
    [[nodiscard]] observation observe(bool with) {
      const std::uint64_t first = generator.next_step() * 4;
      return release(with, 1, first + 4);
    }
  };
  step_victim victim;
  std::mt19937_64 coins{5};
  tally found{"likelihood", 0, attacks::trials(4000, 20000)};
  for (int trial = 0; trial < found.trials; ++trial) {
    const bool with = (coins() >> 63U) != 0;
    const observation seen = victim.observe(with);
    const attacks::stretch all{0, seen.values.size()};
    const auto score = [&](bool guess) {
      return attacks::scores::likelihood(seen, victim.guess(guess), all, victim.known);
    };
    found.right += (score(true) > score(false)) == with ? 1 : 0;
  }
  BOOST_TEST(std::fabs(victim.event_noise - std::sqrt(0.5)) < 1e-12);
  std::printf("gradient and statistic: %.3f of %d, the event allows %.3f, one alone %.3f\n", found.rate(), found.trials,
              attacks::most_allowed(victim.event_noise), attacks::most_allowed(1));
  BOOST_TEST(attacks::is_private(found, victim.event_noise));
  BOOST_TEST(!attacks::is_private(found, 1));  // planted: the event of the gradient alone
}
BOOST_AUTO_TEST_CASE(gradient_and_statistic_of_a_step_together) { attack_gradient_and_statistic<false>(); }
BOOST_AUTO_TEST_CASE(gradient_and_counts_of_adaptive_clipping_together) { attack_gradient_and_statistic<true>(); }

BOOST_AUTO_TEST_SUITE_END()
