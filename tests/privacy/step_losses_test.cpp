// SPDX-License-Identifier: Apache-2.0
// tests/privacy/step_losses_test.cpp - losses of samplers' steps: grids against closed forms, bounds against mechanisms
// that are written out record by record, and public values.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <pergrad/privacy/accounting/event_costs.hpp>
#include <pergrad/privacy/accounting/pld_engine.hpp>
#include <pergrad/privacy/accounting/step_losses.hpp>

#include "pld_oracle.hpp"

BOOST_AUTO_TEST_SUITE(privacy_step_losses)

namespace {

namespace d = pergrad::detail;
using pergrad::bracket;
using pergrad::lower;
using pergrad::neighbouring;
using pergrad::pld;
using pergrad::pld_side;
using pergrad::upper;

/// An event for tests: whatever makes losses.
struct test_event {
  std::function<d::step_losses()> make;
};
d::step_losses losses_of(const test_event& event) { return event.make(); }
struct test_entry {
  test_event event;
  std::uint64_t count;
};

bracket epsilon(const std::vector<test_entry>& ledger, double delta) {
  d::pld_engine<> engine{ledger};
  const bracket got = engine.epsilon(delta);
  BOOST_TEST(engine.bytes() <= 64'000'000U);
  return got;
}
bracket epsilon(const std::function<d::step_losses()>& make, std::uint64_t count, double delta) {
  return epsilon(std::vector<test_entry>{{{make}, count}}, delta);
}
bool narrow(const bracket& of) { return of.upper - of.lower <= std::max(1e-3 * of.upper, 1e-4); }

struct shape {
  double q;
  double noise;
  double spacing;
};
const std::vector<shape> shapes{{0.01, 1, 1e-3},   {0.3, 0.7, 0.02},  {0.5, 3, 0.01},   {1e-3, 0.5, 1e-3},
                                {1e-5, 0.4, 0.01}, {0.999, 1, 0.01},  {1e-9, 1, 1e-10}, {0.2, 100, 1e-4},
                                {0.05, 0.2, 0.1},  {0.9999, 0.3, 0.1}};

using stick = std::function<long double(long double)>;

template <pld_side Side>
long double violation(const pld<Side>& bound, const stick& exact_at, bool weaken) {
  long double worst = 0;
  const double rounding = (2.0 * static_cast<double>(bound.masses.size()) + 40) * 0x1p-53;
  const std::size_t step = std::max<std::size_t>(1, bound.masses.size() / 60);
  for (std::size_t i = 0; i + 1 < bound.masses.size(); i += step) {
    for (const double part : {0.0, 0.25, 0.5, 0.9}) {
      const double eps = bound.loss(i) + part * bound.spacing;
      const long double exact = exact_at(eps);
      const long double floor = 1e-18L * (1 + std::exp(static_cast<long double>(eps)));
      const long double got = bound.delta(eps + (weaken ? bound.spacing / 64 : 0.0));
      const long double beyond = Side == upper ? exact - got : got - exact;
      worst = std::max(worst, (beyond - rounding * got - floor) / std::max(std::abs(exact), floor));
    }
  }
  return worst;
}

d::discrete_step grid(d::step_losses losses, double spacing, double cap = d::infinity) {
  BOOST_TEST_REQUIRE(losses.parts.at(0).source->reach(1e-18));
  return losses.parts[0].source->on_grid(d::coarse_spacing(spacing), cap);
}

}  // namespace

BOOST_AUTO_TEST_CASE(replacing_in_poisson_batches_lies_between_its_grids) {
  int found = 0;
  for (const shape& of : shapes) {
    const d::discrete_step made = grid(d::poisson_replace_losses(of.q, of.noise), of.spacing);
    const auto exact = [&](long double eps) { return oracle::replaced(of.q, of.noise, eps); };
    BOOST_TEST(violation(made.remove, exact, false) <= 0, of.q << " " << of.noise << " upper");
    BOOST_TEST(violation(made.add, exact, false) <= 0, of.q << " " << of.noise << " upper, the other way");
    BOOST_TEST(violation(made.remove_below, exact, false) <= 0, of.q << " " << of.noise << " lower");
    found += violation(made.remove, exact, true) > 1e-9L ? 1 : 0;  // losses a 64th of the spacing too low
    for (std::size_t i = 3; i + 3 < made.remove.masses.size(); i += 1 + made.remove.masses.size() / 50) {
      const double eps = made.remove.loss(i);
      const auto at = static_cast<double>(exact(eps));
      if (at > 1e-12) BOOST_TEST(std::abs(made.remove.delta(eps) / at - 1) < 1e-7 + 1e-17 / at);
    }
    // Cut off at both ends, at about half of the highest loss: what is beyond counts as one loss.
    const double cap = made.remove.loss(made.remove.masses.size() * 3 / 4);
    const d::discrete_step cut = grid(d::poisson_replace_losses(of.q, of.noise), of.spacing, cap);
    BOOST_TEST(cut.remove.masses.size() < made.remove.masses.size() * 2 / 3);
    BOOST_TEST(violation(cut.remove, exact, false) <= 0, of.q << " " << of.noise << " upper, cut");
    BOOST_TEST(violation(cut.add, exact, false) <= 0, of.q << " " << of.noise << " upper, the other way, cut");
    BOOST_TEST(violation(cut.remove_below, exact, false) <= 0, of.q << " " << of.noise << " lower, cut");
    BOOST_TEST(cut.remove.delta(cap) <= cut.add.delta(cap) * (1 + 1e-9) + 1e-15);
    BOOST_TEST(cut.add.delta(cap) <= cut.remove.delta(cap) * (1 + 1e-9) + 1e-15);
  }
  BOOST_TEST(found == static_cast<int>(shapes.size()));
}

// Kinds that are their own mirror image beside others that are not.
BOOST_AUTO_TEST_CASE(replacing_beside_other_releases) {
  struct row {
    double q, noise;
    std::uint64_t steps;
    double gaussian, delta;
  };
  for (const row& each :
       {row{1.7279e-5, .31074, 2, 3.02757, 3.2e-8}, row{1e-4, .6, 1000, 2, 1e-6}, row{.02, 1.1, 500, 5, 1e-5}}) {
    const bracket found = epsilon({{{[&] { return d::poisson_replace_losses(each.q, each.noise); }}, each.steps},
                                   {{[&] { return d::poisson_losses(1, each.gaussian); }}, 1}},
                                  each.delta);
    BOOST_TEST(narrow(found), each.q << ": " << found.lower << " " << found.upper);
    BOOST_TEST(found.upper >=
               epsilon([&] { return d::poisson_replace_losses(each.q, each.noise); }, each.steps, each.delta).lower);
  }
  // At epsilon 0 the first kind alone has a hockey stick of 0.354357 at least.
  const std::vector<test_entry> ledger{{{[] { return d::poisson_replace_losses(1e-5, .4); }}, 10'000'000},
                                       {{[] { return d::poisson_losses(1e-6, .5); }}, 10'000'000}};
  d::pld_engine<> engine{ledger};
  BOOST_TEST(engine.true_positive_rate(.3225) >= .3225 + .354357);
}

BOOST_AUTO_TEST_CASE(both_ways_lie_under_their_grid) {
  int found = 0;
  for (const shape& of : shapes) {
    const d::discrete_step made = grid(d::fixed_size_losses(of.q, 2 * of.noise), of.spacing);
    const auto exact = [&](long double eps) { return oracle::one_step(of.q, of.noise, eps, eps >= 0); };
    BOOST_TEST(violation(made.remove, exact, false) <= 0, of.q << " " << of.noise);
    BOOST_TEST(violation(made.add, exact, false) <= 0, of.q << " " << of.noise);
    BOOST_TEST(violation(
                   made.remove_below, [&](long double eps) { return oracle::one_step(of.q, of.noise, eps, true); },
                   false) <= 0);
    found += violation(made.remove, exact, true) > 1e-9L ? 1 : 0;
    for (std::size_t i = 3; i + 3 < made.remove.masses.size(); i += 1 + made.remove.masses.size() / 50) {
      const double eps = made.remove.loss(i);
      const auto at = static_cast<double>(exact(eps));
      if (at > 1e-12) BOOST_TEST(std::abs(made.remove.delta(eps) / at - 1) < 1e-7 + 1e-17 / at);
    }
  }
  BOOST_TEST(found == static_cast<int>(shapes.size()));
}

BOOST_AUTO_TEST_CASE(public_values_of_replacing) {
  // google/differential-privacy b5b0286, privacy_loss_mechanism_test.py:887-919
  struct row {
    double q;
    double noise;
    double epsilon;
    double delta;
  };
  for (const row& each : {row{.8, 2, 1, 0.05808665654484252}, row{.7, 2.0 / 3, 1, 0.4013057526509164},
                          row{.3, 2, 2, 2.4770380148941894e-09}}) {
    BOOST_TEST(std::abs(oracle::replaced(each.q, each.noise, each.epsilon) - each.delta) < 1e-12L);
    const std::vector<test_entry> ledger{{{[&] { return d::poisson_replace_losses(each.q, each.noise); }}, 1}};
    const bracket got = d::pld_engine<>{ledger}.delta(each.epsilon);
    BOOST_TEST(got.lower <= each.delta * (1 + 1e-7));
    BOOST_TEST(got.upper >= each.delta * (1 - 1e-7));
    BOOST_TEST(got.upper / got.lower < 1.02);
  }
  // whole runs: the same library's PLDs of REPLACE_ONE, rounded; and what it says of a pair that fixed batches have
  struct whole {
    double q;
    double noise;
    std::uint64_t steps;
    double delta;
    double poisson;
    double fixed;
  };
  for (const whole& each : {whole{.001, .6, 1000, 1e-5, 1.459, 18.14}, whole{.001, .8, 10000, 1e-6, 1.325, 15.25},
                            whole{.01, 1, 1000, 1e-5, 2.843, 13.36}, whole{.004, 1.1, 14000, 1e-5, 3.910, 13.73},
                            whole{.04, 1.5, 2250, 1e-5, 13.49, 25.48}}) {
    const bracket poisson =
        epsilon([&] { return d::poisson_replace_losses(each.q, each.noise); }, each.steps, each.delta);
    BOOST_TEST(poisson.lower < each.poisson * (1 + 1e-3));
    BOOST_TEST(poisson.upper > each.poisson * (1 - 1e-3));
    BOOST_TEST(narrow(poisson));
    const bracket fixed = epsilon([&] { return d::fixed_size_losses(each.q, each.noise); }, each.steps, each.delta);
    BOOST_TEST(std::abs(fixed.lower / each.fixed - 1) < 2e-3, each.q << ": " << fixed.lower << " " << fixed.upper);
    BOOST_TEST(fixed.upper >= fixed.lower);
    BOOST_TEST(fixed.upper < 1.5 * fixed.lower);
  }
}

namespace {

/// What a step releases, as a mixture of Gaussians on a line: gradients are numbers in [-1, 1].
struct mixture {
  std::vector<double> means;
  std::vector<double> weights;
  void add(double mean, double weight) {
    means.push_back(mean);
    weights.push_back(weight);
  }
};

/// The batch of every outcome of sampling; batches are bit masks.
using batches = std::vector<std::pair<unsigned, double>>;

batches truncated(std::size_t records, double q, std::size_t capacity) {
  batches all;
  for (unsigned drawn = 0; drawn < 1U << records; ++drawn) {
    const auto count = static_cast<std::size_t>(std::popcount(drawn));
    const double weight =
        std::pow(q, static_cast<double>(count)) * std::pow(1 - q, static_cast<double>(records - count));
    double sets = 0;
    for (unsigned kept = 0; kept <= drawn; ++kept) {
      if ((kept & ~drawn) == 0 && static_cast<std::size_t>(std::popcount(kept)) == std::min(count, capacity)) ++sets;
    }
    for (unsigned kept = 0; kept <= drawn; ++kept) {
      if ((kept & ~drawn) == 0 && static_cast<std::size_t>(std::popcount(kept)) == std::min(count, capacity)) {
        all.push_back({kept, weight / sets});
      }
    }
  }
  return all;
}
batches of_fixed_size(std::size_t records, std::size_t size) {
  batches all;
  for (unsigned batch = 0; batch < 1U << records; ++batch) {
    if (static_cast<std::size_t>(std::popcount(batch)) == size) all.push_back({batch, 1});
  }
  for (auto& each : all) each.second /= static_cast<double>(all.size());
  return all;
}
mixture released(const batches& all, const std::vector<double>& gradients) {
  mixture made;
  for (const auto& [batch, weight] : all) {
    double sum = 0;
    for (std::size_t i = 0; i < gradients.size(); ++i) sum += (batch >> i & 1U) != 0 ? gradients[i] : 0.0;
    made.add(sum, weight);
  }
  return made;
}

/// The hockey stick of two mixtures, by summation over the line; errs by 1e-6.
double hockey_stick(const mixture& p, const mixture& q, double noise, double eps) {
  const auto density = [&](const mixture& of, double x) {
    double sum = 0;
    for (std::size_t i = 0; i < of.means.size(); ++i) {
      sum += of.weights[i] * std::exp(-(x - of.means[i]) * (x - of.means[i]) / (2 * noise * noise));
    }
    return sum;
  };
  const double width = noise / 200;
  double sum = 0;
  for (double x = -4 - 8 * noise; x < 4 + 8 * noise; x += width) {
    sum += std::max(0.0, density(p, x) - std::exp(eps) * density(q, x));
  }
  return sum * width / (noise * std::sqrt(2 * std::acos(-1.0)));
}

using two_sets = std::pair<mixture, mixture>;

/// The largest hockey stick of what `make` releases of two neighbours: of the others' gradients, that of the record,
/// and that of the one in its place.
double largest(std::size_t others, double noise, double eps,
               const std::function<two_sets(const std::vector<double>&, double, double)>& make) {
  constexpr std::array<double, 3> values{-1, 0.2, 1};
  std::size_t cases = 9;
  for (std::size_t i = 0; i < others; ++i) cases *= 3;
  double most = 0;
  for (std::size_t which = 0; which < cases; ++which) {
    std::vector<double> gradients;
    std::size_t rest = which;
    for (std::size_t i = 0; i < others; ++i, rest /= 3) gradients.push_back(values[rest % 3]);
    const auto [p, q] = make(gradients, values[rest % 3], values[rest / 3]);
    most = std::max(most, hockey_stick(p, q, noise, eps));
  }
  return most;
}

std::vector<double> with(std::vector<double> gradients, double last) {
  gradients.push_back(last);
  return gradients;
}

}  // namespace

BOOST_AUTO_TEST_CASE(mechanisms_written_out_keep_to_their_bounds) {
  const double noise = 0.8;
  int weaker = 0;
  for (const double eps : {-1.0, -0.2, 0.0, 0.3, 1.0, 2.5}) {
    {  // Poisson sampling, replacing
      const double q = 0.3;
      const batches all = truncated(3, q, 3);
      const double found =
          largest(2, noise, eps, [&](const std::vector<double>& others, double record, double other) -> two_sets {
            return {released(all, with(others, record)), released(all, with(others, other))};
          });
      const double bound = grid(d::poisson_replace_losses(q, noise), 0.01).remove.delta(eps);
      BOOST_TEST(found <= bound + 1e-6, eps << " Poisson: " << found << " " << bound);
    }
    for (const std::size_t size : {1U, 2U}) {  // fixed size, replacing
      const batches all = of_fixed_size(3, size);
      const double found =
          largest(2, noise, eps, [&](const std::vector<double>& others, double record, double other) -> two_sets {
            return {released(all, with(others, record)), released(all, with(others, other))};
          });
      const double bound = grid(d::fixed_size_losses(static_cast<double>(size) / 3, noise), 0.01).remove.delta(eps);
      BOOST_TEST(found <= bound + 1e-6, eps << " fixed: " << found << " " << bound);
      BOOST_TEST(found >= 0.95 * bound, eps << " fixed: " << found << " " << bound);  // all others alike: attained
    }
    for (const std::size_t capacity : {1U, 2U}) {
      const double q = 0.4;
      const batches all = truncated(3, q, capacity);
      const batches fewer = truncated(2, q, capacity);
      for (const bool removes : {true, false}) {
        const double found =
            largest(2, noise, eps, [&](const std::vector<double>& others, double record, double) -> two_sets {
              two_sets made{released(all, with(others, record)), released(fewer, others)};
              if (!removes) std::swap(made.first, made.second);
              return made;
            });
        const d::discrete_step made = grid(
            pergrad::losses_of(pergrad::truncated_gaussian_event{q, noise, static_cast<double>(capacity), 3}), 0.01);
        const double bound = (removes ? made.remove : made.add).delta(eps);
        BOOST_TEST(found <= bound + 1e-6, eps << " truncated: " << found << " " << bound);
      }
      const double found =
          largest(2, noise, eps, [&](const std::vector<double>& others, double record, double other) -> two_sets {
            return {released(all, with(others, record)), released(all, with(others, other))};
          });
      const d::discrete_step made = grid(
          pergrad::losses_of(pergrad::replace_one_truncated_gaussian_event{q, noise, static_cast<double>(capacity), 3}),
          0.01);
      BOOST_TEST(found <= made.remove.delta(eps) + 1e-6, eps << " truncated, replacing: " << found);
      BOOST_TEST(found <= made.add.delta(eps) + 1e-6, eps << " truncated, replacing: " << found);
      // Paying for records that are added and removed is too little.
      const d::discrete_step weak =
          grid(pergrad::losses_of(pergrad::truncated_gaussian_event{q, noise, static_cast<double>(capacity), 3}), 0.01);
      weaker += std::max(weak.remove.delta(eps), weak.add.delta(eps)) < found - 1e-6 ? 1 : 0;
    }
  }
  BOOST_TEST(weaker >= 2);
}

BOOST_AUTO_TEST_CASE(tails_of_binomials_are_bracketed) {
  for (const std::uint64_t n : {1U, 7U, 40U, 1000U}) {
    for (const double q : {1e-3, .1, .5, .97}) {
      std::vector<long double> mass{1};
      for (std::uint64_t i = 0; i < n; ++i) {
        mass.push_back(0);
        for (std::size_t k = mass.size(); k-- > 0;) {
          mass[k] = mass[k] * (1 - static_cast<long double>(q)) + (k > 0 ? mass[k - 1] * q : 0.0L);
        }
      }
      long double above = 0;
      for (std::uint64_t k = n + 2; k-- > 0;) {
        if (k <= n) above += mass[k];
        const d::probability_bounds got = d::binomial_tail(n, q, k);
        BOOST_TEST(got.least <= above * (1 + 1e-15L) + 1e-300L);
        BOOST_TEST(got.most >= above * (1 - 1e-15L));
        if (above > 1e-250L && got.least < 0.99) BOOST_TEST(got.most / got.least < 1 + 1e-9);
      }
    }
  }
  const d::probability_bounds large = d::binomial_tail(1'000'000'000, 1e-5, 10'400);
  BOOST_TEST(large.most / large.least < 1 + 1e-6);
  BOOST_TEST(large.most < 4e-5);  // a normal one's beyond 4 deviations is 3.2e-5; this one's tail is a bit heavier
  BOOST_TEST(large.least > 3e-5);
}

BOOST_AUTO_TEST_CASE(truncated_batches_cost_what_is_known) {
  // google/differential-privacy b5b0286, pld_privacy_accountant_test.py:391: three steps of 4 records and two of 3,
  // q = 1/2, capacity 2, noise 1: 17.904330. That library counts a truncated batch as `replaced` with twice the
  // gradient, where the record that comes in and the one that goes are bounded by themselves.
  const auto as_there = [](double records) {
    const bool four = records == 4;
    const double p = four ? .5 : .25;                                     // Pr[Bin(n - 1, 1/2) >= 2]
    const double kept = (four ? 5.0 / 16 : 1.0 / 8) * 2 / (records * p);  // Pr[Bin(n, 1/2) > 2]
    d::step_losses made;
    made.parts.push_back(
        {std::make_unique<d::mixture_source<>>(std::vector<d::step_part>{{1 - p, d::pair_kind::sampled, {.5, 1, 2, 0}},
                                                                         {p, d::pair_kind::replaced, {kept, 2, 2, 0}}},
                                               d::step_part{1, d::pair_kind::sampled, {.5, 1, 2, 0}}),
         1});
    return made;
  };
  const bracket there = epsilon({{{[&] { return as_there(4); }}, 3}, {{[&] { return as_there(3); }}, 2}}, 1e-6);
  BOOST_TEST(there.upper >= 17.904330 * (1 - 1e-4));  // its grid's points are 1e-4 apart, and it rounds up
  BOOST_TEST(there.upper <= 17.904330 * (1 + 1e-3));
  const auto own = [](std::uint64_t records) {
    return losses_of(pergrad::truncated_gaussian_event{.5, 1, 2, static_cast<double>(records)});
  };
  const bracket here = epsilon({{{[&] { return own(4); }}, 3}, {{[&] { return own(3); }}, 2}}, 1e-6);
  // It holds for any number of records up to 4 and 3: a record that is kept counts as one of probability q, not q B/(B
  // + 1).
  BOOST_TEST(here.upper < 1.11 * 17.904330);
  BOOST_TEST(here.upper > here.lower);
  // 50,000 records, q = .01, noise 1, 1000 steps, delta 1e-5; that library says 1.82824, 1.838, 3.30, 6.73
  struct row {
    std::uint64_t capacity;
    double most;
  };
  double before = 1.8282;
  for (const row& each : {row{700, 1.8300}, row{600, 1.838}, row{570, 3.306}, row{530, 6.73}}) {
    const bracket got = epsilon(
        [&] {
          return losses_of(pergrad::truncated_gaussian_event{.01, 1, static_cast<double>(each.capacity), 50001});
        },
        1000, 1e-5);
    BOOST_TEST(got.upper >= before * (1 - 1e-9));
    BOOST_TEST(got.upper <= each.most * 1.002, each.capacity << ": " << got.lower << " " << got.upper);
    before = got.upper;
  }
}

BOOST_AUTO_TEST_CASE(allocated_steps_lie_between_their_grids) {
  for (const int steps : {1, 2, 3}) {
    for (const double noise : {0.7, 1.5, 6.0}) {
      d::allocation_source<> source{static_cast<std::uint64_t>(steps), 1 / noise};
      BOOST_TEST_REQUIRE(source.reach(1e-15));
      const d::discrete_step made = source.on_grid(d::coarse_spacing(0.01 / noise), d::infinity);
      pld<upper> weak_remove = made.remove;
      pld<upper> weak_add = made.add;
      weak_remove.first -= pld<upper>::parts / 16;
      weak_add.first -= pld<upper>::parts / 16;
      pld<lower> weak_below = made.remove_below;
      weak_below.first += pld<lower>::parts / 2;
      int found = 0;
      for (const double eps : {-0.5 / noise, -0.1 / noise, 0.0, 0.013, 0.3 / noise, 1.0 / noise, 2.0 / noise}) {
        const long double removed = oracle::allocated(steps, noise, eps, true);
        const long double added = oracle::allocated(steps, noise, eps, false);
        // masses above the grid, and what the oracle rounds
        const long double more = 1e-13L + 1e-12L * removed;
        BOOST_TEST(made.remove.delta(eps) >= removed - more, steps << " " << noise << " " << eps);
        BOOST_TEST(made.remove.delta(eps) <= removed * (1 + 2e-3L) + 2e-6L, steps << " " << noise << " " << eps);
        BOOST_TEST(made.remove_below.delta(eps) <= removed + more, steps << " " << noise << " " << eps);
        BOOST_TEST(made.remove_below.delta(eps) >= removed * (1 - 4e-3L) - 2e-6L, steps << " " << noise << " " << eps);
        BOOST_TEST(made.add.delta(eps) >= added - more, steps << " " << noise << " " << eps);
        BOOST_TEST(made.add.delta(eps) <= added * (1 + 2e-3L) + 2e-6L, steps << " " << noise << " " << eps);
        found += weak_remove.delta(eps) < removed - more ? 1 : 0;
        found += weak_add.delta(eps) < added - more ? 1 : 0;
        found += weak_below.delta(eps) > removed + more ? 1 : 0;
      }
      BOOST_TEST(found >= 10, steps << " " << noise << ": " << found);
    }
  }
}

BOOST_AUTO_TEST_CASE(allocated_epochs_are_bracketed) {
  // One of two or three steps: exact. Spending all steps: a Gaussian.
  for (const int steps : {2, 3}) {
    const auto exact = [&](long double eps) {
      return std::max(oracle::allocated(steps, 1, eps, true), oracle::allocated(steps, 1, eps, false));
    };
    const bracket got = epsilon([&] { return d::allocation_losses(static_cast<std::uint64_t>(steps), 1, 1); }, 1, 1e-5);
    BOOST_TEST(exact(got.lower) >= 1e-5L);
    BOOST_TEST(exact(got.upper) <= 1e-5L);
    BOOST_TEST(narrow(got), got.lower << " " << got.upper);
  }
  const bracket all = epsilon([] { return d::allocation_losses(9, 9, 2); }, 4, 1e-5);
  const long double exact = oracle::solve([](long double eps) { return oracle::gaussian(2.0L / 6, eps); }, 1e-5L, 100);
  BOOST_TEST(all.lower <= exact);
  BOOST_TEST(all.upper >= exact);
  // Blocks of 3, 3 and 4 of ten steps; what is known of epochs is that Poisson sampling costs no less by much.
  for (const std::uint64_t times : {1U, 3U}) {
    const bracket epochs = epsilon([&] { return d::allocation_losses(10, times, 1.5); }, 5, 1e-6);
    const bracket poisson = epsilon([&] { return d::poisson_losses(static_cast<double>(times) / 10, 1.5); }, 50, 1e-6);
    if (times == 1) BOOST_TEST(narrow(epochs), epochs.lower << " " << epochs.upper);
    BOOST_TEST(epochs.upper < poisson.lower);
    BOOST_TEST(epochs.lower <= epochs.upper);
    BOOST_TEST(epochs.lower > 0.5 * poisson.upper);
  }
}

// Two of four steps, written out: the mean over all pairs of steps, by 200,000 draws of what is released.
BOOST_AUTO_TEST_CASE(allocated_sets_keep_to_their_bound) {
  constexpr double m = 0.8;
  constexpr int draws = 200'000;
  std::mt19937_64 bits{29};
  std::normal_distribution<double> normal;
  const std::vector<test_entry> ledger{{{[] { return d::allocation_losses(4, 2, 1 / m); }}, 1}};
  for (const double eps : {0.0, 0.5, 1.0}) {
    std::array<double, 2> sum{};
    std::array<double, 2> squares{};
    for (int i = 0; i < draws; ++i) {
      std::array<double, 4> r{};
      for (double& each : r) each = std::exp(m * normal(bits) - m * m / 2);
      double ratio = 0;
      for (int j = 0; j < 4; ++j) {
        for (int k = 0; k < j; ++k) ratio += r[static_cast<std::size_t>(j)] * r[static_cast<std::size_t>(k)] / 6;
      }
      const std::array<double, 2> of{std::max(0.0, ratio - std::exp(eps)), std::max(0.0, 1 - std::exp(eps) * ratio)};
      for (std::size_t way = 0; way < 2; ++way) sum[way] += of[way], squares[way] += of[way] * of[way];
    }
    const bracket bound = d::pld_engine<>{ledger}.delta(eps);
    for (std::size_t way = 0; way < 2; ++way) {
      const double mean = sum[way] / draws;
      const double deviation = std::sqrt((squares[way] / draws - mean * mean) / draws);
      BOOST_TEST(mean - 5 * deviation <= bound.upper, eps << ": " << mean << " above " << bound.upper);
      if (way == 0) BOOST_TEST(mean + 5 * deviation >= 0.9 * bound.upper, eps << ": " << mean << " " << bound.upper);
      if (way == 0) BOOST_TEST(mean + 5 * deviation >= bound.lower, eps << ": " << mean << " below " << bound.lower);
    }
  }
}

// One of 1000 steps, in both directions, by draws.
BOOST_AUTO_TEST_CASE(allocated_among_many_steps_is_what_draws_say) {
  constexpr double m = 1;
  constexpr int draws = 20'000;
  constexpr int steps = 1000;
  std::mt19937_64 bits{31};
  std::normal_distribution<float> normal;
  d::allocation_source<> source{steps, m};
  BOOST_TEST_REQUIRE(source.reach(1e-12));
  const d::discrete_step made = source.on_grid(d::coarse_spacing(1e-3), d::infinity);
  const std::array<double, 3> epsilons{-0.05, 0, 0.05};
  std::array<std::array<double, 6>, 3> sums{};
  for (int i = 0; i < draws; ++i) {
    double ratio = 0;
    for (int j = 0; j < steps; ++j) ratio += static_cast<double>(std::exp(static_cast<float>(m) * normal(bits)));
    ratio *= std::exp(-m * m / 2) / steps;
    for (std::size_t at = 0; at < 3; ++at) {
      const double grown = std::exp(epsilons[at]);
      const double removed = std::max(0.0, ratio - grown);
      const double added = std::max(0.0, 1 - grown * ratio);
      sums[at][0] += removed, sums[at][1] += removed * removed;
      sums[at][2] += added, sums[at][3] += added * added;
    }
  }
  for (std::size_t at = 0; at < 3; ++at) {
    const auto mean = [&](std::size_t i) { return sums[at][i] / draws; };
    const auto five = [&](std::size_t i) { return 5 * std::sqrt((mean(i + 1) - mean(i) * mean(i)) / draws); };
    BOOST_TEST(mean(0) - five(0) <= made.remove.delta(epsilons[at]));
    BOOST_TEST(mean(0) + five(0) >= made.remove_below.delta(epsilons[at]));
    BOOST_TEST(mean(0) + five(0) >= made.remove.delta(epsilons[at]) * (1 - 1e-3));
    BOOST_TEST(mean(2) - five(2) <= made.add.delta(epsilons[at]));
    BOOST_TEST(mean(2) + five(2) >= made.add.delta(epsilons[at]) * (1 - 1e-3));
  }
}

BOOST_AUTO_TEST_SUITE_END()
