// SPDX-License-Identifier: Apache-2.0
// tests/cuda/strategies_test.cpp - whatever arranges the work, what is added for a sample, or handed out as its row, is
// no longer than the bound: norms are of the numbers themselves
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "device_fixture.hpp"

namespace {

using namespace device_fixture;

/// One parameter, of so many positions that products add them up in chunks, and no other that a norm could rest on.
using one_weight = pg::network<pg::shape{1, 32, 32}, pg::conv2d<1, 1, pg::no_bias>, pg::adaptive_avg_pool2d<1, 1>,
                               pg::flatten, pg::frozen<pg::linear<3>>>;

/// Products of sequences, that is of several positions, without anything else.
using line_of_positions = pg::network<pg::shape{400, 1}, pg::linear<2, pg::no_bias>>;

}  // namespace

namespace pergrad::inline v0_1::on_device {

template <>
inline constexpr plan_kind plan_of<one_weight> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<line_of_positions> = plan_kind::layered;

}  // namespace pergrad::inline v0_1::on_device

BOOST_AUTO_TEST_SUITE(cuda_strategies)

template <class Device>
void check_bounds(const pg::device_options& options) {
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    both<one_weight, pg::cross_entropy, Device> it{1, emulation_order::forward, seed, options};
    // Nearly zero altogether, so that every rounding is seen.
    std::span<float> values{it.inputs};
    float sum = 0;
    for (const float each : values.first(values.size() - 1)) sum += each;
    values.back() = -sum;
    const auto gradients = it.on_device();
    const pg::l2_clip_norm clip{1e-9};
    const auto check = [&](const char* what, const auto& of) {
      BOOST_TEST(std::abs(it.evaluate(pg::sum(pg::clip(of, clip)))[0]) <= 1e-9, what << ", sum, seed " << seed);
      BOOST_TEST(std::abs(it.evaluate(pg::materialise(pg::clip(of, clip)))[0]) <= 1e-9, what << ", row, seed " << seed);
    };
    check("planned", gradients);
    check("gram", pg::with_method<pg::norm_method::gram>(gradients));
    check("naive", pg::with_strategy<pg::strategy::naive>(gradients));
    check("multi", pg::with_strategy<pg::strategy::multi>(gradients));
    check("crb", pg::with_strategy<pg::strategy::crb>(gradients));
    check("ghost", pg::with_strategy<pg::strategy::ghost>(gradients));
  }
}
BOOST_AUTO_TEST_CASE(every_strategy_squares_what_it_adds) {
  BOOST_TEST(pg::on_device::facts_of<one_weight>.outer[0].chunks > 1);
  check_bounds<pg::emulated>({});
}
BOOST_AUTO_TEST_CASE(every_strategy_squares_what_it_adds_with_tf32) { check_bounds<pg::emulated>({.tf32 = true}); }
BOOST_AUTO_TEST_CASE(every_strategy_squares_what_it_adds_with_bf16) { check_bounds<pg::emulated_bf16>({}); }

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
      BOOST_TEST(std::hypot(static_cast<double>(sum[0]), static_cast<double>(sum[1])) <= bound, what);
    };
    check("planned", gradients);
    check("gram", pg::with_method<pg::norm_method::gram>(gradients));
    check("direct", pg::with_method<pg::norm_method::direct>(gradients));
  }
}

BOOST_AUTO_TEST_SUITE_END()
