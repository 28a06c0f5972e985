// SPDX-License-Identifier: Apache-2.0
// tests/host/allocation_test.cpp - a step takes nothing from the heap, whatever the layers
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <ratio>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "counted_allocations.hpp"

BOOST_AUTO_TEST_SUITE(host_allocation)

namespace {

namespace pg = pergrad;
using tables =
    pg::network<pg::variable(pg::token_ids(12, 5000)), pg::embedding<8>, pg::mean_over_positions, pg::linear<2>>;
using sequences =
    pg::network<pg::variable(pg::token_ids(12, 5000)), pg::embedding<8>, pg::learned_positions,
                pg::transformer_encoder_layer<2, 16, pg::dropout_rate<0.1>>, pg::lstm<6, pg::bidirectional>, pg::gru<5>,
                pg::transpose, pg::conv1d<4, 3, pg::padding<1>>, pg::relu, pg::transpose, pg::rnn<4, pg::last_output>,
                pg::linear<2>>;
using images = pg::network<pg::shape{2, 8, 8}, pg::conv2d<4, 3, pg::padding<1>>, pg::group_norm<2>, pg::relu,
                           pg::residual<pg::frozen<pg::conv2d<4, 3, pg::padding<1>>, pg::channel_affine>, pg::tanh>,
                           pg::conv_transpose2d<3, 2, pg::stride<2>>, pg::instance_norm2d<>, pg::avg_pool2d<2>,
                           pg::upsample<2>, pg::adaptive_avg_pool2d<2>, pg::flatten, pg::linear<2>>;

using filtered =
    pg::network<pg::shape{32, 8, 8}, pg::conv2d<32, 3, pg::padding<1>>, pg::relu,
                pg::residual<pg::conv2d<32, 3, pg::padding<1>>>, pg::avg_pool2d<4>, pg::flatten, pg::linear<2>>;
static_assert(pg::on_host::program<filtered>::table.nodes[2].winograd_dx_rows > 0);

using in_pairs = pg::network<pg::shape{32, 11, 11}, pg::conv2d<32, 4>, pg::relu, pg::flatten, pg::linear<2>>;
static_assert(pg::on_host::program<in_pairs>::table.outer[0].in_pairs);

template <class Network>
void a_step_allocates_nothing(std::size_t threads) {
  constexpr std::size_t count = 300;
  constexpr std::size_t width = Network::input_shape.size();
  const pg::host exec{pg::threads{threads}};
  Network net{exec, pg::layer_default{1}};
  typename Network::tape tape{exec, pg::max_batch{count}};
  pg::seeded_generator noise{7};
  pg::unprotected::rehearsed_gradient<Network> update{exec};
  pg::bounded_total<Network> total{exec};
  pg::sgd<Network> optimizer{pg::learning_rate{0.1}};
  std::vector<typename Network::input_value> inputs(count * width);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<typename Network::input_value>(i * 7 % (Network::input_shape.ids != 0 ? 5000 : 3));
  }
  const std::vector<std::int32_t> labels(count, 1);
  std::vector<std::uint32_t> lengths(Network::input_shape.varying_axis() != 0 ? count : 0);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::uint32_t>(i % width + 1);

  const std::size_t before = allocations;
  const pg::batch<Network, pg::cross_entropy> batch{inputs, labels, lengths};
  const auto g = pg::with_randomness(pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape), noise);
  const auto clipped = sum(clip(g, pg::l2_clip_norm{1.0}));
  evaluate_into(exec, update, clipped + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.0}, noise));
  optimizer.step(exec, net, update, pg::expected_batch_size{300});
  evaluate_into(exec, pg::accumulate(total, clipped));
  total.clear();
  evaluate_into(exec,
                pg::accumulate(total, sum(clip(pg::with_strategy<pg::strategy::ghost>(g), pg::l2_clip_norm{1.0}))));
  const std::size_t after = allocations;
  BOOST_TEST(after - before == 0U);
  BOOST_TEST(before > 10U);
}

}  // namespace

BOOST_AUTO_TEST_CASE(with_tables) {
  for (const std::size_t threads : {1U, 3U}) a_step_allocates_nothing<tables>(threads);
}
BOOST_AUTO_TEST_CASE(with_sequences) {
  for (const std::size_t threads : {1U, 3U}) a_step_allocates_nothing<sequences>(threads);
}
BOOST_AUTO_TEST_CASE(with_images) {
  for (const std::size_t threads : {1U, 3U}) a_step_allocates_nothing<images>(threads);
}
BOOST_AUTO_TEST_CASE(with_filtered_convolutions) {
  for (const std::size_t threads : {1U, 3U}) a_step_allocates_nothing<filtered>(threads);
}
BOOST_AUTO_TEST_CASE(with_convolutions_in_pairs) {
  for (const std::size_t threads : {1U, 3U}) a_step_allocates_nothing<in_pairs>(threads);
}

BOOST_AUTO_TEST_SUITE_END()
