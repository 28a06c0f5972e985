// SPDX-License-Identifier: Apache-2.0
// tests/privacy/allocation_test.cpp - a private step draws, samples and accounts without touching the heap.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/privacy/budget.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/noise.hpp>
#include <pergrad/privacy/sampling.hpp>

#include "counted_allocations.hpp"

BOOST_AUTO_TEST_SUITE(privacy_allocation)

BOOST_AUTO_TEST_CASE(a_step_allocates_nothing) {
  pergrad::os_keyed_generator generator;
  const pergrad::poisson_sampling sampling{pergrad::sampling_probability{0.1}};
  const auto event = sampling.event(pergrad::noise_multiplier{1.0});
  pergrad::privacy_accountant accountant{pergrad::privacy_budget{pergrad::epsilon{50}, pergrad::delta{1e-5}}};
  accountant.prepare(event);
  std::array<float, 2000> single{};
  std::array<double, 2000> twice{};
  std::array<std::uint32_t, 1000> records{};

  const std::size_t before = allocations;
  for (int turn = 0; turn < 5; ++turn) {
    accountant.spend(event);
    const std::uint64_t step = generator.next_step();
    static_cast<void>(sampling.sample(generator.key(), step, 1000, records));
    constexpr auto purpose = pergrad::random_purpose::gradient_noise;
    pergrad::add_gaussian(generator.key(), purpose, step, 0, 0.5, std::span<float>{single});
    pergrad::add_gaussian(generator.key(), purpose, step, 5, 0.5, std::span<double>{twice});
    static_cast<void>(accountant.epsilon(pergrad::delta{1e-5}));
  }
  const std::size_t after = allocations;
  BOOST_TEST(after == before);
  BOOST_TEST(before > 0U);  // the counter counts
}

BOOST_AUTO_TEST_SUITE_END()
