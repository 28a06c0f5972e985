// SPDX-License-Identifier: Apache-2.0
// tests/cuda/marks_test.cpp - a device draws the records that the host draws, a step ahead
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/cuda/run/marks.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/train/private_run.hpp>

BOOST_AUTO_TEST_SUITE(cuda_marks)

namespace {

namespace pg = pergrad;
using pg::on_device::emulated_device;
using pg::on_device::emulation_order;
using pg::on_device::shuffled_order;

using stream = pg::detail::secret_stream<pg::detail::randomness::sampling>;

stream at(const pg::seeded_generator& generator, std::uint64_t step) {
  return generator.stream<pg::detail::randomness::sampling>(step);
}
std::vector<std::uint64_t> on_the_host(const pg::poisson_sampling& sampling, const stream& step, std::uint64_t begin,
                                       std::uint64_t end) {
  std::vector<std::uint64_t> bits((end - begin + 127) / 128 * 2);
  sampling.mark(step, begin, bits);
  return bits;
}
struct drawing {
  explicit drawing(emulation_order order = emulation_order::forward)
      : device{std::make_shared<emulated_device>(order)}, marks{device} {}

  std::shared_ptr<emulated_device> device;
  pg::on_device::device_marks<emulated_device> marks;

  void check(const pg::poisson_sampling& sampling, const stream& step, std::uint64_t begin, std::uint64_t end) {
    const auto found = marks.of(sampling, step, begin, end);
    const auto wanted = on_the_host(sampling, step, begin, end);
    BOOST_TEST(std::vector<std::uint64_t>(found.begin(), found.end()) == wanted, boost::test_tools::per_element());
  }
};

pg::poisson_sampling with(double probability) { return pg::poisson_sampling{pg::sampling_probability{probability}}; }

}  // namespace

BOOST_AUTO_TEST_CASE(the_bits_are_the_hosts) {
  const pg::seeded_generator generator{5};
  for (const auto order : {emulation_order::forward, emulation_order::reversed, shuffled_order(1)}) {
    for (const double probability : {0x1p-60, 0.004, 0.5, 0.999, 1.0}) {
      drawing it{order};
      it.check(with(probability), at(generator, 3), 0, 1);
      it.check(with(probability), at(generator, 5), 0, 5000);
      it.check(with(probability), at(generator, 7), 4096, 4096 + 1300);  // a rank's share
      it.check(with(probability), at(generator, 9), std::uint64_t{1} << 34U, (std::uint64_t{1} << 34U) + 200);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_step_is_marked_before_it_is_asked_for) {
  const pg::seeded_generator generator{5};
  const auto sampling = with(0.1);
  drawing it;
  const auto launches_for = [&](const pg::poisson_sampling& by, const stream& step, std::uint64_t end) {
    const std::size_t before = it.device->counted().launches;
    it.check(by, step, 0, end);
    return it.device->counted().launches - before;
  };
  BOOST_TEST(launches_for(sampling, at(generator, 4), 1000) == 2U);
  BOOST_TEST(launches_for(sampling, at(generator, 4), 1000) == 0U);  // the next window of the same step
  const std::size_t allocations = it.device->counted().allocations;
  for (std::uint64_t step = 6; step < 12; step += 2)
    BOOST_TEST(launches_for(sampling, at(generator, step), 1000) == 1U);
  BOOST_TEST(launches_for(sampling, at(generator, 15), 1000) == 2U);  // another distance, which it learns
  BOOST_TEST(launches_for(sampling, at(generator, 20), 1000) == 1U);
  BOOST_TEST(it.device->counted().allocations == allocations);
  BOOST_TEST(launches_for(with(0.2), at(generator, 25), 1000) == 2U);  // another probability, another data set
  BOOST_TEST(launches_for(with(0.2), at(generator, 30), 1500) == 2U);
  const pg::seeded_generator other{6};
  BOOST_TEST(launches_for(with(0.2), at(other, 30), 1500) == 2U);  // another key
  BOOST_TEST(launches_for(with(0.2), at(other, 35), 1500) == 1U);
  BOOST_TEST(launches_for(with(0.2), at(generator, 40), 1500) == 2U);
}

/// A device that draws some more than it should.
struct wrong_device : emulated_device {
  template <class Kernel>
  void launch(Kernel kernel, int blocks) {
    if constexpr (requires { kernel.sampling; }) kernel.sampling = with(0.012);
    emulated_device::launch(kernel, blocks);
  }
};

BOOST_AUTO_TEST_CASE(a_device_that_draws_others_is_refused) {
  const pg::seeded_generator generator{5};
  pg::on_device::device_marks<wrong_device> marks{std::make_shared<wrong_device>()};
  std::size_t refused = 0;
  for (std::uint64_t step = 0; step < 40; ++step) {
    try {
      static_cast<void>(marks.of(with(0.01), at(generator, step), 0, 5000));
      BOOST_TEST(refused == 0U);  // once and for all
    } catch (const std::runtime_error& error) {
      BOOST_TEST(std::string{error.what()}.find("does not draw the host's records") != std::string::npos);
      ++refused;
    }
  }
  BOOST_TEST(refused > 10U);  // of 128 records 0.2 % are too many: one step in four finds it
}

// Also of several windows, of nobody, and of a rank's share.
BOOST_AUTO_TEST_CASE(the_batches_of_a_step_are_those_that_threads_find) {
  using records = pg::detail::drawn_records<pg::poisson_sampling>;
  const pg::seeded_generator generator{5};
  const auto sampling = with(0.02);
  const pg::detail::thread_pool threads{pg::threads{1}};
  constexpr std::uint64_t one_lane = ~std::uint64_t{0};
  constexpr std::size_t most = 37;
  drawing it;
  const auto on_device = [&](const pg::poisson_sampling& by, const pg::draw_place& place, std::uint64_t begin,
                             std::uint64_t end) { return it.marks.of(by, place, begin, end); };
  const auto all_fit = [](std::uint64_t /*record*/) { return true; };
  records here{sampling, most, one_lane};
  records there{sampling, most, one_lane};
  std::size_t found = 0;
  std::uint64_t step = 0;
  for (const std::uint64_t count : {0U, 1U, 4096U, 70'001U}) {
    for (const pg::detail::record_share mine : {pg::detail::record_share{0, count}, {count / 3, count / 2}}) {
      step += 2;
      here.begin(sampling, at(generator, step), count, mine);
      there.begin(sampling, at(generator, step), count, mine);
      bool is_over = false;
      while (!is_over) {
        const auto wanted = here.next(threads, all_fit, [] {});
        const auto batch = there.next(on_device, all_fit, [] {});
        BOOST_TEST(std::vector<std::uint32_t>(batch.begin(), batch.end()) ==
                       std::vector<std::uint32_t>(wanted.begin(), wanted.end()),
                   boost::test_tools::per_element());
        found += batch.size();
        is_over = wanted.empty() || batch.empty();
      }
    }
  }
  BOOST_TEST(found > 2000U);
}

BOOST_AUTO_TEST_CASE(a_launch_that_fails_leaves_no_wrong_marks) {
  const pg::seeded_generator generator{5};
  drawing it;
  it.check(with(0.3), at(generator, 2), 0, 700);
  it.device->fail_after(1);
  BOOST_CHECK_THROW(static_cast<void>(it.marks.of(with(0.3), at(generator, 4), 0, 700)), std::runtime_error);
  it.check(with(0.3), at(generator, 4), 0, 700);
  it.device->fail_after(1);
  BOOST_CHECK_THROW(static_cast<void>(it.marks.of(with(0.3), at(generator, 9), 0, 700)), std::runtime_error);
  it.check(with(0.3), at(generator, 9), 0, 700);
  it.check(with(0.3), at(generator, 11), 0, 700);
  BOOST_CHECK_THROW(static_cast<void>(it.marks.of(with(0.3), at(generator, 12), 0, (std::uint64_t{1} << 35U) + 1)),
                    std::out_of_range);
}

BOOST_AUTO_TEST_SUITE_END()
