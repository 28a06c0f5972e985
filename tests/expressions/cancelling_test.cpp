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

/// Products over two or three positions: their Gram matrices' terms have both signs.
using of_two = pg::basic_network<double, pg::shape{2, 512}, pg::linear<512, pg::no_bias>, pg::flatten>;
using of_three = pg::basic_network<double, pg::shape{3, 3}, pg::linear<3, pg::no_bias>, pg::flatten>;
using of_blocks = pg::network<pg::shape{2, 64}, pg::linear<64, pg::no_bias>, pg::flatten>;

}  // namespace

namespace pergrad::inline v0_1::on_host {
template <>
inline constexpr std::size_t large_from<of_blocks> = 0;
}  // namespace pergrad::inline v0_1::on_host

namespace {

/// The longest clipped gradient of one record, of several methods. The network's weights are zeros.
template <class Network>
long double longest_of(const std::vector<typename Network::scalar>& inputs,
                       const std::vector<typename Network::scalar>& targets, double clip) {
  const pg::host exec{pg::threads{1}};
  const Network net{exec, pg::zeros{}};
  pg::tape<Network> tape{exec, pg::max_batch{1}};
  const pg::batch<Network, pg::mean_squared_error> batch{inputs, targets};
  const auto gradients = pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape);
  long double longest = 0;
  const auto bounded = [&](const auto& of) {
    longest =
        std::max(longest, norm_of(pg::unprotected::evaluate(exec, pg::sum(pg::clip(of, pg::l2_clip_norm{clip})))));
    longest =
        std::max(longest, norm_of(pg::unprotected::evaluate(exec, pg::sum(pg::normalise(of, pg::l2_clip_norm{clip})))));
  };
  bounded(gradients);
  bounded(pg::with_method<pg::norm_method::gram>(gradients));
  bounded(pg::with_method<pg::norm_method::direct>(gradients));
  return longest;
}

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

// Terms below zero that overflow are no sum that was rounded below zero: its root would be 0.
BOOST_AUTO_TEST_CASE(terms_that_overflow_do_not_make_a_norm_small) {
  {
    std::vector<double> inputs(2 * 512), targets(2 * 512);
    inputs[0] = 1e77;
    inputs[512] = -0.6e77;
    inputs[513] = 0.8e77;
    targets[0] = targets[512] = -1.3e77 * 512;
    BOOST_TEST(longest_of<of_two>(inputs, targets, 1) <= 1);
  }
  {  // dots in float, one of which overflows by its rounding
    std::vector<float> inputs(2 * 64), targets(2 * 64);
    inputs[0] = 0x1.105758p+63F;
    inputs[1] = 0x1.b18f5cp+63F;
    inputs[64] = -0x1.10575ep+63F;
    inputs[65] = -0x1.b18f58p+63F;
    targets[0] = -64;
    targets[64] = -64e-3F;
    targets[65] = -64;
    BOOST_TEST(longest_of<of_blocks>(inputs, targets, 1e-3) <= 1e-3L);
  }
  std::mt19937 random{3};
  std::uniform_real_distribution<double> uniform{-1, 1};
  long double longest = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<double> inputs(9), targets(9);
    const double x = std::ldexp(1.0, 253 + static_cast<int>(random() % 5));
    const double y = std::ldexp(1.0, 253 + static_cast<int>(random() % 5));
    for (double& each : inputs) each = x * uniform(random);
    for (double& each : targets) each = y * uniform(random);
    const long double of_record = longest_of<of_three>(inputs, targets, 1);
    BOOST_TEST_REQUIRE(of_record <= 1, "round " << round);
    longest = std::max(longest, of_record);
  }
  BOOST_TEST(longest > 0.99L);  // some are finite
}

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
