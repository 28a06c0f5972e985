// SPDX-License-Identifier: Apache-2.0
// tests/cuda/release_test.cpp - the device's release gives the integers of the host's gate, whatever rounds on its way,
// and its updates are those of the host's optimizers
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/cuda/run/noise_check.hpp>
#include <pergrad/pergrad.hpp>

#include "comparing.hpp"
#include "device_fixture.hpp"

BOOST_AUTO_TEST_SUITE(cuda_release)

namespace {

namespace pg = pergrad;
namespace dev = pergrad::on_device;
using comparing::same_bits;

constexpr dev::emulation_order orders[] = {dev::emulation_order::forward, dev::emulation_order::reversed,
                                           dev::emulation_order::shuffled};
constexpr std::uint64_t seed = 77;
/// By doubles, and by integers as on GPUs that have few units for doubles.
const auto both_ways = boost::unit_test::data::make({false, true});

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

/// A release of `count` numbers, with the grid of a bound.
template <class Scalar>
struct launch {
  std::size_t count;
  std::uint64_t at;
  double sigma;  ///< in steps of the grid
  int rule = 0;
  bool by_integers = false;
  double bound = 0.75;
  pg::release_grid grid = pg::release_grid::of(bound, count);
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
    settings.grid = dev::noise_on_grid::of(sigma, {std::ldexp(1.0, grid.steps), std::ldexp(1.0, grid.unit - grid.steps),
                                                   static_cast<double>(std::numeric_limits<Scalar>::max())});
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
    if (by_integers) {
      const dev::release_kernel<Scalar, true> kernel{work};
      dev::emulate(kernel, kernel.blocks(), order);
    } else {
      const dev::release_kernel<Scalar> kernel{work};
      dev::emulate(kernel, kernel.blocks(), order);
    }
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
void steps_agree(bool by_integers, Optimizer optimizer, int rule, dev::emulation_order order, auto&& set_step) {
  const pg::host exec{pg::threads{2}};
  net trained{exec, pg::kaiming_uniform{3}};
  pg::unprotected::gradient<net> gradient{exec};
  std::vector<float> parameters(trained.parameters().begin(), trained.parameters().end());
  std::vector<float> first(net::parameter_count);
  std::vector<float> second(net::parameter_count);
  const double scale = 1 / 48.0;
  for (std::uint64_t at = 1; at <= 3; ++at) {
    launch<float> kernel{
        .count = net::parameter_count, .at = at, .sigma = 0x1p40, .rule = rule, .by_integers = by_integers};
    kernel.settings = {
        .noise = {}, .grid = {}, .scale = scale, .momentum = 0.9F, .beta1 = 0.9, .beta2 = 0.999, .stability = 1e-8};
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

BOOST_DATA_TEST_CASE(releases_have_the_bits_of_the_host_s_gate, both_ways, by_integers) {
  for (const dev::emulation_order order : orders) {
    for (const std::size_t count : {1U, 255U, 256U, 257U, 511U, 512U, 513U, 5000U}) {
      for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{1} << 40U}) {
        launch<float> it{.count = count, .at = at, .sigma = 0x1.8p20, .by_integers = by_integers};
        it.run(order);
        BOOST_TEST(same_bits(it.released, it.expected()));
      }
    }
    launch<double> it{.count = 1300, .at = 5, .sigma = 0x1.8p20, .by_integers = by_integers};
    it.run(order);
    BOOST_TEST(same_bits(it.released, it.expected()));
  }
}

// Also where floats on the grid are subnormal (the host's gate flushes those), 0, or would be infinite.
BOOST_DATA_TEST_CASE(grids_are_as_fine_and_as_wide_as_doubles_have_them, both_ways, by_integers) {
  for (const double bound : {1e-60, 1e-38, 3e-30, 0x1p-108, 0x1p-107, 1e20, 1e27, 1e36, 3e38, 1e60}) {
    for (const double sigma : {16.0, 0x1p26, 0x1p46}) {
      launch<float> it{.count = 700, .at = 6, .sigma = sigma, .by_integers = by_integers, .bound = bound};
      it.run(dev::emulation_order::forward);
      for (float& value : it.released) {
        if (std::fpclassify(value) == FP_SUBNORMAL) value = std::copysign(0.0F, value);
      }
      BOOST_TEST(same_bits(it.released, it.expected()), bound << " " << sigma);
    }
  }
}

// So large a deviation that some roundings, or most of them, need more bits than the first.
BOOST_DATA_TEST_CASE(open_roundings_are_settled_as_on_the_host, both_ways, by_integers) {
  for (const double sigma : {0x1p38, 0x1p46}) {
    for (const dev::emulation_order order : orders) {
      launch<double> it{.count = 3001, .at = 11, .sigma = sigma, .by_integers = by_integers};
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

BOOST_DATA_TEST_CASE(an_empty_batch_is_noised_too, both_ways, by_integers) {
  launch<float> it{.count = 1000, .at = 8, .sigma = 0x1p20, .by_integers = by_integers};
  std::ranges::fill(it.sums, 0);
  it.run(dev::emulation_order::shuffled);
  BOOST_TEST(same_bits(it.released, it.expected()));
}

BOOST_DATA_TEST_CASE(without_noise_the_sum_is_what_it_was, both_ways, by_integers) {
  launch<double> it{.count = 600, .at = 4, .sigma = 0, .by_integers = by_integers};
  it.run(dev::emulation_order::reversed);
  const auto sum = it.sums;
  for (std::size_t i = 0; i < 600; ++i) {
    BOOST_TEST(it.released[i] == std::ldexp(static_cast<double>(sum[i]), it.grid.unit - it.grid.steps));
  }
}

BOOST_DATA_TEST_CASE(updates_have_the_bits_of_the_host_s_optimizers, both_ways, by_integers) {
  const pg::learning_rate rate{0.3};
  for (const dev::emulation_order order : orders) {
    const auto same = [](dev::step_state&, std::uint64_t) {};
    const auto decays = [](dev::step_state& state, std::uint64_t) { state.keep = 1 - 0.3 * 0.05; };
    steps_agree(by_integers, pg::sgd<net>{rate}, dev::update::sgd, order, same);
    steps_agree(by_integers, pg::sgd<net>{rate, 0.9}, dev::update::momentum, order, same);
    steps_agree(by_integers, pg::sgd<net>{rate, 0, 0.05}, dev::update::sgd, order, decays);
    steps_agree(by_integers, pg::sgd<net>{rate, 0.9, 0.05}, dev::update::momentum, order, decays);
    steps_agree(by_integers, pg::adam<net>{rate}, dev::update::adam, order,
                [](dev::step_state& state, std::uint64_t at) {
                  const pg::rules::adam_bias bias = pg::rules::adam_bias_at(at, 0.3, 0.9, 0.999);
                  state.rate = bias.rate;
                  state.correction = bias.correction;
                });
    pg::adam_options decoupled;
    decoupled.weight_decay = 0.05;
    steps_agree(by_integers, pg::adam<net>{rate, decoupled}, dev::update::adam, order,
                [&](dev::step_state& state, std::uint64_t at) {
                  const pg::rules::adam_bias bias = pg::rules::adam_bias_at(at, 0.3, 0.9, 0.999);
                  state.rate = bias.rate;
                  state.correction = bias.correction;
                  decays(state, at);
                });
  }
}

// What round_gaussians_by_integers keeps is right, for words of all kinds; and with a deviation that is wrong on
// purpose, by as much as its bound allows, nothing else is kept. More is seen: so the bound is neither idle nor too
// generous.
BOOST_AUTO_TEST_CASE(pairs_by_integers_are_proven) {
  std::mt19937_64 random{3};
  // Near the ends of the ranges, and of the pieces that they are cut into, by as many bits as you like.
  const auto near_an_edge = [&random] {
    constexpr std::uint64_t edges[] = {0, 0xb504'f333'f9de'6484U, 1ULL << 63U, 1ULL << 62U, 1ULL << 61U, 7ULL << 61U};
    const std::uint64_t distance = random() >> random() % 64;
    return edges[random() % std::size(edges)] + (random() % 2 == 0 ? distance : 0 - distance);
  };
  const auto put = [](std::uint64_t value, std::uint32_t(&words)[pg::detail::gaussian_bits::words]) {
    words[0] = static_cast<std::uint32_t>(value >> 32U);
    words[1] = static_cast<std::uint32_t>(value);
  };
  const auto kept_and_wrong = [&](double sigma, double error, int turns) {
    dev::integer_deviation deviation = dev::integer_deviation::of(sigma);
    deviation.mantissa += static_cast<std::uint64_t>(std::llrint(static_cast<double>(deviation.mantissa) * error));
    int kept = 0;
    int wrong = 0;
    for (int turn = 0; turn < turns; ++turn) {
      pg::detail::gaussian_bits bits{};
      for (std::uint32_t& word : bits.u) word = static_cast<std::uint32_t>(random());
      for (std::uint32_t& word : bits.v) word = static_cast<std::uint32_t>(random());
      if (turn % 2 == 0) put(near_an_edge(), bits.u);
      if (turn % 3 == 0) put(near_an_edge(), bits.v);
      const dev::integer_pair pair =
          dev::round_gaussians_by_integers(bits.u[0], bits.u[1], bits.v[0], bits.v[1], deviation);
      if (pair.is_open) continue;
      std::int64_t exact[2];
      pg::detail::exact_pair(bits, sigma, exact);
      ++kept;
      wrong += pair.along_cosine == exact[0] && pair.along_sine == exact[1] ? 0 : 1;
    }
    return std::pair{kept, wrong};
  };
  for (const double sigma : {16.0, 0x1.7p24, 0x1p32, 0x1p42, 0x1p46}) {
    const auto [kept, wrong] = kept_and_wrong(sigma, 0, 8000);
    BOOST_TEST(kept > 1000);
    BOOST_TEST(wrong == 0);
  }
  for (const double error : {0x1p-51, -0x1p-51}) BOOST_TEST(kept_and_wrong(0x1p40, error, 30000).second == 0);
  const int found = kept_and_wrong(0x1p40, 0x1p-46, 30000).second;
  BOOST_TEST_MESSAGE(found << " wrong roundings with an error of 2^-46");
  BOOST_TEST(found > 20);
}

// Where all bits of U are 0, the tail goes on.
BOOST_AUTO_TEST_CASE(no_bits_of_u_are_never_enough) {
  for (const double sigma : {16.0, 0x1p30}) {
    BOOST_TEST(dev::round_gaussians_by_integers(0, 0, 5, 7, dev::integer_deviation::of(sigma)).is_open);
  }
}

BOOST_AUTO_TEST_CASE(a_device_that_makes_other_noise_is_refused) {
  const auto grid = dev::noise_on_grid::of(0x1p20, {0x1p20, 0x1p-20, 3e38});
  const auto right = std::make_shared<dev::emulated_device>();
  BOOST_CHECK_NO_THROW((dev::noise_check<float, dev::emulated_device>{right}.require_the_hosts(grid)));
  BOOST_CHECK_NO_THROW((dev::noise_check<double, dev::emulated_device>{right}.require_the_hosts(grid)));
  BOOST_TEST(right->counted().allocated_bytes == 0U);
  const auto wrong = std::make_shared<device_fixture::wrong_device>();
  wrong->is_wrong = true;
  BOOST_CHECK_EXCEPTION(
      (dev::noise_check<float, device_fixture::wrong_device>{wrong}.require_the_hosts(grid)), std::runtime_error,
      [](const std::runtime_error& error) {
        return std::string{error.what()}.find("does not make the host's noise, and releases nothing: number 1023") !=
               std::string::npos;
      });
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
