// SPDX-License-Identifier: Apache-2.0
// tests/interval/interval_test.cpp - intervals enclose what MPFR computes, are as narrow as stated, and are isotone
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <mpfr.h>

#include <pergrad/interval/functions.hpp>

#include "mpfr_oracle.hpp"

BOOST_AUTO_TEST_SUITE(intervals)

namespace {

namespace pg = pergrad;
using mpfr_oracle::apply;
using mpfr_oracle::encloses;
using mpfr_oracle::number;
using pg::interval;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double largest = std::numeric_limits<double>::max();
constexpr double subnormal = std::numeric_limits<double>::denorm_min();

struct function {
  const char* name = nullptr;
  interval (*ours)(const interval&) = nullptr;
  mpfr_oracle::of_one exact = nullptr;
  double largest = 0;
  double most_ulps = 0;  ///< of the value at one number
  bool is_of_positive = false;
};
// What the head of functions.hpp states.
const function functions[] = {
    {"exp", [](const interval& x) { return exp(x); }, mpfr_exp, 700, 8},
    {"log", [](const interval& x) { return log(x); }, mpfr_log, 1e10, 12, true},
    {"sin", [](const interval& x) { return sin(x); }, mpfr_sin, 1e6, 12},
    {"cos", [](const interval& x) { return cos(x); }, mpfr_cos, 1e6, 12},
    {"tanh", [](const interval& x) { return tanh(x); }, mpfr_tanh, 30, 20},
    {"sigmoid", [](const interval& x) { return sigmoid(x); }, mpfr_oracle::sigmoid, 700, 12},
    {"softplus", [](const interval& x) { return softplus(x); }, mpfr_oracle::softplus, 700, 24},
    {"erf", [](const interval& x) { return erf(x); }, mpfr_erf, 7, 120},
    {"sqrt", [](const interval& x) { return sqrt(x); }, mpfr_sqrt, 1e300, 1, true},
    {"abs", [](const interval& x) { return abs(x); }, mpfr_abs, 1e300, 0},
    {"cube", [](const interval& x) { return pow(x, 3); },
     [](mpfr_ptr to, mpfr_srcptr x, mpfr_rnd_t way) { return mpfr_pow_si(to, x, 3, way); }, 1e100, 4},
    {"x^-6", [](const interval& x) { return pow(x, -6); },
     [](mpfr_ptr to, mpfr_srcptr x, mpfr_rnd_t way) { return mpfr_pow_si(to, x, -6, way); }, 1e50, 20},
    {"x^0.3", [](const interval& x) { return pow(x, 0.3); },
     [](mpfr_ptr to, mpfr_srcptr x, mpfr_rnd_t way) {
       const number exponent{0.3};
       return mpfr_pow(to, x, exponent.get(), way);
     },
     1e10, 60, true},
};
struct operation {
  const char* name;
  interval (*ours)(const interval&, const interval&);
  mpfr_oracle::of_two exact;
};
const operation operations[] = {
    {"+", [](const interval& x, const interval& y) { return x + y; }, mpfr_add},
    {"-", [](const interval& x, const interval& y) { return x - y; }, mpfr_sub},
    {"*", [](const interval& x, const interval& y) { return x * y; }, mpfr_mul},
    {"/", [](const interval& x, const interval& y) { return x / y; }, mpfr_div},
    {"min", [](const interval& x, const interval& y) { return min(x, y); }, mpfr_min},
    {"max", [](const interval& x, const interval& y) { return max(x, y); }, mpfr_max},
};

}  // namespace

BOOST_AUTO_TEST_CASE(functions_enclose_and_are_narrow) {
  for (const function& f : functions) {
    mpfr_oracle::random_numbers random{1, f.largest};
    int misses = 0;
    double widest = 0;
    for (int i = 0; i < mpfr_oracle::points(); ++i) {
      interval from = random.interval();
      if (f.is_of_positive) from = abs(from);
      const double x = random.inside(from);
      const number value = apply(f.exact, number{x});
      if (!value.is_number()) continue;  // undefined, or a pole
      const interval all = f.ours(from);
      const interval at = f.ours(x);
      misses += encloses(all, value) && encloses(at, value) ? 0 : 1;
      // Isotone, up to the width of both.
      misses += mpfr_oracle::ulps(hull(all, at)) <= mpfr_oracle::ulps(all) + f.most_ulps ? 0 : 1;
      if (at.is_finite() && at.magnitude() > 1e-290) widest = std::fmax(widest, mpfr_oracle::ulps(at));
    }
    BOOST_TEST_CONTEXT(f.name) {
      BOOST_TEST(misses == 0);
      BOOST_TEST(widest <= f.most_ulps);
      BOOST_TEST_MESSAGE(f.name << ": " << widest << " ulps");
    }
  }
}
BOOST_AUTO_TEST_CASE(operations_are_rounded_correctly) {
  for (const operation& f : operations) {
    for (const double size : {1e3, 1e-290, 1e160, 1.7e308, 1e-310}) {
      mpfr_oracle::random_numbers random{2, size};
      int misses = 0;
      double widest = 0;
      for (int i = 0; i < mpfr_oracle::points() / 5; ++i) {
        const interval from = random.interval();
        const interval by = random.interval();
        const double x = random.inside(from);
        const double y = random.inside(by);
        if (f.name[0] == '/' && y == 0) continue;
        const number value = apply(f.exact, number{x}, number{y});
        const interval at = f.ours(x, y);
        misses += encloses(f.ours(from, by), value) && encloses(at, value) && f.ours(from, by).contains(at) ? 0 : 1;
        if (size == 1e3) widest = std::fmax(widest, mpfr_oracle::ulps(at) - mpfr_oracle::ulps(value.bounds()));
      }
      BOOST_TEST_CONTEXT(f.name << " of numbers up to " << size) {
        BOOST_TEST(misses == 0);
        BOOST_TEST(widest == 0);
      }
    }
  }
}
BOOST_AUTO_TEST_CASE(compositions_enclose) {
  mpfr_oracle::random_numbers random{3, 4};
  int misses = 0;
  for (int i = 0; i < mpfr_oracle::points(); ++i) {
    const interval xs = random.interval();
    const interval ys = random.interval();
    const number x{random.inside(xs)};
    const number y{random.inside(ys)};
    // exp(sin(x y) - y) / (1 + x²) and tanh(softplus(x) sqrt(|y|)) + erf(x - y)
    const interval first = exp(sin(xs * ys) - ys) / (interval{1} + pow(xs, 2));
    const number wave = apply(mpfr_sin, apply(mpfr_mul, x, y));
    const number exact =
        apply(mpfr_div, apply(mpfr_exp, apply(mpfr_sub, wave, y)), apply(mpfr_add, number{1}, apply(mpfr_sqr, x)));
    misses += encloses(first, exact) ? 0 : 1;
    const interval second = tanh(softplus(xs) * sqrt(abs(ys))) + erf(xs - ys);
    const number root = apply(mpfr_sqrt, apply(mpfr_abs, y));
    const number inner = apply(mpfr_tanh, apply(mpfr_mul, apply(mpfr_oracle::softplus, x), root));
    misses += encloses(second, apply(mpfr_add, inner, apply(mpfr_erf, apply(mpfr_sub, x, y)))) ? 0 : 1;
  }
  BOOST_TEST(misses == 0);
}
// Isotone: a part of an interval has a part of its values. Of operations exactly, of functions up to the ulps by which
// two enclosures may differ; a search that halves boxes lives on it.
BOOST_AUTO_TEST_CASE(a_part_has_a_part_of_the_values) {
  const auto part_of = [](mpfr_oracle::random_numbers& random, const interval& all) {
    const double a = random.inside(all);
    const double b = random.inside(all);
    return interval{std::fmin(a, b), std::fmax(a, b)};
  };
  for (const function& f : functions) {
    mpfr_oracle::random_numbers random{5, f.largest};
    int misses = 0;
    for (int i = 0; i < mpfr_oracle::points() / 10; ++i) {
      interval all = random.interval();
      if (f.is_of_positive) all = abs(all);
      const interval values = f.ours(all);
      const interval of_part = f.ours(part_of(random, all));
      misses += mpfr_oracle::ulps(hull(values, of_part)) <= mpfr_oracle::ulps(values) + f.most_ulps ? 0 : 1;
    }
    BOOST_TEST(misses == 0, f.name);
  }
  for (const operation& f : operations) {
    mpfr_oracle::random_numbers random{6, 1e3};
    int misses = 0;
    for (int i = 0; i < mpfr_oracle::points() / 10; ++i) {
      const interval x = random.interval();
      const interval y = random.interval();
      misses += f.ours(x, y).contains(f.ours(part_of(random, x), part_of(random, y))) ? 0 : 1;
    }
    BOOST_TEST(misses == 0, f.name);
  }
  mpfr_oracle::random_numbers random{7, 4};
  int misses = 0;
  for (int i = 0; i < mpfr_oracle::points() / 10; ++i) {
    const interval x = random.interval();
    const interval y = random.interval();
    const auto of = [](const interval& xs, const interval& ys) {
      return exp(sin(xs * ys) - ys) / (interval{1} + pow(xs, 2)) + tanh(softplus(xs) * sqrt(abs(ys)));
    };
    const interval all = of(x, y);
    const interval some = of(part_of(random, x), part_of(random, y));
    misses += interval{all.lower - 1e-12 * all.magnitude(), all.upper + 1e-12 * all.magnitude()}.contains(some) ? 0 : 1;
  }
  BOOST_TEST(misses == 0);
}
BOOST_AUTO_TEST_CASE(an_interval_that_is_rounded_inwards_is_found) {
  // The planted weakness: sums to nearest. Some of them must not enclose, or the tests above are idle.
  mpfr_oracle::random_numbers random{4, 10};
  int misses = 0;
  for (int i = 0; i < 1000; ++i) {
    const double x = random();
    const double y = random();
    misses += encloses(interval{x + y}, apply(mpfr_add, number{x}, number{y})) ? 0 : 1;
  }
  BOOST_TEST(misses > 100);
}
BOOST_AUTO_TEST_CASE(poles_infinities_and_what_is_undefined) {
  const interval everything = interval::everything();
  BOOST_TEST((interval{1} / interval{-1, 1} == everything));
  BOOST_TEST((interval{1, 2} / interval{0, 4} == interval{0.25, infinity}));
  BOOST_TEST((interval{1, 2} / interval{-4, 0} == interval{-infinity, -0.25}));
  BOOST_TEST((interval{-1, 2} / interval{0, 4} == everything));
  BOOST_TEST((interval{-2, -1} / interval{0, 4} == interval{-infinity, -0.25}));
  BOOST_TEST((interval{1} / interval{0}).is_empty());
  BOOST_TEST((interval{1} / everything == everything));
  BOOST_TEST((interval{1} / interval{1, infinity} == interval{0, 1}));
  BOOST_TEST((interval{1, infinity} / interval{1, infinity} == interval{0, infinity}));
  BOOST_TEST((everything * interval{0} == interval{0}));
  BOOST_TEST((everything + interval{1} == everything));
  BOOST_TEST((interval{largest} + interval{largest} == interval{largest, infinity}));
  BOOST_TEST((interval{largest} * interval{-2} == interval{-infinity, -largest}));
  BOOST_TEST((interval{subnormal} * interval{0.5} == interval{0, subnormal}));
  BOOST_TEST((interval{1} / interval{subnormal} == interval{largest, infinity}));
  BOOST_TEST((sqrt(interval{-4, 4}) == interval{0, 2}));
  BOOST_TEST(sqrt(interval{-4, -1}).is_empty());
  BOOST_TEST(log(interval{-4, 0}).is_empty());
  BOOST_TEST((log(interval{0, 1}).lower == -infinity));
  BOOST_TEST((sqrt(interval{subnormal}).contains(std::sqrt(subnormal))));
  BOOST_TEST((exp(everything) == interval{0, infinity}));
  BOOST_TEST((tanh(everything) == interval{-1, 1}));
  BOOST_TEST((sin(everything) == interval{-1, 1}));
  BOOST_TEST((pow(interval{-2, 1}, 2) == interval{0, 4}));
  BOOST_TEST((pow(interval{-1, 1}, -2) == interval{1, infinity}));
  BOOST_TEST((pow(interval{4, 9}, 0.5) == interval{2, 3}));
  // Whole exponents beyond those of repeated products, even and odd.
  for (const double even : {0x1p20, 0x1p40, 0x1p53, 0x1.8p60}) {
    BOOST_TEST(pow(interval{-1, 0.5}, even).contains(interval{0, 1}));
    BOOST_TEST(pow(interval{-1, -0.5}, even).upper >= 1);
    BOOST_TEST(pow(interval{-2, 2}, even).upper == infinity);
  }
  for (const double odd : {0x1p20 + 1, 0x1p40 - 1, 0x1p52 + 1}) {
    BOOST_TEST(pow(interval{-1, 0.5}, odd).contains(interval{-1, 0}));
    BOOST_TEST(pow(interval{-2, -1}, odd).contains(-1));
    BOOST_TEST((pow(interval{-2, 2}, odd) == everything));
    BOOST_TEST(pow(interval{-2, -1}, odd).upper <= 0);
  }
  BOOST_TEST(pow(interval{-2, -1}, 0x1p20 + 0.5).is_empty());
  BOOST_TEST((interval::nothing() + interval{1}).is_empty());
}
BOOST_AUTO_TEST_CASE(constant_expressions_give_the_same_bits) {
  constexpr interval at{0.7, 1.3};
  constexpr interval found[] = {at / interval{3}, sqrt(at), exp(at),     log(at),     sin(at),
                                tanh(at),         erf(at),  pow(at, -3), softplus(at)};
  volatile double low = 0.7;
  const interval same{low, 1.3};
  const interval then[] = {same / interval{3}, sqrt(same), exp(same),     log(same),     sin(same),
                           tanh(same),         erf(same),  pow(same, -3), softplus(same)};
  for (std::size_t i = 0; i < std::size(found); ++i) BOOST_TEST((found[i] == then[i]));
}

BOOST_AUTO_TEST_SUITE_END()
