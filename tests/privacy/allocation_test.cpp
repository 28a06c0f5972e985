// SPDX-License-Identifier: Apache-2.0
// tests/privacy/allocation_test.cpp - a private step draws, samples and accounts without touching the heap.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/sampling.hpp>

#include "counted_allocations.hpp"

BOOST_AUTO_TEST_SUITE(privacy_allocation)

BOOST_AUTO_TEST_CASE(a_step_allocates_nothing) {
  pergrad::seeded_generator generator{1};
  const pergrad::poisson_sampling sampling{pergrad::sampling_probability{0.1}};
  const auto event = sampling.event(pergrad::noise_multiplier{1.0});
  pergrad::privacy_accountant accountant{pergrad::privacy_budget{pergrad::epsilon{50}, pergrad::delta{1e-5}}};
  accountant.prepare(event);
  std::array<float, 2000> single{};
  std::array<double, 2000> twice{};
  std::array<std::uint64_t, 16> marked{};
  const auto grid = pergrad::release_grid::of(0.5, 2000);
  const double sensitivity = pergrad::sensitivity_in_steps(grid, {}, 1);

  const std::size_t before = allocations;
  for (int turn = 0; turn < 5; ++turn) {
    accountant.spend(event);
    sampling.mark(generator.stream<pergrad::detail::randomness::sampling>(generator.next_step()), 0, marked);
    const pergrad::noise_multiplier noise{1.0};
    const pergrad::detail::release_gate<float> narrow{grid, sensitivity, noise, 1, generator};
    const pergrad::detail::release_gate<double> wide{grid, sensitivity, noise, 1, generator};
    narrow.release(0, {single.data(), nullptr}, single.data(), {});
    wide.release(0, {twice.data(), nullptr}, twice.data(), {});
  }
  const std::size_t after = allocations;
  BOOST_TEST(after == before);
  BOOST_TEST(before > 0U);  // the counter counts
}

// What an accountant finds takes grids on the heap. It is asked when an event is prepared, and not at any step between.
BOOST_AUTO_TEST_CASE(a_guard_asks_no_accountant_at_any_step) {
  const pergrad::sampled_gaussian_event event{.02, .9}, other{.05, 1.5};
  const pergrad::privacy_budget budget{pergrad::epsilon{2}, pergrad::delta{1e-6}};
  pergrad::privacy_accountant accountant{budget}, planned{budget};
  const std::size_t before_all = allocations;
  accountant.prepare(event);
  const pergrad::rdp_accountant::entry schedule[]{{event, 30}, {other, 20}};
  planned.declare(schedule);
  const std::size_t before = allocations;
  BOOST_TEST(before > before_all + 100);
  std::uint64_t steps = 0;
  while (accountant.within(event)) {
    accountant.spend(event);
    ++steps;
  }
  for (int turn = 0; turn < 50; ++turn) planned.spend(turn % 5 < 3 ? event : other);
  const std::size_t after = allocations;
  BOOST_TEST(after == before);
  BOOST_TEST(steps > 40U);
  BOOST_TEST(!planned.within(event));
  BOOST_TEST(accountant.epsilon(budget.delta) <= 2);
  BOOST_TEST(allocations > after + 100);  // here it is asked
}

BOOST_AUTO_TEST_SUITE_END()
