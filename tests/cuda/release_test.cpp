// SPDX-License-Identifier: Apache-2.0
// tests/cuda/release_test.cpp - the device's release gives the integers of the host's gate, whatever rounds on its way,
// and its updates are those of the host's optimizers
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/pergrad.hpp>

#include "comparing.hpp"

BOOST_AUTO_TEST_SUITE(cuda_release)

namespace {

namespace pg = pergrad;
namespace dev = pergrad::on_device;
using comparing::same_bits;

constexpr dev::emulation_order orders[] = {dev::emulation_order::forward, dev::emulation_order::reversed,
                                           dev::emulation_order::shuffled};
constexpr std::uint64_t seed = 77;

/// Integers of many sizes and both signs.
std::vector<std::int64_t> integers(std::size_t count, std::uint64_t salt) {
  std::vector<std::int64_t> values(count);
  std::uint64_t state = salt * 0x9e3779b97f4a7c15U + 1;
  for (std::int64_t& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    value = static_cast<std::int64_t>(state) >> (24 + state % 37);
  }
  return values;
}

/// A release of `count` numbers, with the grid of a bound of 0.75.
template <class Scalar>
struct launch {
  std::size_t count;
  std::uint64_t at;
  double sigma;  ///< in steps of the grid
  int rule = 0;
  pg::release_grid grid = pg::release_grid::of(0.75, count);
  dev::step_state state{.last = 1, .noise_step = at};
  std::vector<std::int64_t> sums = integers(count, at + 1);
  std::vector<Scalar> parameters{};
  std::vector<Scalar> first{};
  std::vector<Scalar> second{};
  std::vector<Scalar> released = std::vector<Scalar>(count, Scalar(-7));
  dev::release_settings<Scalar> settings{};

  void run(dev::emulation_order order) { run(order, 0, static_cast<std::int64_t>(count)); }
  void run(dev::emulation_order order, std::int64_t begin, std::int64_t end) {
    const pg::seeded_generator generator{seed};
    const auto stream = generator.stream<pg::detail::randomness::noise>(at);
    settings.noise = dev::stream_upload::words(stream);
    settings.sigma = sigma;
    settings.grid = {std::ldexp(1.0, grid.steps), std::ldexp(1.0, grid.unit - grid.steps),
                     static_cast<double>(std::numeric_limits<Scalar>::max())};
    const dev::release_work<Scalar> work{.state = &state,
                                         .settings = settings,
                                         .sums = sums.data(),
                                         .begin = begin,
                                         .end = end,
                                         .parameters = parameters.data(),
                                         .first = first.data(),
                                         .second = second.data(),
                                         .released = released.data(),
                                         .rule = rule};
    const dev::release_kernel<Scalar> kernel{work};
    dev::emulate(kernel, kernel.blocks(), order);
  }
  /// What the host's gate releases.
  [[nodiscard]] std::vector<Scalar> expected() const {
    pg::seeded_generator generator{seed, at};
    const pg::detail::release_gate<Scalar> gate{grid, sigma, pg::noise_multiplier{sigma > 0 ? 1.0 : 0.0}, 1, generator};
    std::vector<Scalar> out(count);
    for (std::size_t i = 0; i < gate.stretches(); ++i) gate.release(i, {nullptr, sums.data()}, out.data(), {});
    return out;
  }
  /// Pairs whose roundings are not proven by their first words.
  [[nodiscard]] std::size_t open_pairs() const {
    const dev::random_stream stream = dev::at_step(settings.noise, at);
    pg::chacha_key key{};
    pg::chacha_nonce nonce{};
    std::copy_n(stream.words + 4, 8, std::begin(key.words));
    std::copy_n(stream.words + 13, 3, std::begin(nonce.words));
    std::size_t open = 0;
    for (std::size_t begin = 0; begin < count; begin += 512) {
      alignas(64) double k[512];
      alignas(64) double margins[256];
      static_cast<void>(pg::detail::fill_rounded_block<pg::detail::native_lanes>(key, nonce, begin / 512,
                                                                                 2 * sigma * sigma, k, margins));
      const auto pairs = static_cast<std::ptrdiff_t>(std::min<std::size_t>(256, count - begin));
      open += static_cast<std::size_t>(std::count_if(margins, margins + pairs, pg::detail::is_open));
    }
    return open;
  }
};

using net = pg::network<pg::shape{150}, pg::linear<120>, pg::tanh, pg::linear<3>>;

/// Three steps of the host's optimizer and of the kernel on the same releases.
template <class Optimizer>
void steps_agree(Optimizer optimizer, int rule, dev::emulation_order order, auto&& set_step) {
  const pg::host exec{pg::threads{2}};
  net trained{exec, pg::kaiming_uniform{3}};
  pg::unprotected::gradient<net> gradient{exec};
  std::vector<float> parameters(trained.parameters().begin(), trained.parameters().end());
  std::vector<float> first(net::parameter_count);
  std::vector<float> second(net::parameter_count);
  const double scale = 1 / 48.0;
  for (std::uint64_t at = 1; at <= 3; ++at) {
    launch<float> kernel{.count = net::parameter_count, .at = at, .sigma = 0x1p40, .rule = rule};
    kernel.settings = {.noise = {},
                       .sigma = 0,
                       .grid = {},
                       .scale = scale,
                       .momentum = 0.9F,
                       .beta1 = 0.9,
                       .beta2 = 0.999,
                       .stability = 1e-8};
    kernel.parameters = parameters;
    kernel.first = first;
    kernel.second = second;
    kernel.state.rate = 0.3;
    set_step(kernel.state, at);
    kernel.run(order);
    BOOST_TEST(kernel.open_pairs() > 0U);
    parameters = kernel.parameters;
    first = kernel.first;
    second = kernel.second;
    const auto released = kernel.expected();
    BOOST_TEST(same_bits(kernel.released, released));
    std::ranges::copy(released, gradient.values().begin());
    pg::unprotected::step(optimizer, exec, trained, gradient, scale);
    BOOST_TEST(same_bits(parameters, trained.parameters()));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(releases_have_the_bits_of_the_host_s_gate) {
  for (const dev::emulation_order order : orders) {
    for (const std::size_t count : {1U, 255U, 256U, 257U, 511U, 512U, 513U, 5000U}) {
      for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{1} << 40U}) {
        launch<float> it{.count = count, .at = at, .sigma = 0x1.8p20};
        it.run(order);
        BOOST_TEST(same_bits(it.released, it.expected()));
      }
    }
    launch<double> it{.count = 1300, .at = 5, .sigma = 0x1.8p20};
    it.run(order);
    BOOST_TEST(same_bits(it.released, it.expected()));
  }
}

// So large a deviation that some roundings, or most of them, need more bits than the first.
BOOST_AUTO_TEST_CASE(open_roundings_are_settled_as_on_the_host) {
  for (const double sigma : {0x1p38, 0x1p46}) {
    for (const dev::emulation_order order : orders) {
      launch<double> it{.count = 3001, .at = 11, .sigma = sigma};
      it.run(order);
      BOOST_TEST(it.open_pairs() > 0U);
      BOOST_TEST(same_bits(it.released, it.expected()));
    }
  }
}

// As by several devices, of which each releases what it owns.
BOOST_AUTO_TEST_CASE(parts_are_released_as_the_whole_is) {
  launch<double> it{.count = 3001, .at = 11, .sigma = 0x1p46};
  it.run(dev::emulation_order::shuffled, 1024, 3001);
  const double untouched = it.released[1023];
  BOOST_TEST(untouched == -7.0);
  BOOST_TEST(it.released[1024] == it.expected()[1024]);
  it.run(dev::emulation_order::shuffled, 0, 1024);
  BOOST_TEST(same_bits(it.released, it.expected()));
}

BOOST_AUTO_TEST_CASE(nothing_happens_before_the_last_chunk) {
  launch<float> it{.count = 700, .at = 3, .sigma = 0x1p20};
  it.state.last = 0;
  it.run(dev::emulation_order::forward);
  BOOST_TEST(same_bits(it.released, std::vector<float>(700, -7.0F)));
}

BOOST_AUTO_TEST_CASE(an_empty_batch_is_noised_too) {
  launch<float> it{.count = 1000, .at = 8, .sigma = 0x1p20};
  std::ranges::fill(it.sums, 0);
  it.run(dev::emulation_order::shuffled);
  BOOST_TEST(same_bits(it.released, it.expected()));
}

BOOST_AUTO_TEST_CASE(without_noise_the_sum_is_what_it_was) {
  launch<double> it{.count = 600, .at = 4, .sigma = 0};
  it.run(dev::emulation_order::reversed);
  const auto sum = it.sums;
  for (std::size_t i = 0; i < 600; ++i) {
    BOOST_TEST(it.released[i] == std::ldexp(static_cast<double>(sum[i]), it.grid.unit - it.grid.steps));
  }
}

BOOST_AUTO_TEST_CASE(updates_have_the_bits_of_the_host_s_optimizers) {
  const pg::learning_rate rate{0.3};
  for (const dev::emulation_order order : orders) {
    const auto same = [](dev::step_state&, std::uint64_t) {};
    const auto decays = [](dev::step_state& state, std::uint64_t) { state.keep = 1 - 0.3 * 0.05; };
    steps_agree(pg::sgd<net>{rate}, dev::update::sgd, order, same);
    steps_agree(pg::sgd<net>{rate, 0.9}, dev::update::momentum, order, same);
    steps_agree(pg::sgd<net>{rate, 0, 0.05}, dev::update::sgd, order, decays);
    steps_agree(pg::sgd<net>{rate, 0.9, 0.05}, dev::update::momentum, order, decays);
    steps_agree(pg::adam<net>{rate}, dev::update::adam, order, [](dev::step_state& state, std::uint64_t at) {
      const pg::rules::adam_bias bias = pg::rules::adam_bias_at(at, 0.3, 0.9, 0.999);
      state.rate = bias.rate;
      state.correction = bias.correction;
    });
    pg::adam_options decoupled;
    decoupled.weight_decay = 0.05;
    steps_agree(pg::adam<net>{rate, decoupled}, dev::update::adam, order,
                [&](dev::step_state& state, std::uint64_t at) {
                  const pg::rules::adam_bias bias = pg::rules::adam_bias_at(at, 0.3, 0.9, 0.999);
                  state.rate = bias.rate;
                  state.correction = bias.correction;
                  decays(state, at);
                });
  }
}

BOOST_AUTO_TEST_CASE(lanes_are_folded_in_order) {
  std::vector<float> accumulators{1e8F, 1, -1e8F, 3, 1, 5, 1, 7, 1, 0.5F, 2, 3};
  std::vector<float> out(4);
  const dev::fold_kernel<float> kernel{accumulators.data(), 3, 4, out.data()};
  dev::emulate(kernel, kernel.blocks(), dev::emulation_order::shuffled);
  for (std::size_t i = 0; i < 4; ++i)
    BOOST_TEST(out[i] == (accumulators[i] + accumulators[4 + i]) + accumulators[8 + i]);
}

BOOST_AUTO_TEST_SUITE_END()
