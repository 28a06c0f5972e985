// SPDX-License-Identifier: Apache-2.0
// tests/cuda/sampling_test.cpp - the device draws the records that the host draws, and gathers them
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/sampling.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/sampling.hpp>

BOOST_AUTO_TEST_SUITE(cuda_sampling)

namespace {

namespace pg = pergrad;
namespace dev = pergrad::on_device;

constexpr dev::play_order orders[] = {dev::play_order::forward, dev::play_order::reversed, dev::play_order::shuffled};
constexpr std::uint64_t seed = 31;

std::vector<std::uint32_t> drawn_by_host(double q, std::uint64_t step, std::uint32_t count) {
  const pg::poisson_sampling sampling{pg::sampling_probability{q}};
  pg::seeded_generator generator{seed, step};
  return pg::unaccounted::draw(sampling, generator, count);
}
std::vector<std::uint32_t> drawn_by_device(double q, std::uint64_t step, std::uint32_t count, dev::play_order order) {
  const pg::seeded_generator generator{seed};
  const auto stream = generator.stream<pg::detail::randomness::sampling>(step);
  dev::choose_kernel choose{.step = &step,
                            .stream = dev::stream_upload::words(stream),
                            .threshold = q == 1 ? 0 : static_cast<std::uint64_t>(std::ldexp(q, 64)),
                            .everybody = q == 1 ? 1U : 0U,
                            .record_count = count,
                            .records = nullptr,
                            .counts = nullptr};
  const int blocks = choose.blocks();
  std::vector<std::uint32_t> stretches(static_cast<std::size_t>(blocks) * dev::chosen_stretch, 0xffff'ffffU);
  std::vector<std::uint32_t> counts(static_cast<std::size_t>(blocks));
  choose.records = stretches.data();
  choose.counts = counts.data();
  dev::play(choose, blocks, order);
  std::vector<std::uint32_t> records(count);
  std::uint32_t total = 12345;
  const dev::collect_kernel collect{stretches.data(), counts.data(), records.data(), &total};
  dev::play(collect, blocks, order);
  BOOST_REQUIRE(total <= count);
  records.resize(total);
  return records;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_device_draws_the_host_s_records) {
  for (const dev::play_order order : orders) {
    for (const std::uint32_t count : {1U, 127U, 128U, 2047U, 2048U, 2049U, 60000U}) {
      for (const double q : {1e-300, 0.004, 0.5, 0.97, 1.0}) {
        for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{3} << 33U}) {
          BOOST_TEST(drawn_by_device(q, step, count, order) == drawn_by_host(q, step, count));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(records_are_gathered_and_what_is_behind_them_is_zero) {
  std::vector<float> data(70 * 11);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) + 0.5F;
  const std::vector<std::uint32_t> ids{7, 0, 10, 7, 4000000000U, 4000000000U};  // the last two are not the state's
  for (const dev::play_order order : orders) {
    dev::step_state state;
    state.count = 4;
    std::vector<float> rows(6 * 72, -1.0F);
    const dev::gather_kernel<float, 32> kernel{&state, data.data(), ids.data(), rows.data(), 70, 72};
    dev::play(kernel, 6, order);
    for (std::size_t b = 0; b < 6; ++b) {
      for (std::size_t i = 0; i < 72; ++i) {
        const float expected = i >= 70 ? -1.0F : b < 4 ? data[ids[b] * 70 + i] : 0.0F;
        BOOST_REQUIRE(rows[b * 72 + i] == expected);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
