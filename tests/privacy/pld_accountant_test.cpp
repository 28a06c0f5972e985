// SPDX-License-Identifier: Apache-2.0
// tests/privacy/pld_accountant_test.cpp - brackets of whole runs against exact and public values, against RDP, at the
// edges, and as the ledger grows.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/accounting/estimates.hpp>
#include <pergrad/privacy/accounting/pld_accountant.hpp>
#include <pergrad/privacy/accounting/rdp_accountant.hpp>

#include "pld_oracle.hpp"
#include "processor_time.hpp"

BOOST_AUTO_TEST_SUITE(privacy_pld_accountant)

namespace {

using pergrad::accounting_refused;
using pergrad::bracket;
using pergrad::delta;
using pergrad::pld_accountant;
using pergrad::rdp_accountant;
using event = pergrad::sampled_gaussian_event;

pld_accountant run(double q, double noise, std::uint64_t steps) {
  pld_accountant accountant;
  accountant.record({q, noise}, steps);
  return accountant;
}

bool is_long_tier() {
  const char* const tier = std::getenv("PERGRAD_LONG_TESTS");
  return tier != nullptr && *tier != '\0';
}

bool narrow(const bracket& of) { return of.upper - of.lower <= std::max(1e-3 * of.upper, 1e-4); }

void check(const bracket& got, long double exact, const char* what) {
  BOOST_TEST(got.lower <= exact, what << ": " << got.lower << " for " << exact);
  BOOST_TEST(got.upper >= exact, what << ": " << got.upper << " for " << exact);
  BOOST_TEST(narrow(got), what << ": " << got.lower << " " << got.upper << " exact " << exact);
}

}  // namespace

BOOST_AUTO_TEST_CASE(public_values_lie_in_the_bracket) {
  // Estimates of the true epsilon by microsoft/prv_accountant a844f72 with eps_error 0.002; they agree with
  // google/differential-privacy b5b0286 at discretisation 2e-5 to about 1e-5.
  struct row {
    double q;
    double noise;
    std::uint64_t steps;
    double delta;
    double prv;
  };
  const std::array<row, 18> rows{{
      {.01, 1, 1000, 1e-5, 1.8282368},
      {256.0 / 60000, 1.1, 14062, 1e-5, 2.3815970},
      {.04, 1.5, 2250, 1e-5, 6.7687804},
      {.0025, 1.3, 6000, 1e-5, 0.6400039},
      {.001, 1, 30000, 1e-7, 1.0976775},
      {.08192, 3, 2468, 1e-5, 6.5292802},
      {.5, 2, 10, 1e-5, 3.9589956},
      {1e-4, .6, 10000, 1e-6, 0.5327471},
      {.02, .8, 100, 1e-6, 3.2373483},
      {.1, 1, 1, 1e-5, 1.6845438},
      {.001, .5, 1000, 1e-5, 3.2388791},
      {.1, 3, 512, 1e-6, 3.7696839},
      {.2, 10, 1000, 1e-5, 2.6131625},
      {.01, .7, 120, 1e-5, 2.4612377},
      {.0064, 2, 782, 1e-6, 0.3937159},
      {.25, 5, 400, 1e-8, 5.9419273},
      {.05, .8, 1000, 1e-6, 19.5150308},
      {.001, 4, 100000, 1e-6, 0.3144542},
  }};
  for (const row& each : rows) {
    const pld_accountant accountant = run(each.q, each.noise, each.steps);
    const bracket got = accountant.bracket(delta{each.delta});
    BOOST_TEST(got.lower <= each.prv * (1 + 1e-5),
               each.q << " " << each.noise << ": " << got.lower << " for " << each.prv);
    BOOST_TEST(got.upper >= each.prv * (1 - 1e-5),
               each.q << " " << each.noise << ": " << got.upper << " for " << each.prv);
    BOOST_TEST(narrow(got), each.q << " " << each.noise << ": " << got.lower << " " << got.upper);
    BOOST_TEST(accountant.epsilon(delta{each.delta}) == got.upper);
    rdp_accountant rdp;
    rdp.record({each.q, each.noise}, each.steps);
    BOOST_TEST(got.upper < rdp.epsilon(delta{each.delta}));
  }
}

BOOST_AUTO_TEST_CASE(plain_gaussians_are_one_gaussian) {
  struct row {
    double noise;
    std::uint64_t steps;
    double delta;
  };
  for (const row& each : {row{1, 1, 1e-5}, row{.5, 1, 1e-6}, row{2, 1, 1e-8}, row{100, 9999, 1e-9}, row{10, 25, 1e-15},
                          row{1, 4, 1e-30}, row{1e4, 1, 1e-5}, row{.1, 1, 1e-5}, row{3e4, 1'000'000'000, 1e-6}}) {
    const long double total = each.noise / std::sqrt(static_cast<long double>(each.steps));
    const long double exact = oracle::solve([&](long double eps) { return oracle::gaussian(total, eps); }, each.delta,
                                            1 / (total * total) + 40 / total);
    check(run(1, each.noise, each.steps).bracket(delta{each.delta}), exact, "gaussian");
  }
  // mixed
  pld_accountant mixed;
  mixed.record({1, 2}, 3);
  mixed.record({1, 5}, 7);
  const long double total = 1 / std::sqrt(3 / 4.0L + 7 / 25.0L);
  check(mixed.bracket(delta{1e-6}),
        oracle::solve([&](long double eps) { return oracle::gaussian(total, eps); }, 1e-6L, 30), "mixed");
}

// In closed form: also where epsilon is in the millions, or delta below what a grid has.
BOOST_AUTO_TEST_CASE(gaussians_of_any_size_are_bracketed_closely) {
  std::mt19937_64 bits{17};
  const auto random = [&] { return static_cast<double>(bits() >> 11U) * 0x1p-53; };
  for (int i = 0; i < 300; ++i) {
    const double noise = std::exp(26 * random() - 12);
    const double at = std::exp(-1 - 80 * random());
    const pld_accountant accountant = run(1, noise, 1);
    const bracket got = accountant.bracket(delta{at});
    BOOST_TEST(got.upper - got.lower <= 1e-7 * got.upper + 1e-9,
               noise << " " << at << ": " << got.lower << " " << got.upper);
    // e^eps Phi(-x) overflows in the oracle beyond 11,000
    const long double m = 1 / static_cast<long double>(noise);
    if (got.upper > 5000 || m < 1e-4L || at < 1e-12) continue;
    BOOST_TEST(oracle::gaussian(noise, got.upper) <= at * (1 + 1e-6L), noise << " " << at);
    if (got.lower > 0) BOOST_TEST(oracle::gaussian(noise, got.lower) >= at * (1 - 1e-6L), noise << " " << at);
  }
  // 1000 steps of noise 1/2 without sampling: mu = sqrt(4000), epsilon = mu^2/2 + mu t, and t = 4.2497 as
  // Phi(-t) = 1e-5 + phi(t) / (t + mu) or a bit less
  const bracket many = run(1, .5, 1000).bracket(delta{1e-5});
  BOOST_TEST(many.lower > 2000 + 63.2455 * 4.249);
  BOOST_TEST(many.upper < 2000 + 63.2456 * 4.251);
}

BOOST_AUTO_TEST_CASE(one_and_two_sampled_steps_are_exact) {
  std::mt19937_64 bits{11};
  const auto random = [&] { return static_cast<double>(bits() >> 11U) * 0x1p-53; };
  for (int i = 0; i < (is_long_tier() ? 60 : 20); ++i) {
    const double q = std::exp(-9 * random());
    const double noise = std::exp(3 * random() - 1);
    const double at = std::exp(-3 - 22 * random());
    const auto both = [&](long double eps) {
      return std::max(oracle::one_step(q, noise, eps, true), oracle::one_step(q, noise, eps, false));
    };
    check(run(q, noise, 1).bracket(delta{at}), oracle::solve(both, at, 200), "one step");
    if (i % 4 != 0) continue;
    const double other = std::exp(-5 * random());
    const double less = std::exp(2 * random() - 0.5);
    const auto two = [&](long double eps) {
      return std::max(oracle::two_steps(q, noise, other, less, eps, true),
                      oracle::two_steps(q, noise, other, less, eps, false));
    };
    pld_accountant accountant;
    accountant.record({q, noise});
    accountant.record({other, less});
    const double larger = std::max(at, 1e-11);
    const bracket got = accountant.bracket(delta{larger});
    BOOST_TEST(narrow(got), got.lower << " " << got.upper);
    BOOST_TEST(two(got.upper) <= larger * (1 + 1e-7L));  // the quadrature errs by 1e-19
    if (got.lower > 0) BOOST_TEST(two(got.lower) >= larger * (1 - 1e-7L));
    const long double exact = two(0.5L);
    const bracket deltas = accountant.delta_bracket(pergrad::epsilon{0.5});
    if (exact < 1e-12L) continue;
    BOOST_TEST(deltas.lower <= exact * (1 + 1e-7L));
    BOOST_TEST(deltas.upper >= exact * (1 - 1e-7L));
    BOOST_TEST(deltas.upper <= 1.05 * deltas.lower);
    BOOST_TEST(accountant.delta(pergrad::epsilon{0.5}) == deltas.upper);
  }
}

BOOST_AUTO_TEST_CASE(random_ledgers_keep_to_rdp) {
  std::mt19937_64 bits{13};
  const auto random = [&] { return static_cast<double>(bits() >> 11U) * 0x1p-53; };
  int wide = 0;
  int refused = 0;
  const int ledgers = is_long_tier() ? 120 : 40;
  for (int i = 0; i < ledgers; ++i) {
    pld_accountant accountant;
    rdp_accountant rdp;
    const int kinds = 1 + i % 3;
    for (int kind = 0; kind < kinds; ++kind) {
      const event one{kind == 2 ? 1.0 : std::exp(-10 * random()), std::exp(3 * random() - (kind == 2 ? 0.0 : 0.5))};
      const auto count = static_cast<std::uint64_t>(std::exp((kind == 2 ? 3 : 10) * random()));
      accountant.record(one, count);
      rdp.record(one, count);
    }
    const double at = std::exp(-5 - 28 * random());
    try {
      const bracket got = accountant.bracket(delta{at});
      BOOST_TEST(got.lower <= got.upper);
      BOOST_TEST(got.lower <= rdp.epsilon(delta{at}));
      if (!narrow(got)) {
        ++wide;
        BOOST_TEST_MESSAGE("wide: " << got.lower << " " << got.upper << " at " << at << " q "
                                    << accountant.ledger()[0].event.sampling_probability << " noise "
                                    << accountant.ledger()[0].event.noise_multiplier << " T "
                                    << accountant.ledger()[0].count);
      }
    } catch (const accounting_refused& why) {
      BOOST_TEST_MESSAGE("refused: " << why.what());
      ++refused;
    }
  }
  BOOST_TEST(wide <= ledgers / 60);  // two of the 120
  BOOST_TEST(refused <= ledgers / 60);
}

// Where docs/privacy.md says that brackets are narrow.
BOOST_AUTO_TEST_CASE(brackets_are_narrow_where_they_are_said_to_be) {
  std::size_t number = 0;
  for (const double q : {1.0, .1, .01, 1e-3, 1e-4}) {
    for (const double noise : {.5, 1.0, 4.0}) {
      for (const std::uint64_t steps : {std::uint64_t{1000}, std::uint64_t{1'000'000}}) {
        for (const double at : {1e-5, 1e-9, 1e-15}) {
          if (q < 1e-3 && at < 1e-9) continue;
          if (number++ % 5 >= 2 && !is_long_tier()) continue;  // all values of each
          const bracket got = run(q, noise, steps).bracket(delta{at});
          BOOST_TEST(narrow(got),
                     q << " " << noise << " " << steps << " " << at << ": " << got.lower << " " << got.upper);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(more_steps_more_records_and_less_noise_cost_more) {
  const delta at{1e-6};
  bracket before{0, 0};
  const auto grows = [&](const bracket& got) {
    BOOST_TEST(got.upper >= before.lower);  // what can be said of brackets
    BOOST_TEST(got.upper > before.upper * 0.999);
    before = got;
  };
  for (const std::uint64_t steps : {10U, 20U, 100U, 101U, 1000U, 5000U, 5050U, 20000U})
    grows(run(.01, 1, steps).bracket(at));
  before = {0, 0};
  for (const double q : {.001, .00101, .002, .01, .1, .5, .9, .999, 1.0}) grows(run(q, 1.5, 300).bracket(at));
  before = {0, 0};
  for (const double noise : {50.0, 20.0, 5.0, 2.0, 1.99, 1.0, .7, .5, .3}) grows(run(.01, noise, 300).bracket(at));
  // sampling everybody but a few is nearly no sampling
  const double all = run(1, 2, 50).bracket(at).upper;
  const double most = run(1 - 1e-9, 2, 50).bracket(at).upper;
  BOOST_TEST(std::abs(most / all - 1) < 2e-3);
  // a ledger in parts
  pld_accountant parts;
  parts.record({.01, 1}, 40);
  parts.record({.02, 2}, 5);
  parts.record({.01, 1}, 60);
  BOOST_TEST(parts.ledger().size() == 2U);
  BOOST_TEST(parts.ledger()[0].count == 100U);
  BOOST_TEST(parts.steps() == 105U);
  BOOST_TEST(parts.bracket(at).upper >= run(.01, 1, 100).bracket(at).lower);
}

BOOST_AUTO_TEST_CASE(small_deltas_are_relatively_right) {
  // delta of a Gaussian at epsilon, and of a run whose delta is 1e-15, there and back
  for (const double eps : {0.0, 0.5, 2.0, 6.0, 8.0}) {
    const bracket got = run(1, 1, 1).delta_bracket(pergrad::epsilon{eps});
    const long double exact = oracle::gaussian(1, eps);
    BOOST_TEST(got.lower <= exact);
    BOOST_TEST(got.upper >= exact);
    BOOST_TEST(got.upper / got.lower < 1.02, eps << ": " << got.lower << " " << got.upper);
  }
  for (const double at : {1e-5, 1e-11, 1e-15, 1e-25}) {
    const pld_accountant accountant = run(.01, 1, 1000);
    const bracket epsilons = accountant.bracket(delta{at});
    BOOST_TEST(narrow(epsilons));
    BOOST_TEST(accountant.delta_bracket(pergrad::epsilon{epsilons.lower}).upper >= at);
    BOOST_TEST(accountant.delta_bracket(pergrad::epsilon{epsilons.upper}).lower <= at);
    BOOST_TEST(accountant.delta_bracket(pergrad::epsilon{epsilons.upper}).upper <= at * 1.1);
  }
}

BOOST_AUTO_TEST_CASE(edges_have_a_bracket_or_a_reason) {
  const std::vector<double> qs{0, 1e-300, 1e-9, 1e-4, .5, 1 - 1e-16, 1};
  const std::vector<double> noises{0, 1e-300, .03, .05, .3, 1e4, 1e30, 1e300};
  const std::vector<std::uint64_t> counts{0, 1, 1'000'000'000, std::numeric_limits<std::uint64_t>::max()};
  const std::vector<double> deltas{1e-300, 1e-12, .5, 1 - 1e-15};
  // In the short tier a seventh of them, with all values of each.
  const std::size_t every = is_long_tier() ? 1 : 7;
  std::size_t number = 0;
  int cases = 0;
  int answers = 0;
  for (const double q : qs) {
    for (const double noise : noises) {
      for (const std::uint64_t count : counts) {
        const double at = deltas[number % deltas.size()];
        if (number++ % every != 0) continue;
        ++cases;
        const pld_accountant accountant = run(q, noise, count);
        try {
          const bracket got = accountant.bracket(delta{at});
          ++answers;
          BOOST_TEST(got.lower >= 0, q << " " << noise << " " << count << " " << at);
          BOOST_TEST(got.upper >= got.lower, q << " " << noise << " " << count << " " << at);
          BOOST_TEST(got.upper < std::numeric_limits<double>::infinity());
        } catch (const accounting_refused& why) {
          BOOST_TEST(std::string_view{why.what()}.starts_with("pergrad: pld_accountant: "));
        }
        try {
          const bracket got = accountant.delta_bracket(pergrad::epsilon{1});
          BOOST_TEST(got.lower >= 0);
          BOOST_TEST(got.upper >= got.lower,
                     q << " " << noise << " " << count << " delta " << got.lower << " " << got.upper);
          BOOST_TEST(got.upper <= 1);
        } catch (const accounting_refused&) {
        }
      }
    }
  }
  BOOST_TEST(answers > cases / 2);
}

// Of little noise no grid reaches the deltas that nobody asked for; the total variation is a bound in any case.
BOOST_AUTO_TEST_CASE(little_noise_has_a_delta) {
  for (const double noise : {.035, .06, .07, .13}) {
    const pld_accountant accountant = run(1e-4, noise, 10);
    const bracket at_one = accountant.delta_bracket(pergrad::epsilon{1});
    BOOST_TEST(at_one.upper <= 1.0001e-3);  // that one of ten steps draws the record
    BOOST_TEST(at_one.upper >= at_one.lower);
    BOOST_TEST(accountant.advantage() <= 1.0001e-3);
    BOOST_TEST(accountant.true_positive_rate(0) <= 1.0001e-3);
    pergrad::privacy_accountant guard;
    for (int step = 0; step < 10; ++step) guard.spend({1e-4, noise});
    BOOST_TEST(guard.advantage() <= 1.0001e-3);
  }
}

BOOST_AUTO_TEST_CASE(long_runs_keep_to_memory) {
  for (const double q : {1e-4, 1e-3, 1e-2}) {
    for (const double noise : {.6, 1.0, 4.0}) {
      const std::vector<rdp_accountant::entry> ledger{{{q, noise}, 50000}};
      pergrad::detail::pld_engine<> engine{ledger};
      BOOST_TEST(narrow(engine.epsilon(1e-6)), q << " " << noise);
      BOOST_TEST(engine.bytes() <= 64'000'000U);
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_costs_nothing_and_wrong_entries_throw) {
  const pld_accountant empty;
  BOOST_TEST(empty.epsilon(delta{1e-9}) == 0.0);
  BOOST_TEST(empty.delta(pergrad::epsilon{0}) == 0.0);
  BOOST_TEST(run(0, 1, 100).epsilon(delta{1e-9}) == 0.0);
  BOOST_TEST(run(1, 1, 0).epsilon(delta{1e-9}) == 0.0);
  BOOST_TEST(run(1e-6, .3, 1).epsilon(delta{1e-5}) == 0.0);  // no two results differ more often than that
  pld_accountant accountant = run(.1, 1, 5);
  BOOST_TEST(accountant.delta(pergrad::epsilon{std::numeric_limits<double>::infinity()}) == 0.0);
  BOOST_CHECK_THROW(accountant.record({1.5, 1}), std::invalid_argument);
  BOOST_CHECK_THROW(accountant.record({.1, -1}), std::invalid_argument);
  BOOST_CHECK_THROW(accountant.record({.1, 1}, std::numeric_limits<std::uint64_t>::max()), std::overflow_error);
  BOOST_TEST(accountant.steps() == 5U);
  BOOST_CHECK_THROW(static_cast<void>(run(.1, 0, 1).epsilon(delta{1e-5})), accounting_refused);
}

namespace {

struct requirement {
  int runs;
  bool timed;  ///< by the processor's time: other programs may be running
};
/// Many runs and their time in the long tier.
requirement asked() { return is_long_tier() ? requirement{512, true} : requirement{24, false}; }
/// A time is kept to on average, and by no run is it exceeded twofold: other programs and slow machines count.
void check_times(const std::vector<double>& seconds, double most) {
  double sum = 0;
  for (const double each : seconds) sum += each;
  BOOST_TEST(sum / static_cast<double>(seconds.size()) <= most);
  BOOST_TEST(*std::max_element(seconds.begin(), seconds.end()) <= 2 * most);
}

}  // namespace

// 50,000 steps: a bracket within 1e-3 (1e-4 absolutely), 64 MB and 0.2 s, also where records are drawn hardly ever and
// delta is 1e-15.
BOOST_AUTO_TEST_CASE(random_runs_have_narrow_brackets) {
  const requirement here = asked();
  std::mt19937_64 bits{41};
  const auto random = [&](double from, double to) {
    return from * std::pow(to / from, static_cast<double>(bits() >> 11U) * 0x1p-53);
  };
  std::vector<double> seconds;
  for (int i = 0; i < here.runs; ++i) {
    const double q = random(1e-6, 1);
    const double noise = random(0.4, 8);
    const double at = random(1e-15, 1e-4);
    const std::vector<rdp_accountant::entry> ledger{{{q, noise}, 50'000}};
    bracket got{};
    std::size_t bytes = 0;
    seconds.push_back(processor_seconds(here.timed ? 0.2 : 1e300, [&] {
      pergrad::detail::pld_engine<> engine{ledger};
      got = engine.epsilon(at);
      bytes = engine.bytes();
    }));
    BOOST_TEST(narrow(got), q << " " << noise << " " << at << ": " << got.lower << " " << got.upper);
    BOOST_TEST(bytes <= 64'000'000U);
  }
  if (times_count && here.timed) check_times(seconds, 0.2);
}

// The same of up to a billion steps, but for the time: 1 s.
BOOST_AUTO_TEST_CASE(random_runs_of_any_length_have_narrow_brackets) {
  const requirement here = asked();
  std::mt19937_64 bits{47};
  const auto random = [&](double from, double to) {
    return from * std::pow(to / from, static_cast<double>(bits() >> 11U) * 0x1p-53);
  };
  std::vector<double> seconds;
  for (int i = 0; i < here.runs / 2; ++i) {
    const double q = random(1e-6, 1);
    const double noise = random(0.4, 8);
    const double at = random(1e-15, 1e-4);
    const auto steps = static_cast<std::uint64_t>(random(1e5, 1e9));
    rdp_accountant rdp;
    rdp.record({q, noise}, steps);
    bracket got{};
    std::size_t bytes = 0;
    seconds.push_back(processor_seconds(here.timed ? 1.0 : 1e300, [&] {
      pergrad::detail::pld_engine<> engine{rdp.ledger()};
      got = engine.epsilon(at);
      bytes = engine.bytes();
    }));
    BOOST_TEST(narrow(got), q << " " << noise << " " << at << " " << steps << ": " << got.lower << " " << got.upper);
    BOOST_TEST(got.lower <= rdp.epsilon(delta{at}));
    BOOST_TEST(bytes <= 64'000'000U);
  }
  if (times_count && here.timed) check_times(seconds, 1);
}

// Very long runs are in blocks; where q is small and noise large, the central limit theorem is what they come to.
BOOST_AUTO_TEST_CASE(long_runs_come_to_the_limit) {
  for (const std::uint64_t steps :
       {std::uint64_t{1'000'003}, std::uint64_t{50'000'000}, std::uint64_t{1'000'000'000}}) {
    const double q = 0.5 / std::sqrt(static_cast<double>(steps));
    const std::vector<rdp_accountant::entry> ledger{{{q, 3}, steps}};
    const double limit = pergrad::gdp_epsilon(ledger, delta{1e-6}).value();
    pergrad::detail::pld_engine<> engine{ledger};
    const bracket got = engine.epsilon(1e-6);
    BOOST_TEST(engine.bytes() <= 64'000'000U);
    BOOST_TEST(got.lower <= limit * (1 + 2e-3), steps << ": " << got.lower << " " << got.upper << " for " << limit);
    BOOST_TEST(got.upper >= limit * (1 - 2e-3), steps << ": " << got.lower << " " << got.upper << " for " << limit);
    BOOST_TEST(narrow(got), steps << ": " << got.lower << " " << got.upper);
  }
}

BOOST_AUTO_TEST_SUITE_END()
