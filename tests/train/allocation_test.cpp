// SPDX-License-Identifier: Apache-2.0
// tests/train/allocation_test.cpp - a training step takes nothing from the heap.
#include <atomic>
#include <cstdlib>
#include <new>

#include "fixture.hpp"

namespace {

std::atomic<std::size_t> allocations{0};

}  // namespace

// All forms that are used, as a sanitizer brings its own of those that are missing. Not inlined, so that the compiler
// does not see malloc behind new and free behind delete, and warn that they mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes != 0 ? bytes : 1);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, (bytes / unit + 1) * unit);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* memory = operator new(bytes, alignment, std::nothrow)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

using namespace fixture;

/// Allocations of ten steps, the first included.
std::size_t count_in_steps(const pg::dp_sgd_options& options, std::size_t threads) {
  const clouds data{300};
  const pg::host exec{pg::threads{threads}};
  classifier net{exec, pg::kaiming_uniform{8}};
  const std::size_t before_construction = allocations;
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  BOOST_TEST(allocations > before_construction + 5);  // the counter counts, and all is reserved here
  const std::size_t before = allocations;
  for (int step = 0; step < 10 && trainer.within_budget(); ++step) trainer.step(data.records());
  const std::size_t after = allocations;
  BOOST_TEST(trainer.steps() == 10U);
  return after - before;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train_allocation)

BOOST_AUTO_TEST_CASE(steps_allocate_nothing) {
  for (const std::size_t threads : {1U, 3U}) {
    auto options = usual_options();
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    options.momentum = 0.9;
    options.private_metrics = true;
    options.budget = pg::privacy_budget{pg::epsilon{50}, pg::delta{1e-5}};
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    options.clipping = pg::clipping_kind::per_layer;
    options.optimizer = pg::optimizer_kind::adam;
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    options.clipping = pg::clipping_kind::automatic;
    options.sampling = pg::poisson_sampling{pg::sampling_probability{0}};
    BOOST_TEST(count_in_steps(options, threads) == 0U);
  }
}

// Near its budget the accountant refines the order that it proves by; that, too, is arithmetic on the stack.
BOOST_AUTO_TEST_CASE(nor_do_the_last_steps_of_a_budget) {
  pg::rdp_accountant accountant;
  accountant.record(usual_options().sampling->event(*usual_options().noise), 10);
  auto options = usual_options();
  options.budget = pg::privacy_budget{pg::epsilon{accountant.epsilon(pg::delta{1e-5}) * 1.000001}, pg::delta{1e-5}};
  BOOST_TEST(count_in_steps(options, 2) == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
