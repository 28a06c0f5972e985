// SPDX-License-Identifier: Apache-2.0
// tests/testing/conformance_test.cpp - the trainer does to gradients what it claims, in every number that can be seen;
// tests/testing/planted_bugs.py breaks the library in many ways, and each of these cases must find its own
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/conformance.hpp>
#include <pergrad/testing/gradient_space.hpp>

#include "own_mechanism.hpp"

BOOST_AUTO_TEST_SUITE(conformance)

namespace {

namespace pg = pergrad;
using pg::testing::audited_dp_sgd;
using pg::testing::check_conformance;
using pg::testing::conformance_report;

/// How many steps are looked at: in the short tier fewer than these. What counts as far off depends on how many.
std::size_t steps_of(std::size_t many) { return std::getenv("PERGRAD_LONG_TESTS") == nullptr ? 400 : many; }

const conformance_report& of_the_trainer() {
  static const conformance_report report =
      check_conformance(pg::host{pg::threads{1}}, audited_dp_sgd<>{}, {.clip = 2.5});
  return report;
}
void expect(const char* name) {
  const auto& found = of_the_trainer().at(name);
  BOOST_TEST_MESSAGE(name << ": " << found.measured << ", expected " << found.expected << ", " << found.errors
                          << " standard errors");
  BOOST_TEST(found.holds(), name << ": " << found.measured << " in the place of " << found.expected);
}

}  // namespace

BOOST_AUTO_TEST_CASE(noise_deviation) { expect("noise deviation"); }
BOOST_AUTO_TEST_CASE(noise_mean) { expect("noise mean"); }
BOOST_AUTO_TEST_CASE(noise_of_an_empty_set) { expect("noise of an empty set"); }
BOOST_AUTO_TEST_CASE(noise_of_steps) { expect("steps"); }
BOOST_AUTO_TEST_CASE(noise_of_elements) { expect("elements"); }
BOOST_AUTO_TEST_CASE(noise_fourth_moment) { expect("noise fourth moment"); }
BOOST_AUTO_TEST_CASE(noise_of_any_two_steps) { expect("pairs of steps"); }
BOOST_AUTO_TEST_CASE(noise_of_any_two_elements) { expect("pairs of elements"); }
BOOST_AUTO_TEST_CASE(inclusion_rate) { expect("inclusion rate"); }
BOOST_AUTO_TEST_CASE(inclusion_dispersion) { expect("inclusion dispersion"); }
BOOST_AUTO_TEST_CASE(inclusion_of_others) { expect("inclusion of others"); }
BOOST_AUTO_TEST_CASE(dispersion_of_others) { expect("dispersion of others"); }
BOOST_AUTO_TEST_CASE(inclusion_of_each) { expect("inclusion of each"); }
BOOST_AUTO_TEST_CASE(clipped_size) { expect("clipped size"); }
BOOST_AUTO_TEST_CASE(size_at_any_norm) { expect("size at any norm"); }
BOOST_AUTO_TEST_CASE(noise_among_records) { expect("noise among records"); }
BOOST_AUTO_TEST_CASE(number_of_records) { expect("other records"); }
BOOST_AUTO_TEST_CASE(largest_record) { expect("largest record"); }
BOOST_AUTO_TEST_CASE(not_finite) { expect("not finite"); }

BOOST_AUTO_TEST_CASE(other_settings) {
  const pg::host exec{pg::threads{2}};
  audited_dp_sgd<> automatic;
  automatic.options.clipping = pg::clipping_kind::automatic;
  audited_dp_sgd<> integers;
  integers.options.capacity = pg::record_capacity{0};
  for (const auto& make : {automatic, integers}) {
    const conformance_report report =
        check_conformance(exec, make, {.clip = 30, .batch = 64, .seed = 9}, steps_of(1000));
    BOOST_TEST_MESSAGE(report.text());
    BOOST_TEST(report.holds());
  }
}

// Others whose records are in a step with a claim's probability, independently of the steps before: a capacity that is
// never reached, owners would need their records' number, views of a record whose gradient is the record itself.
BOOST_AUTO_TEST_CASE(other_samplers) {
  const pg::host exec{pg::threads{2}};
  const auto check = [&](const auto& make) {
    const conformance_report report = check_conformance(exec, make, {.clip = 2.5, .seed = 5}, steps_of(1000));
    BOOST_TEST_MESSAGE(report.text());
    BOOST_TEST(report.holds());
  };
  const auto replacing = [](double q) { return pg::replace_one_poisson_sampling{pg::sampling_probability{q}}; };
  const auto truncated = [](double q) {
    return pg::truncated_poisson_sampling{pg::sampling_probability{q}, pg::batch_capacity{100'000},
                                          pg::public_record_count{100'000}};
  };
  const auto views = [](double q) {
    return pg::with_views{pg::poisson_sampling{pg::sampling_probability{q}}, pg::view_count{2}};
  };
  check(audited_dp_sgd<pg::seeded_generator, decltype(replacing)>{});
  check(audited_dp_sgd<pg::seeded_generator, decltype(truncated)>{});
  check(audited_dp_sgd<pg::seeded_generator, decltype(views)>{});
}

BOOST_AUTO_TEST_CASE(with_a_key_of_the_operating_system) {
  const auto report = check_conformance(pg::host{pg::threads{1}}, audited_dp_sgd<pg::os_keyed_generator>{}, {}, 400);
  BOOST_TEST_MESSAGE(report.text());
  BOOST_TEST(report.holds());
}

// A trainer of somebody's own: an ordinary loop whose noise has the wrong size by 5 %.
BOOST_AUTO_TEST_CASE(a_weakness_of_ones_own_is_found) {
  const auto make = [](const auto& executor, auto& network, pg::testing::step_claim claim) {
    claim.noise *= 0.95;
    return audited_dp_sgd<>{}(executor, network, claim);
  };
  const auto report = check_conformance(pg::host{pg::threads{1}}, make);
  BOOST_TEST(!report.at("noise deviation").holds());
  BOOST_TEST(report.at("inclusion rate").holds());
  BOOST_TEST(report.text().find("BROKEN") != std::string::npos);
  BOOST_CHECK_THROW(static_cast<void>(report.at("noise")), std::out_of_range);
  BOOST_CHECK_THROW(static_cast<void>(check_conformance(pg::host{pg::threads{1}}, make, {}, 10)),
                    std::invalid_argument);
}

// A mechanism that is written anew, and six ways in which such are wrong.
BOOST_AUTO_TEST_CASE(mechanisms_of_ones_own) {
  const auto report_of = [](own_mistake wrong) {
    return check_conformance(pg::host{pg::threads{1}}, own_mechanism{wrong}, {.clip = 2.5, .seed = 3});
  };
  const conformance_report right = report_of(own_mistake::none);
  BOOST_TEST(right.holds(), right.text());
  const std::pair<own_mistake, const char*> mistakes[] = {
      {own_mistake::clips_elements, "size at any norm"},
      {own_mistake::clips_the_largest_alone, "size at any norm"},
      {own_mistake::no_noise_among_records, "noise among records"},
      {own_mistake::one_coin, "dispersion of others"},
      {own_mistake::first_twice, "inclusion of each"},
      {own_mistake::fixed_size, "dispersion of others"},
  };
  for (const auto& [wrong, name] : mistakes) {
    const conformance_report report = report_of(wrong);
    BOOST_TEST(!report.at(name).holds(), name << "\n" << report.text());
  }
}

// Noise of the right size, whatever else is wrong with it: a sum of nobody's.
BOOST_AUTO_TEST_CASE(noise_that_repeats_anywhere_is_found) {
  using released = std::vector<double>;
  const auto report_of = [](const auto& change) {
    return check_conformance(
        pg::host{pg::threads{1}},
        [&](const auto& executor, auto& network, const auto& claim) {
          auto step = audited_dp_sgd<>{}(executor, network, claim);
          return [step, change, before = std::vector<released>{}](const auto& records) mutable {
            released now = step(records);
            change(now, before);
            before.push_back(now);
            return now;
          };
        },
        {}, steps_of(2000));
  };
  const auto expect_broken = [&](const char* name, const auto& change) {
    const conformance_report report = report_of(change);
    BOOST_TEST(!report.at(name).holds(), name << "\n" << report.text());
  };
  // Its elements from 32 on are nobody's in the narrow space, and all in the wide one.
  const auto keep = [](released& now, const released& from, std::size_t first) {
    std::copy(from.begin() + static_cast<std::ptrdiff_t>(first), from.end(),
              now.begin() + static_cast<std::ptrdiff_t>(first));
  };
  expect_broken("pairs of steps", [&](released& now, const std::vector<released>& before) {
    if (before.size() % 4 >= 2) keep(now, before[before.size() - 2], 32);
  });
  expect_broken("pairs of steps", [&](released& now, const std::vector<released>& before) {
    if (before.size() >= 150) keep(now, before[before.size() - 150], 32);
  });
  expect_broken("pairs of steps", [&](released& now, const std::vector<released>& before) {
    if (now.size() > 64 && !before.empty()) keep(now, before[0], now.size() / 2);  // half of the elements
  });
  expect_broken("pairs of elements", [](released& now, const auto&) {
    for (std::size_t i = 512; i < now.size(); ++i) now[i] = now[i - 512];
  });
  expect_broken("pairs of elements", [](released& now, const std::vector<released>& before) {
    for (std::size_t i = 512; !before.empty() && i < now.size(); ++i) now[i] = before.back()[i - 512];
  });
  expect_broken("noise fourth moment", [](released& now, const auto&) {
    for (std::size_t i = 32; i < now.size(); ++i) now[i] *= i % 2 == 0 ? 0 : std::sqrt(2);
  });
}

BOOST_AUTO_TEST_SUITE_END()
