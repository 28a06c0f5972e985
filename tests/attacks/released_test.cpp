// SPDX-License-Identifier: Apache-2.0
// tests/attacks/released_test.cpp - the attacks that break planted noise do no better than chance on what the library
// releases, by any route
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <tuple>
#include <type_traits>
#include <vector>

#include "attacks/matrix.hpp"

BOOST_AUTO_TEST_SUITE(attacks_released)

namespace {

namespace pg = pergrad;
using namespace matrix;

using scalars = std::tuple<float, double>;

}  // namespace

BOOST_AUTO_TEST_CASE(neighbours_of_the_perceptron) {
  const pg::host executor{pg::threads{1}};
  attack_all<victims::mlp<float>>(executor, {"mlp, float", attacks::trials(60, 500)});
  attack_all<victims::mlp<double>>(executor, {"mlp, double", attacks::trials(60, 500), {1, 1000}});
}

BOOST_AUTO_TEST_CASE(neighbours_of_the_convolutions) {
  const pg::host executor{pg::threads{1}};
  attack_all<victims::cnn<float>>(executor, {"cnn, float", attacks::trials(100, 1000)});
  attack_all<victims::cnn<double>>(executor, {"cnn, double", attacks::trials(100, 1000)});
}

BOOST_AUTO_TEST_CASE(neighbours_of_the_embedding) {
  const pg::host executor{pg::threads{1}};
  attack_all<victims::words<float>>(executor, {"embedding, float", attacks::trials(100, 1000)});
  attack_all<victims::words<double>>(executor, {"embedding, double", attacks::trials(100, 1000)});
}

BOOST_AUTO_TEST_CASE(noise_has_the_size_that_it_says) {
  const pg::host executor{pg::threads{1}};
  check_size_of_noise<victims::small<float>>(executor, every_route);
  check_size_of_noise<victims::small<double>>(executor, {victims::route::trainer});
}

BOOST_AUTO_TEST_CASE(two_releases_of_one_run) {
  const pg::host executor{pg::threads{1}};
  for (const auto way :
       {victims::route::trainer, victims::route::by_hand, victims::route::totals, victims::route::loop}) {
    victims::library<victims::mlp<float>> victim{executor, way, {.sigma = 100}};
    victims::successive both{victim};
    check_private(attacks::decide_neighbours(both, attacks::trials(60, 500), 5), 100, "two releases of one run");
  }
}

BOOST_AUTO_TEST_CASE(with_a_key_of_the_operating_system) {
  const pg::host executor{pg::threads{1}};
  using victim_type = victims::library<victims::mlp<float>, pg::os_keyed_generator>;
  for (const auto way : {victims::route::trainer, victims::route::by_hand, victims::route::loop}) {
    victim_type victim{executor, way, {.sigma = 100}};
    check_private(attacks::decide_neighbours(victim, attacks::trials(100, 1000), 5), 100, "mlp, key of the system");
  }
}

// Which words a batch used, with nothing known about the data: 256 records of 16 words each, 4,096 of 8,192, every one
// in one record. Both kinds of noise meet the same attackers.
BOOST_AUTO_TEST_CASE_TEMPLATE(words_of_an_embedding, scalar, scalars) {
  constexpr std::size_t vocabulary = 8192;
  constexpr std::size_t width = 160;
  constexpr std::size_t count = vocabulary / 2 / 16;
  using net = pg::basic_network<scalar, pg::token_ids(16, vocabulary), pg::embedding<width>, pg::mean_over_positions,
                                pg::linear<2>>;
  std::mt19937 random{5};
  std::vector<std::int32_t> ids(vocabulary);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(vocabulary / 2);
  std::vector<bool> used(vocabulary);
  for (const std::int32_t id : ids) used[static_cast<std::size_t>(id)] = true;
  std::vector<std::int32_t> classes(count);
  for (std::int32_t& y : classes) y = static_cast<std::int32_t>(random() % 2);

  const pg::host executor{pg::threads{1}};
  const net model{executor, pg::kaiming_uniform{5}};
  typename net::tape tape{executor, pg::max_batch{count}};
  const pg::batch<net, pg::cross_entropy> batch{ids, classes};
  const auto g = pg::per_sample_gradients(model, pg::cross_entropy{}, batch, tape);
  const pg::l2_clip_norm clip{0.7};
  const auto clipped = pg::sum(pg::clip(g, clip));
  const auto sum = pg::unprotected::evaluate(executor, clipped);
  const std::vector<double> table(sum.begin(), sum.begin() + vocabulary * width);
  const auto grid = pg::release_grid::of(clip.value(), net::parameter_count);
  pg::seeded_generator generator{13};
  std::mt19937_64 words{19};
  for (const double sigma : {1.0, 10.0, 100.0}) {
    const attacks::setting known{sigma, sigma * clip.value(), std::ldexp(1.0, grid.unit - grid.steps),
                                 std::is_same_v<scalar, double>};
    const attacks::observation of_former{planted::release<scalar>(planted::kind::former, table, known, words)};
    for (const tally& each : attacks::decide_words(of_former, used, width, known, 7)) {
      if (each.attack != "floats, fused") continue;
      std::printf("planted: words, sigma %g: %d of %d\n", sigma, each.right, each.trials);
      BOOST_TEST(attacks::wins(each, sigma == 100 ? 4095 : 4096, 4096));
    }
    pg::unprotected::rehearsed_gradient<net> update{executor};
    pg::evaluate_into(executor, update,
                      clipped + pg::unaccounted::gaussian_noise(pg::noise_multiplier{sigma}, generator));
    const auto released = update.values().first(vocabulary * width);
    check_private(attacks::decide_words({{released.begin(), released.end()}}, used, width, known, 7), sigma,
                  "words of an embedding");
  }
}

BOOST_AUTO_TEST_SUITE_END()
