// SPDX-License-Identifier: Apache-2.0
// tests/host/whole_step_test.cpp - private steps with every target of kernels that the program has: no bit depends on
// the number of threads or on what ran before, and the targets agree
//
// In one_binary_test, where all targets are, and once more in the program for this machine.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "comparing.hpp"
#include "kernel_fixture.hpp"

BOOST_AUTO_TEST_SUITE(whole_steps)

namespace {

namespace pg = pergrad;
using comparing::same_bits;
using kernel_fixture::kernel_target;

/// Minimal filtering, direct products, both pools and a deferred sum.
using network =
    pg::network<pg::shape{32, 8, 8}, pg::conv2d<32, 3, pg::padding<1>>, pg::relu, pg::max_pool2d<2>, pg::conv2d<36, 2>,
                pg::relu, pg::adaptive_avg_pool2d<2>, pg::flatten, pg::linear<2048>, pg::relu, pg::linear<3>>;
using loss = pg::mean_squared_error;
constexpr const auto& table = pg::on_host::program<network>::table;
static_assert(table.nodes[0].winograd_rows > 0 && table.deferred_count == 2);

constexpr std::size_t batch_size = 37;

/// The parameters after three private steps.
std::vector<float> trained(kernel_target target, std::size_t threads) {
  const kernel_fixture::using_target in_use{target};
  const pg::host exec{pg::threads{threads}};
  network net{exec, pg::kaiming_uniform{5}};
  network::tape tape{exec, pg::max_batch{batch_size}};
  pg::sgd<network> optimizer{pg::learning_rate{0.5}, 0.9};
  pg::unprotected::rehearsed_gradient<network> update{exec};
  pg::seeded_generator generator{17};
  std::vector<float> inputs(batch_size * network::input_shape.size());
  std::vector<float> targets(batch_size * network::output_shape.size());
  std::uint32_t state = 1;
  for (auto* values : {&inputs, &targets}) {
    for (float& value : *values) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8U) * 0x1p-24F - 0.5F;
    }
  }
  const pg::batch<network, loss> samples{std::span<const float>{inputs}, std::span<const float>{targets}};
  for (int step = 0; step < 3; ++step) {
    const auto clipped =
        pg::sum(pg::clip(pg::per_sample_gradients(net, loss{}, samples, tape), pg::l2_clip_norm{0.02}));
    optimizer.step(exec, net, update, clipped + pg::unaccounted::gaussian_noise(pg::noise_multiplier{0.5}, generator),
                   pg::expected_batch_size{static_cast<double>(batch_size)});
  }
  const std::span<const float> values = std::as_const(net).parameters();
  return {values.begin(), values.end()};
}

double distance(const std::vector<float>& one, const std::vector<float>& other) {
  double sum = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    sum += std::pow(static_cast<double>(one[i]) - static_cast<double>(other[i]), 2);
  }
  return std::sqrt(sum);
}

}  // namespace

BOOST_AUTO_TEST_CASE(within_a_target_bits_stay_and_targets_agree) {
  const kernel_target usual = pg::on_host::kernel_target_in_use();
  const std::vector<float> wanted = trained(usual, 2);
  const network start{pg::host{pg::threads{1}}, pg::kaiming_uniform{5}};
  const std::span<const float> initial = start.parameters();
  const double moved = distance(wanted, {initial.begin(), initial.end()});
  BOOST_TEST(moved > 0.01);
  for (const auto target : kernel_fixture::every_target) {
    if (!pg::on_host::runs_here(target)) continue;
    const std::string name{pg::on_host::name_of(target)};
    const std::vector<float> found = trained(target, 1);
    for (const std::size_t threads : {2U, 3U, 5U}) {
      BOOST_TEST(same_bits(trained(target, threads), found), name << ", " << threads << " threads");
    }
    BOOST_TEST(distance(found, wanted) <= 1e-5 * moved, name << " is off by " << distance(found, wanted));
    BOOST_TEST(same_bits(trained(usual, 2), wanted), "after " << name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
