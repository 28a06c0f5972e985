// SPDX-License-Identifier: Apache-2.0
// tests/attacks/device_test.cpp - the attacks on what a device releases, which the host emulates
//
// Beside an embedding it gets bags of words: numbers that count them.
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <vector>

#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/cuda/run/trainer.hpp>

#include "attacks/matrix.hpp"

BOOST_AUTO_TEST_SUITE(attacks_device)

namespace {

namespace pg = pergrad;
using scalars = std::tuple<float, double>;

/// Two physical batches.
constexpr victims::what_is_done numbers{.records = 20, .batch = 16};
constexpr victims::what_is_done bags{.records = 20, .batch = 16, .bags = true};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(neighbours, scalar, scalars) {
  const pg::emulated device;
  const int trials = attacks::trials(60, 500);
  const auto& sigmas = std::is_same_v<scalar, float> ? matrix::every_sigma : matrix::sigmas_of_doubles;
  matrix::attack_all<victims::wide<scalar>>(device, {"device, mlp", trials, sigmas, numbers});
  matrix::attack_all<victims::wide<scalar>>(device, {"device, words", trials, sigmas, bags});
  matrix::attack_all<victims::small_cnn<scalar>>(device, {"device, cnn", trials, sigmas, numbers});
  matrix::attack_all<victims::few_words<scalar>>(device, {"device, embedding", trials, {1, 1e5}, numbers});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(two_releases_of_one_run, scalar, scalars) {
  const pg::emulated device;
  matrix::attack_successive<victims::wide<scalar>>(device, "device, words", bags);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(with_keys_of_the_operating_system, scalar, scalars) {
  const pg::emulated device;
  const int trials = attacks::trials(60, 500);
  using generator = pg::os_keyed_generator;
  matrix::attack_all<victims::wide<scalar>, generator>(device,
                                                       {"device, words, key of the system", trials, {1, 100}, bags});
  matrix::attack_all<victims::small_cnn<scalar>, generator>(
      device, {"device, cnn, key of the system", trials, {1, 100}, numbers});
}

// 32 records of 4 words each, 128 of 256. The columns of the first layer's weights that belong to the others get zeros.
BOOST_AUTO_TEST_CASE_TEMPLATE(words_of_a_bag, scalar, scalars) {
  using net = victims::wide<scalar>;
  constexpr std::size_t vocabulary = 256;
  const matrix::half_of_the_words half{vocabulary, 4, 4};
  std::vector<scalar> counts(half.ids.size() / half.each * vocabulary);
  for (std::size_t i = 0; i < half.ids.size(); ++i) {
    counts[i / half.each * vocabulary + static_cast<std::size_t>(half.ids[i])] = 1;
  }
  const pg::emulated device;
  matrix::attack_words<net>(
      device, {counts, half.classes}, half.used,
      {.name = "device, words of a bag",
       .width = 4,
       .sigmas = {{1, 230, 4}, {10, 256, 32}, {100, 256, 32}, {1e3, 256, 32}, {1e4, 256, 32}, {1e5, 256, 32}},
       .is_transposed = true});
}

// The same of an embedding, whose rows that nobody used get zeros.
BOOST_AUTO_TEST_CASE_TEMPLATE(words_of_an_embedding, scalar, scalars) {
  constexpr std::size_t vocabulary = 256;
  using net = pg::basic_network<scalar, pg::token_ids(4, vocabulary), pg::embedding<16>, pg::mean_over_positions,
                                pg::linear<4>>;
  const matrix::half_of_the_words half{vocabulary, 4, 4};
  const pg::emulated device;
  matrix::attack_words<net>(
      device, {half.ids, half.classes}, half.used,
      {.name = "device, words of an embedding", .width = 16, .sigmas = {{1, 234}, {10, 204}, {100, 204}}});
}

BOOST_AUTO_TEST_CASE(noise_has_the_size_that_it_says) {
  const pg::emulated device;
  matrix::check_size_of_noise<victims::wide<float>>(device, {victims::route::trainer});
}

BOOST_AUTO_TEST_SUITE_END()
