// SPDX-License-Identifier: Apache-2.0
// tests/cuda/strategies_test.cpp - whatever arranges the work, what is added for a sample, or handed out as its row, is
// no longer than the bound: norms are of the numbers themselves
#include <algorithm>
#include <cstdint>
#include <span>

#include "device_fixture.hpp"

namespace {

using namespace device_fixture;

/// One trained parameter, or few, of so many positions that products add them up in chunks, and nothing else that a
/// norm could rest on.
using of_positions = pg::network<pg::shape{1, 32, 32}, pg::conv2d<1, 1, pg::no_bias>, pg::adaptive_avg_pool2d<1, 1>,
                                 pg::flatten, pg::frozen<pg::linear<3>>>;
using of_channels = pg::network<pg::shape{1, 32, 32}, pg::conv2d<40, 1, pg::no_bias>, pg::adaptive_avg_pool2d<1, 1>,
                                pg::flatten, pg::frozen<pg::linear<3>>>;
using of_windows = pg::network<pg::shape{1, 32, 32}, pg::conv2d<2, 3, pg::no_bias, pg::padding<1>>,
                               pg::adaptive_avg_pool2d<1, 1>, pg::flatten, pg::frozen<pg::linear<3>>>;
using of_lines =
    pg::network<pg::shape{1024, 1}, pg::linear<1, pg::no_bias>, pg::mean_over_positions, pg::frozen<pg::linear<3>>>;
using of_scales = pg::network<pg::shape{1, 32, 32}, pg::frozen<pg::conv2d<2, 1, pg::no_bias>>, pg::channel_affine,
                              pg::adaptive_avg_pool2d<1, 1>, pg::flatten, pg::frozen<pg::linear<3>>>;
using of_biases = pg::network<pg::shape{1, 32, 32}, pg::conv2d<2, 1>, pg::adaptive_avg_pool2d<1, 1>, pg::flatten,
                              pg::frozen<pg::linear<3>>>;
/// Products of sequences, that is of several positions, without anything else.
using line_of_positions = pg::network<pg::shape{400, 1}, pg::linear<2, pg::no_bias>>;

}  // namespace

namespace pergrad::inline v0_1::on_device {

template <>
inline constexpr plan_kind plan_of<of_positions> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<of_channels> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<of_windows> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<of_lines> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<of_scales> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<of_biases> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<line_of_positions> = plan_kind::layered;

}  // namespace pergrad::inline v0_1::on_device

BOOST_AUTO_TEST_SUITE(cuda_strategies)

template <class Network, class Device>
void check_bounds(const char* name, const pg::device_options& options) {
  long double longest = 0;
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    both<Network, pg::cross_entropy, Device> it{1, emulation_order::forward, seed, options};
    // Nearly zero altogether, so that every rounding is seen.
    const std::span<float> values{it.inputs};
    float sum = 0;
    for (const float each : values.first(values.size() - 1)) sum += each;
    values.back() = -sum;
    const auto gradients = it.on_device();
    const pg::l2_clip_norm clip{1e-9};
    const auto check = [&](const char* what, const auto& of) {
      const long double added = norm_of(it.evaluate(pg::sum(pg::clip(of, clip))));
      longest = std::max(longest, added);
      BOOST_TEST(added <= 1e-9L, name << ", " << what << ", sum, seed " << seed);
      BOOST_TEST(norm_of(it.evaluate(pg::materialise(pg::clip(of, clip)))) <= 1e-9L,
                 name << ", " << what << ", row, seed " << seed);
    };
    check("planned", gradients);
    check("gram", pg::with_method<pg::norm_method::gram>(gradients));
    check("direct", pg::with_method<pg::norm_method::direct>(gradients));
    check("naive", pg::with_strategy<pg::strategy::naive>(gradients));
    check("multi", pg::with_strategy<pg::strategy::multi>(gradients));
    check("crb", pg::with_strategy<pg::strategy::crb>(gradients));
    check("ghost", pg::with_strategy<pg::strategy::ghost>(gradients));
  }
  BOOST_TEST(longest > 0.99e-9L);
}
template <class Device = pg::emulated>
void check_networks(const pg::device_options& options) {
  check_bounds<of_positions, Device>("positions", options);
#ifdef PERGRAD_LONG_TESTS
  check_bounds<of_channels, Device>("channels", options);
  check_bounds<of_windows, Device>("windows", options);
  check_bounds<of_lines, Device>("lines", options);
  check_bounds<of_scales, Device>("scales", options);
  check_bounds<of_biases, Device>("biases", options);
#endif
}
BOOST_AUTO_TEST_CASE(every_strategy_squares_what_it_adds) {
  BOOST_TEST(pg::on_device::facts_of<of_positions>.outer[0].chunks > 1);
  check_networks({});
}
BOOST_AUTO_TEST_CASE(every_strategy_squares_what_it_adds_with_tf32) { check_networks({.tf32 = true}); }
BOOST_AUTO_TEST_CASE(every_strategy_squares_what_it_adds_with_bf16) { check_networks<pg::emulated_bf16>({}); }

// 0.6 of the least float rounds to all of it, at each position, and a Gram sum is of the products themselves.
BOOST_AUTO_TEST_CASE(products_that_are_rounded_up_over_many_positions) {
  both<line_of_positions, pg::mean_squared_error> it{1};
  std::ranges::fill(it.net.parameters(), 0.0F);
  std::ranges::fill(it.inputs, 0x1p-70F);
  std::ranges::fill(it.targets, -0.6F * 400 * 0x1p-79F);  // deltas are -2/800 of it
  const auto gradients = it.on_device();
  for (const double bound : {1e-6, 1e-5, 1e-4, 1.0}) {
    const auto check = [&](const char* what, const auto& of) {
      const auto sum = it.evaluate(pg::sum(pg::normalise(of, pg::l2_clip_norm{bound}, 1e-100)));
      BOOST_TEST(sum[0] > 0);
      BOOST_TEST(norm_of(sum) <= static_cast<long double>(bound), what);
    };
    check("planned", gradients);
    check("gram", pg::with_method<pg::norm_method::gram>(gradients));
    check("direct", pg::with_method<pg::norm_method::direct>(gradients));
  }
}

BOOST_AUTO_TEST_SUITE_END()
