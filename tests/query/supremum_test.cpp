// SPDX-License-Identifier: Apache-2.0
// tests/query/supremum_test.cpp - brackets contain what is known, stop when told, and refuse what has no bound
#include <boost/test/unit_test.hpp>

#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/query/derivative.hpp>
#include <pergrad/query/functions.hpp>
#include <pergrad/query/records.hpp>
#include <pergrad/query/supremum.hpp>

#include "test_functions.hpp"

BOOST_AUTO_TEST_SUITE(query_supremum)

namespace {

namespace pg = pergrad;
using pg::query::expression;
constexpr pg::field<"age"> age;
constexpr pg::field<"weight"> weight;
constexpr pg::field<"height"> height;
constexpr pg::field<"x"> x;
constexpr auto bmi = age * weight / (height * height);
constexpr auto norm = pg::l2_norm(pg::gradient(bmi));
constexpr auto people = pg::box{age.in(18, 100), weight.in(40, 200), height.in(1.4, 2.1)};

// In constant expressions, of g++ 12 and of clang 14.
constexpr auto largest = pg::supremum(norm, people);
static_assert(largest.upper <= 14577.70589696 && largest.upper - largest.lower <= 1e-9 * largest.upper);
static_assert(largest.where(age) == 100 && largest.where(weight) == 200 && largest.where(height) == 1.4);
static_assert(pg::supremum_of<norm, people>.upper == largest.upper);

std::string complaint(const expression& query, const pg::box& in) {
  try {
    static_cast<void>(pg::supremum(query, in));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

// Closed form: sqrt(w² + a² + 4 a² w² / h²) / h² at the corner, in 18 digits.
BOOST_AUTO_TEST_CASE(the_papers_query_in_both_forms) {
  struct row {
    pg::box in;
    double largest = 0;
    double range = 0;
  };
  const row rows[] = {
      {people, 14577.7058969543593, 10040.8163265306122},
      {pg::box{age.in(0, 120), weight.in(2, 300), height.in(0.5, 2.5)}, 576001.449998174918, 144000},
      {pg::box{age.in(18, 90), weight.in(45, 150), height.in(1.5, 2)}, 8000.37776885844588, 5797.5},
      {pg::box{age.in(0, 1), weight.in(0, 1), height.in(1, 2)}, 2.44948974278317810, 1},
  };
  const auto naive = age * weight / as_written(height * height);
  for (const row& each : rows) {
    for (const expression& query : {bmi, naive}) {
      const pg::extremum found = pg::supremum(l2_norm(gradient(query)), each.in);
      BOOST_TEST(found.is_within_tolerance);
      BOOST_TEST(found.lower <= each.largest * (1 + 1e-15));
      BOOST_TEST(found.upper >= each.largest * (1 - 1e-15));
      BOOST_TEST(found.upper - found.lower <= 1e-9 * found.upper);
      const double range = pg::supremum(query, each.in).upper - pg::infimum(query, each.in).lower;
      BOOST_TEST(std::fabs(range - each.range) <= 1e-9 * each.range);
    }
  }
  // What canonical form is worth: one enclosure, without any search.
  BOOST_TEST(std::fabs(enclosure(l2_norm(gradient(naive)), people).upper - 21866.19) < 0.01);
  BOOST_TEST(enclosure(norm, people).upper <= 14577.7058969543593 * (1 + 1e-14));
}
BOOST_AUTO_TEST_CASE(published_functions) {
  int count = 0;
  for (const auto& each : query_functions::all()) {
    const pg::extremum found =
        pg::infimum(each.formula, each.box, {.tolerance = 1e-6, .absolute_tolerance = 1e-6, .boxes = 40'000});
    BOOST_TEST_CONTEXT(each.name) {
      BOOST_TEST(found.lower <= each.least + each.precision);
      BOOST_TEST(found.upper >= each.least - each.precision);
      if (each.is_easy) BOOST_TEST(found.is_within_tolerance);
      BOOST_TEST_MESSAGE(each.name << ": [" << found.lower << ", " << found.upper << "], " << found.boxes << " boxes");
    }
    ++count;
  }
  BOOST_TEST(count >= 20);
}
BOOST_AUTO_TEST_CASE(a_certificate_whenever_it_stops) {
  for (const auto& each : query_functions::all()) {
    for (const std::size_t boxes : {1U, 3U, 10U, 100U}) {
      const pg::extremum found = pg::infimum(each.formula, each.box, {.boxes = boxes});
      BOOST_TEST_CONTEXT(each.name << " after " << boxes) {
        BOOST_TEST(found.boxes <= boxes + 1);
        BOOST_TEST(found.lower <= each.least + each.precision);
        BOOST_TEST(found.upper >= each.least - each.precision);
      }
    }
  }
  const auto all = query_functions::all();
  const pg::extremum late = pg::infimum(all[20].formula, all[20].box, {.seconds = 0});
  BOOST_TEST(!late.is_within_tolerance);
  BOOST_TEST(late.boxes < 200);
}
BOOST_AUTO_TEST_CASE(no_sampled_value_is_above) {
  // Random formulas of all functions; a bound that is too small would be met by one of the points.
  std::mt19937_64 words{5};
  constexpr pg::field<"y"> y;
  const auto number = [&](double low, double high) { return std::uniform_real_distribution<>{low, high}(words); };
  int tight = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<expression> made{x, y, x * y, expression{number(-2, 2)}};
    const auto any = [&] { return made[words() % made.size()]; };
    for (int step = 0; step < 6; ++step) {
      switch (words() % 16) {
        case 0:
          made.push_back(any() + any());
          break;
        case 1:
          made.push_back(any() - any());
          break;
        case 2:
          made.push_back(any() * any());
          break;
        case 3:
          made.push_back(any() / (1.5 + pow(any(), 2)));
          break;
        case 4:
          made.push_back(sqrt(abs(any())));
          break;
        case 5:
          made.push_back(exp(-pow(any(), 2)));
          break;
        case 6:
          made.push_back(log(1.1 + abs(any())));
          break;
        case 7:
          made.push_back(sin(any()));
          break;
        case 8:
          made.push_back(cos(any()));
          break;
        case 9:
          made.push_back(tanh(any()));
          break;
        case 10:
          made.push_back(sigmoid(any()));
          break;
        case 11:
          made.push_back(softplus(any()));
          break;
        case 12:
          made.push_back(erf(any()));
          break;
        case 13:
          made.push_back(min(any(), any()));
          break;
        case 14:
          made.push_back(clamp(any(), -1, 0.5));
          break;
        default:
          made.push_back(where(any() > any() && any() <= 1, any(), any()));
      }
    }
    const expression query = made.back() + made[made.size() - 2];
    const double low = number(-3, 0);
    const double high = number(0.1, 3);
    const pg::box in{x.in(low, high), y.in(low, high)};
    const pg::search_limits limits{.tolerance = 1e-4, .absolute_tolerance = 1e-6, .boxes = 300};
    const pg::extremum above = pg::supremum(query, in, limits);
    const pg::extremum below = pg::infimum(query, in, limits);
    double most = -std::numeric_limits<double>::infinity();
    double least = -most;
    for (int point = 0; point < 2000; ++point) {
      const double value =
          query(x = point % 5 == 0 ? low : number(low, high), y = point % 7 == 0 ? high : number(low, high));
      most = std::fmax(most, value);
      least = std::fmin(least, value);
    }
    const double rounding = 1e-13 * (1 + std::fabs(most) + std::fabs(least));
    BOOST_TEST(most <= above.upper + rounding, text(query));
    BOOST_TEST(least >= below.lower - rounding, text(query));
    tight += above.is_within_tolerance && most >= above.upper - 0.05 * (1 + std::fabs(above.upper)) ? 1 : 0;
  }
  BOOST_TEST(tight > 200);  // and they are no more than bounds: else infinity would pass
}
BOOST_AUTO_TEST_CASE(a_callers_rounding_does_not_count) {
  const auto query = [] { return l2_norm(gradient(age * weight / as_written(height * height))) + 0.1 * height / 3; };
  const pg::extremum usual = pg::supremum(query(), people);
  for (const int way : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(way);
    const pg::extremum found = pg::supremum(query(), people);
    std::fesetround(FE_TONEAREST);
    BOOST_TEST(found.lower == usual.lower);
    BOOST_TEST(found.upper == usual.upper);
  }
}
BOOST_AUTO_TEST_CASE(what_is_not_defined_is_left_out) {
  // Rises towards 1, behind which there is nothing.
  const auto found = pg::supremum(pow(1 - x, 1.5) + 10 * x, pg::box{x.in(0, 1.5)}, {.tolerance = 1e-6});
  BOOST_TEST(found.upper >= 10);
  BOOST_TEST(found.upper <= 10.001);
  // Falls from -0.5 on, before which a path without a value is chosen: no slope tells where the largest one is.
  for (const expression& nothing : {log(expression{-1}), 1 / expression{0}, expression{std::nan("")}}) {
    const expression falls = max(-x, where(x < -0.5, nothing, 0));
    for (const double end : {-0.1, 0.3}) {
      const auto most = pg::supremum(falls, pg::box{x.in(-0.6, end)});
      BOOST_TEST(most.upper >= 0.5);
      BOOST_TEST(most.lower <= 0.5);
      BOOST_TEST(most.upper <= 0.5 + 1e-9);
    }
    BOOST_TEST(pg::infimum(-falls, pg::box{x.in(-0.6, 0.3)}).lower <= -0.5);
  }
}
// A value that is not defined is a NaN, whatever stands beside it, and no condition chooses.
BOOST_AUTO_TEST_CASE(what_is_not_defined_stays_so) {
  for (const expression& each : {min(sqrt(x), 3), max(log(x), -5), clamp(sqrt(x), 1, 2), where(sqrt(x) > -1, 3, 7),
                                 where(x > 0, x, sqrt(x)), sqrt(x) + age, where(!(sqrt(x) > 1), 1, 2)}) {
    BOOST_TEST(std::isnan(each(x = -1, age = 0)));
    BOOST_TEST(std::isnan(each.given(x = -1)(age = 0)));
  }
  // 0 has no logarithm and no negative power: an infinity might become a number behind it.
  for (const expression& each : {where(log(max(x, 0)) > -5, x, 10 * x), tanh(1 / max(x, 0)) - x,
                                 tanh(pow(max(x, 0), -2)) - x, tanh(pow(max(x, 0), -0.5)), tanh(pow(max(x, 0), -3))}) {
    BOOST_TEST(std::isnan(each(x = -1)));
    BOOST_TEST(std::isnan(each.given(x = -1)()));
    const std::vector<double> column(70, -1.0);
    const pg::records of{x = column};
    for (const double value : evaluate(each, of)) BOOST_TEST_REQUIRE(std::isnan(value));
  }
  static_assert(sqrt(x)(x = -1.0) != sqrt(x)(x = -1.0));
  static_assert(log(x)(x = 0.0) != log(x)(x = 0.0));
  const expression chosen = where(sqrt(age) > 1, 5, x);
  BOOST_TEST(std::isnan(chosen(age = -1, x = 100)));
  BOOST_TEST(std::isnan(chosen.given(age = -1)(x = 100)));
  BOOST_TEST(chosen.given(age = 4)(x = 100) == 5);
  BOOST_TEST(complaint(chosen.given(age = -1), pg::box{x.in(0, 200)}).find("not defined") != std::string::npos);
}
BOOST_AUTO_TEST_CASE(high_powers_of_what_is_below_zero_count) {
  const pg::box in{x.in(-1, 0.5)};
  expression nested = x;
  for (int i = 0; i < 20; ++i) nested = pow(nested, 2);
  for (const expression& each : {pow(x, 0x1p20), pow(pow(x, 2000), 1000), nested}) {
    BOOST_TEST(pg::supremum(each, in).upper >= 1);
    BOOST_TEST(pg::supremum(each, in).upper <= 1 + 1e-6);
  }
  BOOST_TEST(pg::infimum(pow(x, 0x1p20 + 1), in).lower <= -1);
  BOOST_TEST(pg::infimum(x - pow(x, 0x1p20), in).lower <= -2);
}
BOOST_AUTO_TEST_CASE(what_has_no_bound_is_named) {
  BOOST_TEST(complaint(age / (height - 2), people) == "pergrad: query: 1 / (height - 2) is unbounded in the box");
  BOOST_TEST(complaint(-log(height - 1.4), people) == "pergrad: query: log(height - 1.4) is unbounded in the box");
  BOOST_TEST(complaint(sqrt(-height), people) == "pergrad: query: sqrt(-height) is not defined anywhere in the box");
  BOOST_TEST(complaint(x * age, people) == "pergrad: query: the field x has no bounds in the box");
  BOOST_TEST(complaint(gradient(bmi), people) == "pergrad: query: this takes a query of one value, and got one of 3");
  const double nan = std::nan("");
  BOOST_CHECK_THROW(pg::box{age.in(2, 1)}, std::invalid_argument);
  BOOST_CHECK_THROW(pg::box{age.in(nan, 1)}, std::invalid_argument);
  BOOST_CHECK_THROW((pg::box{age.in(0, std::numeric_limits<double>::infinity())}), std::invalid_argument);
  BOOST_CHECK_THROW((pg::box{age.in(0, 1), age.in(0, 2)}), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(expression{x}(x = 1, x = 2)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>((x + age).given(x = 1, x = 2)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(clamp(x, 2, 1)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(clamp(x, nan, 1)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::supremum(bmi, people, {.tolerance = nan})), std::invalid_argument);
  // No pole, though one enclosure of the whole box has one: x² - x + 1 >= 3/4.
  const auto bounded = pg::supremum(1 / (x * x - x + 1), pg::box{x.in(-10, 10)});
  BOOST_TEST(bounded.upper < 4.0 / 3 * (1 + 1e-9));
}

BOOST_AUTO_TEST_SUITE_END()
