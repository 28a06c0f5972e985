// SPDX-License-Identifier: Apache-2.0
// Records that overflow on the way to a sum whose clip bound they keep: what one of them moves stays below it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ranges>
#include <vector>

#include "device_fixture.hpp"

namespace pg = pergrad;

namespace {

/// The norm of what a step without noise releases of one record, over the clip norm.
template <class Network, class Executor>
double moved(const Executor& exec, double clip, float x, std::vector<float> targets,
             pg::clipping_kind way = pg::clipping_kind::flat) {
  std::vector<float> inputs(Network::input_shape.size(), x);
  inputs[0] = 0;
  const pg::dataset<float, float> records{inputs, targets, Network::input_shape, targets.size()};
  Network net{exec, pg::kaiming_uniform{5}};
  pg::dp_sgd_options options = device_fixture::of_whole_sums(clip, 1, 4);
  options.clipping = way;
  pg::dp_sgd trainer{exec, net, pg::mean_squared_error{}, options, pg::seeded_generator{9}};
  trainer.step(records);
  return static_cast<double>(comparing::norm_of(trainer.last_update().values())) / clip;
}

const pg::host host{pg::threads{1}};
const pg::emulated device;

}  // namespace

// A weight above 1 meets a delta before it meets x, which is small: their product must be a number.
BOOST_AUTO_TEST_CASE(a_weighted_delta_does_not_overflow) {
  using fused = pg::network<pg::shape{64}, pg::linear<4, pg::no_bias>>;
  using layered = pg::network<pg::shape{600}, pg::linear<20, pg::no_bias>>;
  using enum pg::clipping_kind;
  for (const pg::clipping_kind way : {flat, automatic, per_sample_adaptive}) {
    for (const double clip : {1.0, 0.1, 0.01}) {
      BOOST_TEST_CONTEXT("clip norm " << clip << ", way " << static_cast<int>(way)) {
        BOOST_TEST(moved<fused>(host, clip, 1e-41F, std::vector<float>(4, 3e38F), way) < 1.001);
        BOOST_TEST(moved<layered>(host, clip, 1e-41F, std::vector<float>(20, 3e38F), way) < 1.001);
        BOOST_TEST(moved<fused>(device, clip, 1e-41F, std::vector<float>(4, 3e38F), way) < 1.001);
        BOOST_TEST(moved<layered>(device, clip, 1e-41F, std::vector<float>(20, 3e38F), way) < 1.001);
      }
    }
  }
}

// Two positions cancel in a Gram matrix of doubles, and overflow in a sum of floats.
BOOST_AUTO_TEST_CASE(terms_that_cancel_do_not_overflow) {
  const auto opposed = [](std::size_t size) {
    std::vector<float> targets(size, 1e32F);
    for (float& target : targets | std::views::take(size / 2)) target = -target;
    return targets;
  };
  using fused = pg::network<pg::shape{2, 64}, pg::linear<64>>;
  using layered = pg::network<pg::shape{2, 256}, pg::linear<256>>;
  BOOST_TEST(moved<fused>(host, 1, 1e10F, opposed(128)) < 1.001);
  BOOST_TEST(moved<fused>(device, 1, 1e10F, opposed(128)) < 1.001);
  BOOST_TEST(moved<layered>(host, 1, 1e10F, opposed(512)) < 1.001);
  BOOST_TEST(moved<layered>(device, 1, 1e10F, opposed(512)) < 1.001);
}

// The smallest numbers' rounding in a weighted delta, which a large x carries along, whatever finds the norm.
BOOST_AUTO_TEST_CASE(every_method_knows_what_weighing_a_delta_rounds) {
  using network = pg::network<pg::shape{1024}, pg::linear<16, pg::no_bias>>;
  const std::vector<float> inputs(1024, 3e38F);
  const std::vector<float> targets(16, -8 * 3 * 0x1p-149F);
  network net{host, pg::kaiming_uniform{5}};
  std::ranges::fill(net.parameters(), 0.0F);
  const pg::batch<network, pg::mean_squared_error> batch{inputs, targets};
  const auto of = [&](const auto& exec) {
    network::tape tape{exec, pg::max_batch{1}};
    using enum pg::norm_method;
    const auto gradients = pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape);
    const pg::l2_clip_norm clip{0.2 * static_cast<double>(pg::unprotected::evaluate(exec, pg::l2_norms(gradients))[0])};
    const auto share = [&](const auto& leaf) {
      return static_cast<double>(comparing::norm_of(pg::unprotected::evaluate(exec, pg::sum(pg::clip(leaf, clip))))) /
             clip.value();
    };
    BOOST_TEST(share(gradients) < 1.001);
    BOOST_TEST(share(pg::with_method<direct>(gradients)) < 1.001);
    BOOST_TEST(share(pg::with_method<gram>(gradients)) < 1.001);
    BOOST_TEST(share(pg::with_method<instantiate>(gradients)) < 1.001);
  };
  of(host);
  of(device);
}

// Sums of every sample's own gradient round what products add up whole: here each element up to the least number.
BOOST_AUTO_TEST_CASE(every_strategy_knows_what_its_sum_rounds) {
  using network = pg::network<pg::shape{1024}, pg::linear<512, pg::no_bias>>;
  const std::vector<float> inputs(1024, 0x1p-75F);
  const std::vector<float> targets(512, -0x1.1p-75F * 256);
  network net{host, pg::kaiming_uniform{5}};
  std::ranges::fill(net.parameters(), 0.0F);
  const pg::batch<network, pg::mean_squared_error> batch{inputs, targets};
  const auto of = [&](const auto& exec) {
    network::tape tape{exec, pg::max_batch{1}};
    const auto gradients = pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape);
    const pg::l2_clip_norm clip{1e-5};
    const auto share = [&](const auto& leaf) {
      return static_cast<double>(
                 comparing::norm_of(pg::unprotected::evaluate(exec, pg::sum(pg::normalise(leaf, clip, 1e-60))))) /
             clip.value();
    };
    BOOST_TEST(share(gradients) < 1.001);
    BOOST_TEST(share(pg::with_strategy<pg::strategy::ghost>(gradients)) < 1.001);
    BOOST_TEST(share(pg::with_strategy<pg::strategy::naive>(gradients)) < 1.001);
    BOOST_TEST(share(pg::with_strategy<pg::strategy::multi>(gradients)) < 1.001);
    BOOST_TEST(share(pg::with_strategy<pg::strategy::crb>(gradients)) < 1.001);
  };
  of(host);
  of(device);
}
