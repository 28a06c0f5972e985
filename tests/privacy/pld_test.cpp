// SPDX-License-Identifier: Apache-2.0
// tests/privacy/pld_test.cpp - grids of single steps and their sums against closed forms; every payment is needed.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <pergrad/privacy/pld/pld_block.hpp>
#include <pergrad/privacy/pld/pld_composition.hpp>
#include <pergrad/privacy/pld/pld_rare.hpp>
#include <pergrad/privacy/pld/pld_step.hpp>

#include "pld_oracle.hpp"

BOOST_AUTO_TEST_SUITE(privacy_pld)

namespace {

namespace d = pergrad::detail;
using pergrad::lower;
using pergrad::pld;
using pergrad::pld_side;
using pergrad::upper;

struct shape {
  double q;
  double noise;
  double spacing;
  double deviations;
};

d::discrete_step grid(const shape& of) {
  const d::step_discretiser<> one{{of.q, 1 / of.noise, 2, of.deviations}};
  return one.on_grid(d::coarse_spacing(of.spacing));
}

/// Losses at which curves are compared: grid points and places between them.
template <pld_side Side>
std::vector<double> places(const pld<Side>& of) {
  std::vector<double> all;
  const std::size_t step = std::max<std::size_t>(1, of.masses.size() / 60);
  for (std::size_t i = 0; i + 1 < of.masses.size(); i += step) {
    for (const double part : {0.0, 0.25, 0.5, 0.9}) all.push_back(of.loss(i) + part * of.spacing);
  }
  return all;
}

/// How far a bound is on the wrong side of the truth, at worst, in units of the truth (and of 1e-18 of 1).
template <pld_side Side>
long double violation(const pld<Side>& bound, const shape& of, bool remove) {
  long double worst = 0;
  const double rounding = (2.0 * static_cast<double>(bound.masses.size()) + 40) * 0x1p-53;
  for (const double eps : places(bound)) {
    const long double exact = oracle::one_step(of.q, of.noise, eps, remove);
    const long double floor = 1e-18L * (1 + std::exp(static_cast<long double>(eps)));
    const long double got = bound.delta(eps);
    const long double beyond = Side == upper ? exact - got : got - exact;
    worst = std::max(worst, (beyond - rounding * got - floor) / std::max(std::abs(exact), floor));
  }
  return worst;
}

const std::vector<shape> shapes{
    {0.01, 1, 1e-3, 9},  {0.01, 1, 0.05, 9},   {0.3, 0.7, 0.02, 9},   {0.5, 3, 0.01, 9},   {1, 1, 0.02, 9},
    {1, 0.2, 0.1, 9},    {1e-3, 0.5, 1e-3, 9}, {1e-5, 0.4, 0.01, 9},  {0.999, 1, 0.01, 9}, {1e-9, 1, 1e-10, 9},
    {0.2, 100, 1e-4, 9}, {0.05, 0.07, 0.2, 9}, {0.02, 1, 0.002, 2.5}, {1, 2, 0.01, 2},
};

/// Ends of buckets whose losses are wrong by what their bounds allow: all by -1, 0 or 1 of it.
template <int Way>
struct shaken_pair : d::sampled_pair<> {
  using d::sampled_pair<>::sampled_pair;
  static inline double most = 0;
  [[nodiscard]] point point_at(double e) const noexcept {
    point made = d::sampled_pair<>::point_at(e);
    made.at = d::sampled_pair<>::point_at(e + Way * most).at;
    made.xi += most;
    return made;
  }
};

/// At worst, of buckets whose ends are wrong by `part` of the spacing.
template <int Way>
long double shaken_violation(const shape& of, double part) {
  const double h = d::coarse_spacing(of.spacing);
  shaken_pair<Way>::most = part * h;
  const d::discrete_step made =
      d::step_discretiser<shaken_pair<Way>>{{of.q, 1 / of.noise, 2, of.deviations}}.on_grid(h);
  return std::max(violation(made.remove, of, true), violation(made.add, of, false));
}

}  // namespace

BOOST_AUTO_TEST_CASE(transforms_err_less_than_their_bound) {
  std::mt19937_64 bits{3};
  for (const std::size_t n : {2U, 4U, 64U, 256U}) {
    const d::fourier_transform<> transform{n};
    std::vector<d::complex_number> x(n);
    long double weight = 0;
    for (d::complex_number& each : x) {
      each = {static_cast<double>(bits() >> 11U) * 0x1p-53, static_cast<double>(bits() >> 11U) * 0x1p-53 - 0.5};
      weight += std::hypot(static_cast<long double>(each.real), static_cast<long double>(each.imaginary));
    }
    std::vector<d::complex_number> y = x;
    transform.forward(y.data());
    long double worst = 0;
    long double squares = 0;
    long double norm = 0;
    std::size_t stages = 0;
    while (n >> stages > 1) ++stages;
    for (std::size_t place = 0; place < n; ++place) {
      std::size_t k = 0;  // of what stands at `place`
      for (std::size_t bit = 0; bit < stages; ++bit) k |= ((place >> bit) & 1U) << (stages - 1 - bit);
      long double real = 0;
      long double imaginary = 0;
      for (std::size_t j = 0; j < n; ++j) {
        const long double angle =
            -2 * std::acos(-1.0L) * static_cast<long double>(j * k % n) / static_cast<long double>(n);
        real += x[j].real * std::cos(angle) - x[j].imaginary * std::sin(angle);
        imaginary += x[j].real * std::sin(angle) + x[j].imaginary * std::cos(angle);
      }
      worst = std::max(worst, std::hypot(real - y[place].real, imaginary - y[place].imaginary));
      squares += std::pow(real - y[place].real, 2) + std::pow(imaginary - y[place].imaginary, 2);
      norm += real * real + imaginary * imaginary;  // n times that of the inputs
      std::size_t mirrored = 0;
      for (std::size_t bit = 0; bit < stages; ++bit) mirrored |= (((n - k) % n >> bit) & 1U) << (stages - 1 - bit);
      BOOST_TEST(transform.mirrored(place) == mirrored);
    }
    BOOST_TEST(worst <= transform.error() * weight);
    BOOST_TEST(std::sqrt(squares) <= transform.error_of_squares() * std::sqrt(norm));
    if (n > 4) BOOST_TEST(worst > 0);
    transform.backward(y.data());
    for (std::size_t j = 0; j < n; ++j) {
      BOOST_TEST(std::abs(y[j].real / static_cast<double>(n) - x[j].real) <=
                 2 * transform.error() * static_cast<double>(weight));
    }
  }
}

BOOST_AUTO_TEST_CASE(masses_of_intervals_are_right_to_what_they_say) {
  std::mt19937_64 bits{5};
  for (int i = 0; i < 20000; ++i) {
    const auto random = [&] { return static_cast<double>(bits() >> 11U) * 0x1p-53; };
    const double left = 60 * random() - 30;
    const double width = std::exp(-14 * random()) * 4;
    const double right = left + width;
    const d::interval_mass got = d::interval(left, right, right - left, 0.0);
    // 200 panels of Gauss' rule with two points, far from where it counts (the fourth derivative times width^4)
    long double exact = 0;
    const long double panel = (static_cast<long double>(right) - left) / 200;
    for (int k = 0; k < 200; ++k) {
      const long double middle = left + (k + 0.5L) * panel;
      for (const long double part : {-std::sqrt(0.6L), 0.0L, std::sqrt(0.6L)}) {
        const long double x = middle + part * panel / 2;
        exact += (part == 0 ? 8 : 5) * std::exp(-x * x / 2);
      }
    }
    exact *= panel / 18 / std::sqrt(2 * std::acos(-1.0L));
    const long double rule = std::pow((std::abs(left) + width + 3) * panel, 6) / 1000;
    BOOST_TEST_REQUIRE(std::abs(got.mass / exact - 1) <= got.error + rule + 1e-17L,
                       left << " " << width << ": " << got.mass << " for " << exact);
    BOOST_TEST_REQUIRE(got.error < 1e-10);
  }
}

BOOST_AUTO_TEST_CASE(one_step_lies_between_its_grids) {
  for (const shape& of : shapes) {
    const d::discrete_step made = grid(of);
    BOOST_TEST(violation(made.remove, of, true) <= 0, of.q << " " << of.noise << " remove, upper");
    BOOST_TEST(violation(made.remove_below, of, true) <= 0, of.q << " " << of.noise << " remove, lower");
    BOOST_TEST(violation(made.add, of, false) <= 0, of.q << " " << of.noise << " add, upper");
    for (const double mass : made.remove_below.masses) BOOST_TEST_REQUIRE(mass >= 0);
  }
}

BOOST_AUTO_TEST_CASE(random_steps_lie_between_their_grids) {
  std::mt19937_64 bits{7};
  const auto random = [&] { return static_cast<double>(bits() >> 11U) * 0x1p-53; };
  for (int i = 0; i < 150; ++i) {
    shape of{std::exp(-16 * random() * random()), std::exp(6.5 * random() - 2.7), 1, 5 + 5 * random()};
    const d::step_discretiser<> one{{of.q, 1 / of.noise, 2, of.deviations}};
    of.spacing = (one.highest_loss() - one.lowest_loss()) / (20 * std::exp(5 * random()));
    const d::discrete_step made = grid(of);
    BOOST_TEST(violation(made.remove, of, true) <= 0, of.q << " " << of.noise << " remove, upper");
    BOOST_TEST(violation(made.remove_below, of, true) <= 0, of.q << " " << of.noise << " remove, lower");
    BOOST_TEST(violation(made.add, of, false) <= 0, of.q << " " << of.noise << " add, upper");
  }
}

// A pair whose places are known no better than to a part of the spacing, or to several.
BOOST_AUTO_TEST_CASE(badly_rounded_places_stay_below_their_grids) {
  for (const shape& of : {shape{0.01, 1, 0.05, 9}, shape{0.3, 0.7, 0.02, 9}, shape{1, 1, 0.02, 9}}) {
    for (const double part : {1e-6, 0.01, 0.3, 0.9, 1.0, 1.5, 3.0, 20.0}) {
      BOOST_TEST(shaken_violation<-1>(of, part) <= 0, of.q << " by -" << part);
      BOOST_TEST(shaken_violation<0>(of, part) <= 0, of.q << " by 0 of " << part);
      BOOST_TEST(shaken_violation<1>(of, part) <= 0, of.q << " by " << part);
    }
  }
}

BOOST_AUTO_TEST_CASE(cut_grids_keep_their_side) {
  for (const shape& of : shapes) {
    const d::discrete_step made = grid(of);
    for (const double part : {0.2, 0.5, 0.8}) {
      const double most =
          made.remove.loss(0) + part * (made.remove.loss(made.remove.masses.size() - 1) - made.remove.loss(0));
      pld<upper> high = made.remove;
      high.cut(most);
      pld<lower> low = made.remove_below;
      low.cut(most);
      BOOST_TEST(high.loss(high.masses.size() - 1) <= most);
      BOOST_TEST(low.loss(low.masses.size() - 1) <= most);
      for (const double eps : places(made.remove)) {
        const double before = made.remove.delta(eps);
        BOOST_TEST(high.delta(eps) >= before * (1 - 1e-11));
        if (eps < most - made.remove.spacing) BOOST_TEST(high.delta(eps) <= before * (1 + 1e-9) + 1e-12);
        BOOST_TEST(low.delta(eps) <= made.remove_below.delta(eps) * (1 + 1e-11));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(connected_dots_are_on_the_curve) {
  for (const shape& of : shapes) {
    const d::discrete_step made = grid(of);
    for (std::size_t i = 3; i + 3 < made.remove.masses.size(); i += 1 + made.remove.masses.size() / 50) {
      if (of.deviations < 5) continue;  // what is cut off shows
      const double eps = made.remove.loss(i);
      const auto exact = static_cast<double>(oracle::one_step(of.q, of.noise, eps, true));
      if (exact > 1e-12)
        BOOST_TEST(std::abs(made.remove.delta(eps) / exact - 1) < 1e-7 + 1e-17 / exact,
                   of.q << " " << of.noise << " " << eps);
    }
  }
}

BOOST_AUTO_TEST_CASE(weaknesses_of_one_step_are_found) {
  int rounded_down = 0;
  int moved_down = 0;
  int not_paid = 0;
  int rounded_up = 0;
  int spread = 0;
  for (const shape& of : shapes) {
    const d::discrete_step made = grid(of);
    {
      pld<upper> weak = made.remove;
      weak.first -= pld<upper>::parts / 64;  // losses rounded down by a 64th of the spacing
      rounded_down += violation(weak, of, true) > 1e-9L ? 1 : 0;
    }
    {
      pld<upper> weak = made.remove;
      for (std::size_t i = weak.masses.size(); i-- > 1;) {
        const double moved = weak.masses[i] * 1e-3;
        weak.masses[i] -= moved;
        weak.masses[i - 1] += moved;
      }
      moved_down += violation(weak, of, true) > 1e-9L ? 1 : 0;
    }
    {
      pld<upper> weak = made.remove;
      weak.infinite = 0;
      not_paid += violation(weak, of, true) > 1e-9L ? 1 : 0;
    }
    {
      pld<lower> weak = made.remove_below;
      weak.first += pld<lower>::parts / 2;
      rounded_up += violation(weak, of, true) > 1e-9L ? 1 : 0;
    }
    {
      pld<lower> weak;  // the upper one's masses
      weak.spacing = made.remove.spacing;
      weak.first = made.remove.first;
      weak.masses = made.remove.masses;
      spread += violation(weak, of, true) > 1e-9L ? 1 : 0;
    }
  }
  const int all = static_cast<int>(shapes.size());
  BOOST_TEST(rounded_down >= all - 2);  // the grids that end early pay so much for it that nothing else shows
  BOOST_TEST(moved_down >= all - 3);
  BOOST_TEST(not_paid >= 2);  // the grids that end early
  BOOST_TEST(rounded_up == all);
  BOOST_TEST(spread >= all - 4);
}

namespace {

struct nothing_for_truncation : d::all_is_paid {
  static constexpr bool truncation = false;
};
struct nothing_for_rounding : d::all_is_paid {
  static constexpr bool rounding = false;
};
struct nothing_for_wrap_around : d::all_is_paid {
  static constexpr bool wrap_around = false;
};

template <class Pays>
struct sums {
  d::composed_pld<upper, Pays> above;
  d::composed_pld<lower, Pays> below;
};

template <class Pays = d::all_is_paid>
sums<Pays> compose(const d::discrete_step& step, std::uint64_t count, const d::transform_plan& plan) {
  sums<Pays> made;
  d::pld_composer<Pays> composer{plan.length};
  composer.compose(
      1,
      [&](std::size_t) {
        return d::counted_pld<upper>{&step.remove, count};
      },
      plan,
      [&](std::size_t) {
        return d::counted_pld<lower>{&step.remove_below, count};
      },
      plan, made.above, made.below);
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(gaussians_compose_to_one) {
  // 16 of noise 4, 10,000 of noise 100: both are one of noise 1
  struct row {
    double noise;
    std::uint64_t count;
    double spacing;
  };
  for (const row& each : {row{4, 16, 0.01}, row{100, 10000, 4e-4}}) {
    const d::discrete_step step = grid({1, each.noise, each.spacing, 9.5});
    for (const double eps : {0.0, 0.5, 2.0, 5.0, 8.0}) {
      const double tilt = eps + 0.5;  // the saddle point of N(1/2, 1) + tilt = eps, or beyond
      const d::transform_plan plan{tilt, eps - 9, eps == 0 && each.count > 100 ? 131072U : 65536U, 4, 4};
      const auto made = compose(step, each.count, plan);
      const auto exact = static_cast<double>(oracle::gaussian(1, eps));
      const double high = made.above.delta(eps);
      const double low = made.below.delta(eps);
      BOOST_TEST(low <= exact);
      BOOST_TEST(high >= exact);
      BOOST_TEST(high / low - 1 < 0.05, each.noise << " " << eps << ": " << low << " " << exact << " " << high);
      const double delta = exact;
      BOOST_TEST(made.above.epsilon(delta) >= eps);
      BOOST_TEST(made.below.epsilon(delta) <= eps);
      BOOST_TEST(made.above.epsilon(delta) - made.below.epsilon(delta) < 5e-3);
    }
  }
}

BOOST_AUTO_TEST_CASE(two_steps_lie_between_their_grids) {
  for (const shape& of : {shape{0.1, 1, 2e-3, 10}, shape{0.5, 0.6, 5e-3, 10}, shape{0.01, 0.5, 2e-3, 10}}) {
    const shape other{0.2, 2, of.spacing, 10};
    const d::discrete_step first = grid(of);
    const d::discrete_step second = grid(other);
    for (const double eps : {0.0, 0.3, 1.0, 3.0}) {
      const d::transform_plan plan{2, -8, 65536, 2, 2};
      d::pld_composer<> composer{plan.length};
      d::composed_pld<upper> above;
      d::composed_pld<lower> below;
      d::composed_pld<upper> add;
      const auto step = [&](std::size_t i) -> const d::discrete_step& { return i == 0 ? first : second; };
      composer.compose(
          2,
          [&](std::size_t i) {
            return d::counted_pld<upper>{&step(i).remove, 1};
          },
          plan,
          [&](std::size_t i) {
            return d::counted_pld<lower>{&step(i).remove_below, 1};
          },
          plan, above, below);
      d::composed_pld<lower> none;
      composer.compose(
          2,
          [&](std::size_t i) {
            return d::counted_pld<upper>{&step(i).add, 1};
          },
          plan, [](std::size_t) { return d::counted_pld<lower>{}; }, plan, add, none);
      const auto exact = static_cast<double>(oracle::two_steps(of.q, of.noise, other.q, other.noise, eps, true));
      const auto added = static_cast<double>(oracle::two_steps(of.q, of.noise, other.q, other.noise, eps, false));
      BOOST_TEST(above.delta(eps) >= exact * (1 - 1e-12));
      BOOST_TEST(above.delta(eps) < exact * 1.005 + 1e-12);
      BOOST_TEST(below.delta(eps) <= exact * (1 + 1e-12));
      BOOST_TEST(below.delta(eps) > exact * 0.995 - 1e-12);
      BOOST_TEST(add.delta(eps) >= added * (1 - 1e-12));
      BOOST_TEST(add.delta(eps) < added * 1.005 + 1e-10);
    }
  }
}

BOOST_AUTO_TEST_CASE(unpaid_truncation_is_found) {
  const d::discrete_step step = grid({1, 4, 0.01, 2.5});  // ends at 2.5 deviations
  const d::transform_plan plan{1.5, -12, 16384, 4, 4};
  const auto exact = static_cast<double>(oracle::gaussian(1, 1.0));
  BOOST_TEST(compose(step, 16, plan).above.delta(1.0) >= exact);
  BOOST_TEST(compose<nothing_for_truncation>(step, 16, plan).above.delta(1.0) < exact);
  BOOST_TEST(compose(step, 16, plan).below.delta(1.0) <= exact);
}

BOOST_AUTO_TEST_CASE(unpaid_wrap_around_is_found) {
  const d::discrete_step step = grid({1, 4, 0.01, 9});
  const auto exact = static_cast<double>(oracle::gaussian(1, 1.0));
  // A window of 2.56 around epsilon: much is above it, which the upper side lacks, and much below, which comes out
  // inside.
  const d::transform_plan lacks{0, 0.5, 256, 1, 2};
  BOOST_TEST(compose(step, 16, lacks).below.delta(1.0) <= exact);
  BOOST_TEST(compose<nothing_for_wrap_around>(step, 16, lacks).below.delta(1.0) > exact);
  // By itself, a window's top is worth no more than what lies above it.
  const auto paid = compose(step, 16, lacks).above;
  const auto unpaid = compose<nothing_for_wrap_around>(step, 16, lacks).above;
  const double top = paid.loss(paid.first + 255);
  const auto beyond = static_cast<double>(oracle::gaussian(1, top));
  BOOST_TEST(paid.delta(top) >= beyond);
  BOOST_TEST(unpaid.delta(top) < beyond);
}

BOOST_AUTO_TEST_CASE(unpaid_rounding_is_found) {
  // Atoms of 200 steps against convolutions in long double, on a small grid.
  pld<upper> step;
  step.spacing = 0.25;
  step.first = -2 * pld<upper>::parts;
  step.masses = {0.1, 0.3, 0.35, 0.2, 0.05};
  pld<lower> same;
  same.spacing = step.spacing;
  same.first = step.first;
  same.masses = step.masses;
  d::discrete_step both;
  both.remove = step;
  both.remove_below = same;
  constexpr std::size_t n = 1024;
  std::vector<long double> exact(n, 0);
  exact[0] = 1;
  for (int t = 0; t < 200; ++t) {
    std::vector<long double> next(n, 0);
    for (std::size_t i = 0; i + 5 <= n; ++i) {
      for (std::size_t j = 0; j < 5; ++j) next[i + j] += exact[i] * step.masses[j];
    }
    exact = next;
  }
  const d::transform_plan plan{0, -100, n, 1, 1};
  const auto made = compose(both, 200, plan);
  int too_small = 0;
  int too_large = 0;
  long double shortfall = 0;  // of squares, beyond which atoms have other reasons to differ
  long double excess = 0;
  for (std::size_t sum = 0; sum < n; ++sum) {
    const auto from_origin = std::llround((-100 + 0.25 * static_cast<double>(sum) - made.above.origin) / 0.25);
    const auto i = static_cast<std::size_t>((from_origin + 2 * static_cast<long long>(n)) % static_cast<long long>(n));
    const long double high = made.above.atoms[i] - exact[sum];
    const long double low = made.below.atoms[i] - exact[sum];
    too_small += high < 0 ? 1 : 0;
    too_large += low > 0 ? 1 : 0;
    shortfall += high < 0 ? high * high : 0;
    excess += low > 0 ? low * low : 0;
  }
  BOOST_TEST(std::sqrt(shortfall) <= made.above.atoms_error);
  BOOST_TEST(std::sqrt(excess) <= made.below.atoms_error);
  BOOST_TEST(too_small > 0);
  BOOST_TEST(too_large > 0);
  BOOST_TEST(made.above.atoms_error < 32e-12);  // 1e-12 for each of 1024
  // and it shows in delta where only noise is left
  const auto careless = compose<nothing_for_rounding>(both, 200, plan);
  const double far = 60;
  long double truth = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const long double loss = -100 + 0.25L * static_cast<long double>(i);
    if (loss > far) truth += exact[i] * -std::expm1(static_cast<long double>(far) - loss);
  }
  BOOST_TEST(static_cast<long double>(made.above.delta(far)) >= truth);
  BOOST_TEST(static_cast<long double>(made.below.delta(far)) <= truth);
  BOOST_TEST(static_cast<long double>(careless.below.delta(far)) > truth);
}

// 1024 steps of noise 320 are one of noise 10: as a block on a grid 32 times as coarse, and 16 blocks of these.
BOOST_AUTO_TEST_CASE(blocks_of_steps_are_steps) {
  const double fine = d::coarse_spacing(4e-5);
  const d::discrete_step step = d::step_discretiser<>{{1, 1.0 / 320, 2, 10}}.on_grid(fine);
  const d::transform_plan plan{6, -1, 65536, 40, 40};
  const auto block = compose(step, 1024, plan);
  d::discrete_step one;
  one.remove = d::as_one_step(block.above, 32 * fine);
  one.remove_below = d::as_one_step(block.below, 32 * fine);
  pld<upper> weak = one.remove;
  weak.first -= pld<upper>::parts / 16;
  pld<lower> weak_below = one.remove_below;
  weak_below.first += pld<lower>::parts / 2;
  int found = 0;
  for (const double eps : {-0.3, -0.1, 0.0, 0.0007, 0.1, 0.3, 0.5}) {
    const long double exact = oracle::gaussian(10, eps);
    const long double more = 1e-15L;
    BOOST_TEST(one.remove.delta(eps) >= exact - more, eps);
    BOOST_TEST(one.remove.delta(eps) <= exact * 1.01L + 1e-9L, eps << ": " << one.remove.delta(eps));
    BOOST_TEST(one.remove_below.delta(eps) <= exact + more, eps);
    BOOST_TEST(one.remove_below.delta(eps) >= exact * 0.99L - 1e-9L, eps << ": " << one.remove_below.delta(eps));
    found += weak.delta(eps) < exact - more ? 1 : 0;
    found += weak_below.delta(eps) > exact + more ? 1 : 0;
  }
  BOOST_TEST(found >= 10);
  const auto all = compose(one, 16, {6, -4, 16384, 8, 8});
  for (const double eps : {0.0, 0.5, 1.0, 1.5}) {
    const auto exact = static_cast<double>(oracle::gaussian(2.5L, eps));
    BOOST_TEST(all.above.delta(eps) >= exact);
    BOOST_TEST(all.above.delta(eps) <= exact * 1.02);
    BOOST_TEST(all.below.delta(eps) <= exact);
    BOOST_TEST(all.below.delta(eps) >= exact * 0.98);
  }
}

// What one step alone proves, where its losses are cut off: of two steps, against the exact hockey stick.
BOOST_AUTO_TEST_CASE(what_is_cut_off_counts_by_itself) {
  const shape of{0.01, 0.5, 2e-3, 10};
  int needed = 0;
  int found = 0;
  for (const double cap : {0.5, 1.0, 2.0}) {
    const d::discrete_step cut =
        d::step_discretiser<>{{of.q, 1 / of.noise, 2, of.deviations}}.on_grid(d::coarse_spacing(of.spacing), cap);
    BOOST_TEST(cut.remove.loss(cut.remove.masses.size() - 1) <= cap + 4 * of.spacing);
    BOOST_TEST(cut.remove_below.beyond_p > 0);
    const d::transform_plan plan{2, -2, 16384, 4, 4};
    const auto made = compose(cut, 2, plan);
    d::discrete_step weak = cut;
    weak.remove_below.beyond_q /= 2;
    const auto weaker = compose(weak, 2, plan);
    d::discrete_step none = cut;
    none.remove_below.beyond_p = 0;
    none.remove.infinite = 0;
    const auto without = compose(none, 2, plan);
    for (const double eps : {0.1, 0.3, 0.4, 0.9, 1.5}) {
      const auto exact = static_cast<double>(oracle::two_steps(of.q, of.noise, of.q, of.noise, eps, true));
      BOOST_TEST(made.above.delta(eps) >= exact * (1 - 1e-12));
      BOOST_TEST(made.below.delta(eps) <= exact * (1 + 1e-12));
      if (eps < cap) {
        BOOST_TEST(made.above.delta(eps) <= exact * 1.03, eps << " " << cap);
        BOOST_TEST(made.below.delta(eps) >= exact * 0.9, eps << " " << cap);
        needed += without.below.delta(eps) < 0.9 * exact && without.above.delta(eps) < exact ? 1 : 0;
        found += weaker.below.delta(eps) > exact ? 1 : 0;
      }
    }
  }
  BOOST_TEST(needed >= 4);
  BOOST_TEST(found >= 4);
}

namespace {

/// Steps of `of` as common losses, below `place` on its line, and rare ones, above it. `above` and `below`: so many
/// steps of common ones for the two sides.
struct in_parts {
  d::composed_pld<upper> remove;
  d::composed_pld<lower> remove_below;
  d::composed_pld<upper> add;
};
enum class left_out { nothing, balance, chance, shift };
in_parts in_parts_of(const shape& of, std::uint64_t steps, double place, std::uint64_t above, std::uint64_t below,
                     left_out what) {
  const d::continuous_step step{of.q, 1 / of.noise, 2, of.deviations};
  const double h = d::coarse_spacing(of.spacing);
  const auto of_all = static_cast<double>(steps);
  const d::line_part common{-d::infinity, place};
  const d::step_discretiser<> bulk{step, common};
  const d::discrete_step grid = bulk.on_grid(h, bulk.highest_loss() + h, d::step_discretiser<>::grid_points::at_zero);
  d::discrete_step rare = d::rare_losses<d::sampled_pair<>>(step, common, h, d::infinity);
  if (what == left_out::shift) {  // rare losses as they are, apart from those of common ones
    rare.remove = d::step_discretiser<>{step, {common.low, common.high, false}}
                      .on_grid(h, d::infinity, d::step_discretiser<>::grid_points::at_zero)
                      .remove;
    rare.remove.masses[static_cast<std::size_t>(-rare.remove.first / pld<upper>::parts)] += 1;
  }
  const d::transform_plan plan{2, -8, 65536, 2, 2};
  d::pld_composer<> composer{plan.length};
  in_parts made;
  const auto add = [&](std::size_t i) {
    return d::counted_pld<upper>{i == 0 ? &grid.add : &rare.add, i == 0 ? above : steps};
  };
  composer.compose(
      2,
      [&](std::size_t i) {
        return d::counted_pld<upper>{i == 0 ? &grid.remove : &rare.remove, i == 0 ? above : steps};
      },
      plan,
      [&](std::size_t i) {
        return d::counted_pld<lower>{i == 0 ? &grid.remove_below : &rare.remove_below, i == 0 ? below : steps};
      },
      plan, made.remove, made.remove_below);
  d::composed_pld<lower> none;
  composer.compose(
      2, add, plan, [](std::size_t) { return d::counted_pld<lower>{}; }, plan, made.add, none);
  if (what != left_out::balance) {
    d::take_common(made.remove, rare.least_log_p, rare.most_log_q, of_all - static_cast<double>(above));
    d::take_common(made.remove_below, rare.least_log_p, rare.most_log_q, of_all - static_cast<double>(below));
    d::take_common(made.add, rare.least_log_q, rare.most_log_p, of_all - static_cast<double>(above));
  }
  if (what != left_out::chance) {
    made.remove_below.lost = d::more_than(of_all - static_cast<double>(below), of_all, -std::expm1(rare.least_log_p));
  }
  return made;
}

}  // namespace

// Common losses by themselves, and rare ones, against the exact hockey stick of two steps.
BOOST_AUTO_TEST_CASE(parts_of_steps_lie_on_their_side) {
  int close_above = 0;
  int close_below = 0;
  std::array<int, 2> found{};
  for (const auto& [of, place] :
       {std::pair{shape{0.1, 1, 2e-3, 10}, 1.2}, std::pair{shape{0.1, 1, 2e-3, 10}, 3.2},
        std::pair{shape{0.3, 0.8, 4e-3, 10}, 2.5}, std::pair{shape{0.02, 0.6, 2e-3, 10}, 3.5}}) {
    for (const double eps : {0.05, 0.1, 0.3, 0.5, 1.0, 2.0}) {
      const auto exact = static_cast<double>(oracle::two_steps(of.q, of.noise, of.q, of.noise, eps, true));
      const auto added = static_cast<double>(oracle::two_steps(of.q, of.noise, of.q, of.noise, eps, false));
      const auto check = [&](std::uint64_t above, std::uint64_t below) {
        const in_parts got = in_parts_of(of, 2, place, above, below, left_out::nothing);
        BOOST_TEST(got.remove.delta(eps) >= exact * (1 - 1e-12), of.q << " " << place << " " << eps);
        BOOST_TEST(got.add.delta(eps) >= added * (1 - 1e-12), of.q << " " << place << " " << eps);
        BOOST_TEST(got.remove_below.delta(eps) <= exact * (1 + 1e-12), of.q << " " << place << " " << eps);
        if (above == 2 && got.remove.delta(eps) < exact * 1.02) ++close_above;
        if (below == 1 && got.remove_below.delta(eps) > exact * 0.5) ++close_below;
      };
      check(2, 1);
      check(3, 0);
      check(5, 1);
      found[0] += in_parts_of(of, 2, place, 2, 2, left_out::chance).remove_below.delta(eps) > exact * (1 + 1e-9);
      found[1] += in_parts_of(of, 2, place, 2, 1, left_out::shift).remove.delta(eps) < exact * (1 - 1e-9);
    }
  }
  BOOST_TEST(close_above >= 9);
  BOOST_TEST(close_below >= 6);
  BOOST_TEST(found[0] >= 4);  // results that a rare one takes the place of
  BOOST_TEST(found[1] >= 3);  // rare losses apart from common ones
  // 400 steps of a Gaussian of noise 40 are one of noise 2.
  const shape many{1, 40, 5e-4, 10};
  int unbalanced = 0;
  for (const double eps : {0.1, 0.5, 1.0, 2.0}) {
    const auto exact = static_cast<double>(oracle::gaussian(2, eps));
    const in_parts got = in_parts_of(many, 400, 3, 402, 392, left_out::nothing);
    BOOST_TEST(got.remove.delta(eps) >= exact * (1 - 1e-12));
    BOOST_TEST(got.remove.delta(eps) <= exact * 1.1, eps << ": " << got.remove.delta(eps) << " for " << exact);
    BOOST_TEST(got.add.delta(eps) >= exact * (1 - 1e-12));
    BOOST_TEST(got.add.delta(eps) <= exact * 1.1, eps << ": " << got.add.delta(eps) << " for " << exact);
    BOOST_TEST(got.remove_below.delta(eps) <= exact * (1 + 1e-12));
    BOOST_TEST(got.remove_below.delta(eps) >= exact * 0.8, eps << ": " << got.remove_below.delta(eps));
  }
  // Where rare losses decide, masses of common steps that there are not have to be put right.
  const shape seldom{1e-3, 0.5, 2e-3, 10};
  for (const double eps : {0.5, 1.0, 2.0, 3.0}) {
    const auto exact =
        static_cast<double>(oracle::two_steps(seldom.q, seldom.noise, seldom.q, seldom.noise, eps, true));
    BOOST_TEST(in_parts_of(seldom, 2, 3, 300, 0, left_out::nothing).remove.delta(eps) >= exact * (1 - 1e-12));
    unbalanced += in_parts_of(seldom, 2, 3, 300, 0, left_out::balance).remove.delta(eps) < exact ? 1 : 0;
  }
  BOOST_TEST(unbalanced >= 4);
  // The chance of more than some rare losses: of binomials, in long double.
  for (const double share : {1e-6, 1e-3, 0.1}) {
    for (const int steps : {10, 1000, 20000}) {
      for (const int most : {0, 3, 40, 400}) {
        if (most >= steps) continue;
        long double term = std::exp(steps * std::log1p(-static_cast<long double>(share)));
        long double up_to = 0;
        for (int k = 0; k <= most; ++k) {
          up_to += term;
          term *= static_cast<long double>(steps - k) / (k + 1) * share / (1 - static_cast<long double>(share));
        }
        BOOST_TEST(d::more_than(most, steps, share) >= static_cast<double>(1 - up_to - 1e-15L));
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
