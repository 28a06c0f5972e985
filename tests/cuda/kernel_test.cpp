// SPDX-License-Identifier: Apache-2.0
// tests/cuda/kernel_test.cpp - the host that emulates a device finds the mistakes that it is there to find
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/privacy/sensitivity.hpp>

#include "comparing.hpp"

BOOST_AUTO_TEST_SUITE(cuda_kernel)

namespace on_device = pergrad::on_device;

namespace {

using comparing::same_bits;
using on_device::emulated_device;
using on_device::emulation_order;

constexpr emulation_order orders[] = {emulation_order::forward, emulation_order::reversed, emulation_order::shuffled};

/// Every thread reads its neighbour's value: right with a barrier in between, and wrong without.
template <int WithBarrier>
struct neighbour_kernel {
  static constexpr int threads = 64;
  struct shared_type {
    float values[threads];
  };
  float* out;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    const auto write = [&](int t) { shared.values[t] = static_cast<float>(t + 1); };
    const auto read = [&](int t) { out[block.index() * threads + t] = shared.values[(t + 1) % threads]; };
    if constexpr (WithBarrier != 0) {
      block.each(write);
      block.each(read);
    } else {
      block.each([&](int t) {
        write(t);
        read(t);
      });
    }
  }
};
/// Reads what no thread of the block has written, and leaves something for the next block to find.
struct forgetful_kernel {
  static constexpr int threads = 32;
  struct shared_type {
    float value;
  };
  float* out;
  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    typename Block::template local<float> own;
    block.each([&](int t) {
      out[64 * block.index() + t] = shared.value;
      out[64 * block.index() + threads + t] = own[t];
    });
    block.once([&] { shared.value = 1; });
  }
};
struct sum_kernel {
  static constexpr int threads = 96;
  struct shared_type {
    float partial[threads / 32];
  };
  float* out;
  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    typename Block::template local<float> own;
    block.each([&](int t) { own[t] = 1 / static_cast<float>(t + 1 + block.index()); });
    const float total = block.sum(own, shared.partial);
    block.each([&](int t) { out[block.index() * threads + t] = total; });
  }
};

template <class Kernel>
std::vector<float> run(emulation_order order, std::size_t count, int blocks) {
  emulated_device device{order};
  auto* out = static_cast<float*>(device.allocate(count * sizeof(float)));
  device.launch(Kernel{out}, blocks);
  std::vector<float> result(count);
  device.download(result.data(), out, count * sizeof(float));
  device.release(out);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_thread_and_block_runs_once_in_every_order) {
  for (const emulation_order order : orders) {
    for (const int count : {1, 5, 32, 96}) {
      std::vector<int> seen(static_cast<std::size_t>(count));
      on_device::emulation::for_each_in_order(order, count, 7, [&](int i) { ++seen[static_cast<std::size_t>(i)]; });
      for (const int times : seen) BOOST_TEST(times == 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_missing_barrier_shows_in_another_order) {
  const auto wanted = run<neighbour_kernel<1>>(emulation_order::forward, 192, 3);
  for (const emulation_order order : orders) BOOST_TEST(same_bits(run<neighbour_kernel<1>>(order, 192, 3), wanted));
  const auto planted = run<neighbour_kernel<0>>(emulation_order::forward, 192, 3);
  BOOST_TEST(!same_bits(run<neighbour_kernel<0>>(emulation_order::reversed, 192, 3), planted));
  BOOST_TEST(!same_bits(run<neighbour_kernel<0>>(emulation_order::shuffled, 192, 3), planted));
}

BOOST_AUTO_TEST_CASE(memory_that_nobody_wrote_is_not_a_number) {
  for (const float value : run<forgetful_kernel>(emulation_order::forward, 128, 2)) BOOST_TEST(std::isnan(value));
  emulated_device device;
  const auto* fresh = static_cast<float*>(device.allocate(4));
  BOOST_TEST(std::isnan(*fresh));
}

BOOST_AUTO_TEST_CASE(a_sum_is_the_butterflys) {
  const auto found = run<sum_kernel>(emulation_order::forward, 192, 2);
  for (const emulation_order order : orders) BOOST_TEST(same_bits(run<sum_kernel>(order, 192, 2), found));
  for (int block = 0; block < 2; ++block) {
    float total = 0;
    for (int warp = 0; warp < 3; ++warp) {
      std::array<float, 32> lanes{};
      for (int lane = 0; lane < 32; ++lane) {
        lanes[static_cast<std::size_t>(lane)] = 1 / static_cast<float>(32 * warp + lane + 1 + block);
      }
      for (const std::size_t apart : {16U, 8U, 4U, 2U, 1U}) {  // as __shfl_xor_sync exchanges them
        const auto before = lanes;
        for (std::size_t lane = 0; lane < 32; ++lane) lanes[lane] = before[lane] + before[lane ^ apart];
      }
      total = warp == 0 ? lanes[0] : total + lanes[0];
    }
    BOOST_TEST(found[static_cast<std::size_t>(block) * 96] == total);
  }
}

using small_kinds = boost::mpl::list<on_device::small_shares<on_device::share_kind::converted>,
                                     on_device::small_shares<on_device::share_kind::shifted>>;
BOOST_AUTO_TEST_CASE_TEMPLATE(small_shares_are_what_a_conversion_to_64_bits_gives, small, small_kinds) {
  for (const int steps : {0, 12, small::steps}) {
    const float to_grid = std::ldexp(1.0F, steps);
    const small shares{to_grid};
    // Halves of a step are ties; the largest are those of a gradient that is clipped to less than a unit.
    const float most = std::ldexp(1.0F, small::steps - steps);
    std::vector<float> values{0, -0.0F, most, -most, std::nextafter(most, 0.0F), 1e-44F, -1e-44F};
    for (int i = -9; i <= 9; ++i) {
      values.push_back(static_cast<float>(i) / 2 / to_grid);
      values.push_back(std::nextafter(values.back(), 1.0F));
      values.push_back(std::nextafter(values.back(), -1.0F));
    }
    for (int i = 1; i < 2000; ++i) values.push_back(most * std::sin(static_cast<float>(i)) * std::pow(0.99F, float(i)));
    int wrong = 0;
    int truncated = 0;     // planted: towards zero
    int without_sign = 0;  // planted: 2^23 steps added, below which a float's last bit is half a step
    const float no_room = 2.0F * (1 << 22) / to_grid;
    for (const float value : values) {
      for (const float factor : {1.0F, 0.7F, -0.3F}) {
        std::int64_t wanted = 0;
        on_device::add_share(wanted, factor, value, to_grid);
        const float product = on_device::multiply(factor, value);
        wrong += small::whole(shares.with_offset(factor, value) - shares.offset()) == wanted ? 0 : 1;
        truncated += static_cast<std::int64_t>(product * to_grid) == wanted ? 0 : 1;
        const auto bits = std::bit_cast<std::uint32_t>(on_device::add(product, no_room));
        without_sign += small::whole(bits - std::bit_cast<std::uint32_t>(no_room)) == wanted ? 0 : 1;
      }
    }
    BOOST_TEST(wrong == 0);
    BOOST_TEST(truncated > 1000);
    BOOST_TEST(without_sign > 1000);
    for (const float value : {most, -most}) {  // as many as are allowed
      std::uint32_t sum = 0 - small::most * shares.offset();
      for (int i = 0; i < small::most; ++i) sum += shares.with_offset(1, value);
      BOOST_TEST(small::whole(sum) == small::most * static_cast<std::int64_t>(std::ldexp(value, steps)));
    }
  }
  // What clipping leaves of a gradient is below a unit, and units of networks with so many parameters have these steps.
  BOOST_TEST(pergrad::release_grid::of(0.999, std::size_t{1} << (2 * (small::steps - 12))).steps == small::steps);
}

BOOST_AUTO_TEST_CASE(a_captured_step_is_done_when_it_is_replayed_and_cannot_reach_the_host) {
  emulated_device device;
  auto* out = static_cast<float*>(device.allocate(64 * sizeof(float)));
  auto graph = device.capture([&] {
    device.fill_zero(out, 4);
    device.launch(neighbour_kernel<1>{out}, 1);
  });
  BOOST_TEST(device.node_count(graph) == 2U);
  BOOST_TEST(std::isnan(out[0]));
  device.replay(graph);
  BOOST_TEST(out[0] == 2);
  float value = 0;
  const float two[2] = {};
  const auto in_capture = [&](auto&& f) { return [&device, f] { static_cast<void>(device.capture(f)); }; };
  BOOST_CHECK_THROW(in_capture([&] { device.synchronise(); })(), std::logic_error);
  BOOST_CHECK_THROW(in_capture([&] { device.download(&value, out, 4); })(), std::logic_error);
  BOOST_CHECK_THROW(in_capture([&] { static_cast<void>(device.allocate(4)); })(), std::logic_error);
  BOOST_CHECK_THROW(device.upload(out + 63, two, 8), std::out_of_range);
}

BOOST_AUTO_TEST_SUITE_END()
