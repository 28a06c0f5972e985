// SPDX-License-Identifier: Apache-2.0
// tests/expressions/cancelling_test.cpp - records whose terms nearly cancel: a norm of other roundings than those of
// what is added would let it be longer than the bound, and without a limit where nothing else is in the norm
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "fixture.hpp"

namespace {

using namespace fixture;

/// One trained parameter, or few, of many positions.
using of_positions = pg::network<pg::shape{1, 40, 40}, pg::conv2d<1, 1, pg::no_bias>, pg::adaptive_avg_pool2d<1, 1>,
                                 pg::flatten, pg::frozen<pg::linear<3>>>;
using of_sequences =
    pg::network<pg::shape{1600, 1}, pg::linear<1, pg::no_bias>, pg::mean_over_positions, pg::frozen<pg::linear<3>>>;
using of_many_channels = pg::network<pg::shape{1, 40, 40}, pg::conv2d<40, 1, pg::no_bias>,
                                     pg::adaptive_avg_pool2d<1, 1>, pg::flatten, pg::frozen<pg::linear<3>>>;
using of_windows = pg::network<pg::shape{1, 40, 40}, pg::conv2d<2, 3, pg::no_bias, pg::padding<1>>,
                               pg::adaptive_avg_pool2d<1, 1>, pg::flatten, pg::frozen<pg::linear<3>>>;
using of_biases = pg::network<pg::shape{1, 40, 40}, pg::frozen<pg::conv2d<2, 1, pg::no_bias>>, pg::channel_affine,
                              pg::adaptive_avg_pool2d<1, 1>, pg::flatten, pg::frozen<pg::linear<3>>>;

template <class Network>
void check(const char* name, std::size_t records) {
  std::mt19937 random{7};
  std::uniform_real_distribution<float> uniform{-1, 1};
  std::vector<float> inputs(records * Network::input_shape.size());
  std::vector<std::int32_t> targets(records);
  const pg::host exec{pg::threads{2}};
  Network net{exec, pg::kaiming_uniform{5}};
  pg::tape<Network> tape{exec, pg::max_batch{records}};
  long double longest = 0;
  for (int round = 0; round < 4; ++round) {
    for (std::size_t b = 0; b < records; ++b) {
      const auto record = std::span{inputs}.subspan(b * Network::input_shape.size(), Network::input_shape.size());
      float sum = 0;
      for (float& each : record) sum += each = uniform(random);
      record.back() -= sum;
      targets[b] = static_cast<std::int32_t>(random() % 3);
    }
    const pg::batch<Network, pg::cross_entropy> batch{inputs, targets};
    const auto gradients = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
    const pg::l2_clip_norm clip{1e-9};
    const auto bounded = [&](const char* method, const char* how, const auto& of) {
      const auto rows = pg::unprotected::evaluate(exec, pg::materialise(pg::clip(of, clip)));
      for (std::size_t b = 0; b < records; ++b) {
        const auto row = std::span{rows}.subspan(b * Network::parameter_count, Network::parameter_count);
        longest = std::max(longest, norm_of(row));
        BOOST_TEST(norm_of(row) <= 1e-9L,
                   name << ", " << method << ", " << how << ", row " << b << ", round " << round);
      }
      if (records > 1) return;
      const auto sum = pg::unprotected::evaluate(exec, pg::sum(pg::clip(of, clip)));
      BOOST_TEST(norm_of(sum) <= 1e-9L, name << ", " << method << ", " << how << ", sum, round " << round);
    };
    const auto ways = [&](const char* method, const auto& of) {
      bounded(method, "book-keeping", of);
      bounded(method, "naive", pg::with_strategy<pg::strategy::naive>(of));
      bounded(method, "multi", pg::with_strategy<pg::strategy::multi>(of));
      bounded(method, "crb", pg::with_strategy<pg::strategy::crb>(of));
      bounded(method, "ghost", pg::with_strategy<pg::strategy::ghost>(of));
    };
    ways("planned", gradients);
    ways("gram", pg::with_method<pg::norm_method::gram>(gradients));
    ways("direct", pg::with_method<pg::norm_method::direct>(gradients));
    ways("instantiate", pg::with_method<pg::norm_method::instantiate>(gradients));
  }
  BOOST_TEST(longest > 0.99e-9L);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cancelling)

BOOST_AUTO_TEST_CASE(what_is_added_of_records_that_cancel_is_within_the_bound) {
  for (const std::size_t records : {std::size_t{1}, std::size_t{9}}) {
    check<of_positions>("positions", records);
#ifdef PERGRAD_LONG_TESTS
    check<of_sequences>("sequences", records);
    check<of_many_channels>("channels", records);
    check<of_windows>("windows", records);
    check<of_biases>("biases", records);
#endif
  }
}

BOOST_AUTO_TEST_SUITE_END()
