// SPDX-License-Identifier: Apache-2.0
// tests/attacks/released_test.cpp - the attacks that break planted noise do no better than chance on what the library
// releases, by any route
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>

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
  attack_all<victims::mlp<double>>(executor, {"mlp, double", attacks::trials(60, 500), sigmas_of_doubles});
}

BOOST_AUTO_TEST_CASE(neighbours_of_the_convolutions) {
  const pg::host executor{pg::threads{1}};
  attack_all<victims::cnn<float>>(executor, {"cnn, float", attacks::trials(60, 1000)});
  attack_all<victims::cnn<double>>(executor, {"cnn, double", attacks::trials(60, 1000), sigmas_of_doubles});
}

BOOST_AUTO_TEST_CASE(neighbours_of_the_embedding) {
  const pg::host executor{pg::threads{1}};
  attack_all<victims::words<float>>(executor, {"embedding, float", attacks::trials(60, 1000)});
  attack_all<victims::words<double>>(executor, {"embedding, double", attacks::trials(60, 1000), sigmas_of_doubles});
}

BOOST_AUTO_TEST_CASE(noise_has_the_size_that_it_says) {
  const pg::host executor{pg::threads{1}};
  check_size_of_noise<victims::small<float>>(executor, every_route);
  check_size_of_noise<victims::small<double>>(executor, {victims::route::trainer});
}

BOOST_AUTO_TEST_CASE(two_releases_of_one_run) {
  const pg::host executor{pg::threads{1}};
  attack_successive<victims::mlp<float>>(executor, "mlp, float");
  attack_successive<victims::small<double>>(executor, "small mlp, double");
}

BOOST_AUTO_TEST_CASE(with_a_key_of_the_operating_system) {
  const pg::host executor{pg::threads{1}};
  using victim_type = victims::library<victims::mlp<float>, pg::os_keyed_generator>;
  for (const auto way : {victims::route::trainer, victims::route::by_hand, victims::route::loop}) {
    victim_type victim{executor, way, {.sigma = 100}};
    check_private(attacks::decide_neighbours(victim, attacks::trials(60, 1000), 5), 100, "mlp, key of the system");
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(all_networks_with_keys_of_the_operating_system, scalar, scalars) {
  const pg::host executor{pg::threads{1}};
  const auto attack = [&]<class Net>(std::type_identity<Net>, const char* name) {
    attack_all<Net, pg::os_keyed_generator>(executor, {name, attacks::trials(60, 500), {1, 100}});
  };
  attack(std::type_identity<victims::small<scalar>>{}, "small mlp, key of the system");
  attack(std::type_identity<victims::cnn<scalar>>{}, "cnn, key of the system");
  attack(std::type_identity<victims::words<scalar>>{}, "embedding, key of the system");
}

// 256 records of 16 words each, 4,096 of 8,192.
BOOST_AUTO_TEST_CASE_TEMPLATE(words_of_an_embedding, scalar, scalars) {
  constexpr std::size_t vocabulary = 8192;
  constexpr std::size_t width = 160;
  using net = pg::basic_network<scalar, pg::token_ids(16, vocabulary), pg::embedding<width>, pg::mean_over_positions,
                                pg::linear<2>>;
  const half_of_the_words half{vocabulary, 16, 2};
  const pg::host executor{pg::threads{1}};
  attack_words<net>(executor, {half.ids, half.classes}, half.used,
                    {.name = "words of an embedding", .width = width, .sigmas = {{1, 4096}, {10, 4096}, {100, 4095}}});
}

BOOST_AUTO_TEST_SUITE_END()
