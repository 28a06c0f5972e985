// SPDX-License-Identifier: Apache-2.0
// tests/query/release_test.cpp - sensitivities, shares, and released sums, with an adversary who looks for more
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mpfr.h>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/query.hpp>

BOOST_AUTO_TEST_SUITE(query_release)

namespace {

namespace pg = pergrad;
using pg::query::expression;
using numbers = std::vector<double>;
using removal_ledger = pg::privacy_accountant;
using replacement_ledger = pg::basic_privacy_accountant<pg::replace_one_gaussian_event>;
constexpr pg::field<"age"> age;
constexpr pg::field<"weight"> weight;
constexpr pg::field<"height"> height;
constexpr auto bmi = age * weight / (height * height);
constexpr auto people = pg::box{age.in(18, 100), weight.in(40, 200), height.in(1.4, 2.1)};
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Also in constant expressions.
constexpr auto removed = pg::sensitivity(bmi, people, pg::neighbouring::add_or_remove_one);
constexpr auto replaced = pg::sensitivity(bmi, people, pg::neighbouring::replace_one);
static_assert(removed.bound >= 200 * 100 / (1.4 * 1.4) && removed.bound < 10204.0816327);
static_assert(replaced.bound >= 10040.8163265 && replaced.bound < 10040.8163266);

/// Records as rows.
struct table {
  numbers ages;
  numbers weights;
  numbers heights;
  void add(double a, double w, double h) { ages.push_back(a), weights.push_back(w), heights.push_back(h); }
  [[nodiscard]] pg::records records() const { return pg::records{age = ages, weight = weights, height = heights}; }
};
/// What is under the noise: a seed allows none.
template <class Ledger>
numbers exact(const expression& query, const table& data) {
  Ledger ledger;
  pg::seeded_generator generator{1};
  const auto found = pg::release(ledger, generator, pg::noise_multiplier{0}, query, people, data.records());
  return {found.values().begin(), found.values().end()};
}
template <class Ledger>
double deviation_at(const expression& query, const table& data, pg::noise_multiplier noise) {
  Ledger ledger;
  pg::seeded_generator generator{1};
  return pg::release(ledger, generator, noise, query, people, data.records()).deviation();
}
table some_people(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 words{seed};
  const auto number = [&](double low, double high) { return std::uniform_real_distribution<>{low, high}(words); };
  table found;
  for (std::size_t i = 0; i < count; ++i) found.add(number(18, 100), number(40, 200), number(1.4, 2.1));
  return found;
}

/// How many times the claimed sensitivity an adversary moves a sum, who chooses records: corners of the box, beyond it,
/// and what is no number.
double most_found(const std::function<numbers(const table&)>& sum, double claimed, bool replaces) {
  const table others = some_people(20, 3);
  const double choices[][3] = {
      {18, 40, 2.1},    {100, 200, 1.4}, {1e6, 200, 1.4},      {100, 200, 1e-9},          {nan, 200, 1.4},
      {100, nan, 1.4},  {100, 200, nan}, {infinity, 200, 1.4}, {-1e9, 200, 1.4},          {100, 200, 0},
      {100, 200, -1.4}, {nan, nan, nan}, {infinity, 0, 0.0},   {-infinity, 1e300, 1e-300}};
  double most = 0;
  const auto difference = [&](const table& first, const table& second) {
    const numbers a = sum(first);
    const numbers b = sum(second);
    double square = 0;
    for (std::size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
    return std::isnan(square) ? infinity : std::sqrt(square) / claimed;
  };
  for (const auto& one : choices) {
    table with = others;
    with.add(one[0], one[1], one[2]);
    if (!replaces) {
      most = std::max(most, difference(with, others));
      continue;
    }
    for (const auto& other : choices) {
      table instead = others;
      instead.add(other[0], other[1], other[2]);
      most = std::max(most, difference(with, instead));
    }
  }
  return most;
}
/// A step of the grid is 2^-11 of the bound or less; what is released is rounded to it.
constexpr double grid = 1 + 0x1p-10;

}  // namespace

BOOST_AUTO_TEST_CASE(sums_of_records) {
  const table data = some_people(1000, 1);
  const numbers each = evaluate(bmi, data.records());
  double sum = 0;
  for (std::size_t i = 0; i < each.size(); ++i) {
    BOOST_REQUIRE(std::fabs(each[i] - data.ages[i] * data.weights[i] / (data.heights[i] * data.heights[i])) <=
                  1e-12 * each[i]);
    sum += each[i];
  }
  const double step = removed.bound * 0x1p-11;
  BOOST_TEST(std::fabs(exact<removal_ledger>(bmi, data)[0] - sum) <= 1000 * step / 2);
  BOOST_TEST(std::fabs(exact<replacement_ledger>(bmi, data)[0] - sum) <= 1000 * step / 2);
  const numbers two = exact<removal_ledger>(vector(age, sqrt(weight)), data);
  BOOST_TEST(two.size() == 2U);
}
BOOST_AUTO_TEST_CASE(no_record_moves_a_sum_by_more_than_is_claimed) {
  const auto vectors = vector(bmi / 100, age, weight);
  for (const expression& query : {bmi, vectors, where(age > 50, bmi, -weight), log(height - 1.3) * age}) {
    const double all = pg::sensitivity(query, people, pg::neighbouring::add_or_remove_one).bound;
    const double range = pg::sensitivity(query, people, pg::neighbouring::replace_one).bound;
    BOOST_TEST_CONTEXT(text(query)) {
      const double by_removal =
          most_found([&](const table& data) { return exact<removal_ledger>(query, data); }, all, false);
      const double by_replacement =
          most_found([&](const table& data) { return exact<replacement_ledger>(query, data); }, range, true);
      BOOST_TEST(by_removal <= grid);
      BOOST_TEST(by_replacement <= grid);
      // And what is said to be attained is: the proof is of a point, which no bound is below.
      const pg::query_sensitivity added = pg::sensitivity(query, people, pg::neighbouring::add_or_remove_one);
      const pg::query_sensitivity exchanged = pg::sensitivity(query, people, pg::neighbouring::replace_one);
      BOOST_TEST(added.attained <= added.bound);
      BOOST_TEST(exchanged.attained <= exchanged.bound);
      BOOST_TEST(added.attained >= 0.999 * added.bound);
      BOOST_TEST(exchanged.attained >= (query.size() == 1 ? 0.999 : 0.8) * exchanged.bound);
      // The adversary is no fool: records at the corners come close to what is possible.
      if (query.size() == 1) BOOST_TEST(by_removal >= 0.9);
    }
  }
}
BOOST_AUTO_TEST_CASE(two_records_at_the_ends_of_a_diameter_attain_it) {
  constexpr pg::query_sensitivity found =
      pg::sensitivity(vector(age, weight), people, pg::neighbouring::replace_one);  // 18 to 100, 40 to 200
  static_assert(found.attained <= found.bound && found.bound <= found.attained * (1 + 1e-9));
  BOOST_TEST(std::fabs(found.attained - std::hypot(82.0, 160.0)) < 1e-9);
  // A triangle: no ball around its middle says how far its corners are apart.
  const auto folded = vector(age / 100, max(0.0, age / 100 - 0.59));
  const pg::query_sensitivity corner = pg::sensitivity(folded, people, pg::neighbouring::replace_one);
  BOOST_TEST(std::fabs(corner.attained - std::hypot(0.82, 0.41)) < 1e-9);
}
BOOST_AUTO_TEST_CASE(the_adversary_finds_planted_weaknesses) {
  // Clamping left out.
  const auto unclamped = [](const table& data) {
    double sum = 0;
    for (const double each : evaluate(bmi, data.records())) sum += each;
    return numbers{sum};
  };
  BOOST_TEST(most_found(unclamped, removed.bound, false) > grid);
  // Fields clamped, but a NaN is left as it is.
  const auto with_nan = [](const table& data) {
    table inside = data;
    for (double& each : inside.ages) each = std::isnan(each) ? each : std::clamp(each, 18.0, 100.0);
    for (double& each : inside.weights) each = std::isnan(each) ? each : std::clamp(each, 40.0, 200.0);
    for (double& each : inside.heights) each = std::isnan(each) ? each : std::clamp(each, 1.4, 2.1);
    double sum = 0;
    for (const double each : evaluate(bmi, inside.records())) sum += each;
    return numbers{sum};
  };
  BOOST_TEST(most_found(with_nan, removed.bound, false) > grid);
  // The value in the middle of the box for a bound, half a range for a whole one.
  const auto sum = [](const table& data) { return exact<removal_ledger>(bmi, data); };
  BOOST_TEST(most_found(sum, bmi(age = 59, weight = 120, height = 1.75), false) > grid);
  const auto by_replacement = [](const table& data) { return exact<replacement_ledger>(bmi, data); };
  BOOST_TEST(most_found(by_replacement, replaced.bound / 2, true) > grid);
}
BOOST_AUTO_TEST_CASE(a_bound_that_is_rounded_down_is_found) {
  // sup a w / h² is at a corner; MPFR rounds it down from 300 bits. The formula in doubles is below it for some boxes,
  // the certificate for none.
  std::mt19937_64 words{8};
  const auto number = [&](double low, double high) { return std::uniform_real_distribution<>{low, high}(words); };
  int naive_is_below = 0;
  mpfr_t value;
  mpfr_init2(value, 300);
  for (int i = 0; i < 500; ++i) {
    const double a = number(1, 100);
    const double w = number(1, 200);
    const double h = number(0.5, 2);
    mpfr_set_d(value, a, MPFR_RNDN);
    mpfr_mul_d(value, value, w, MPFR_RNDN);
    mpfr_div_d(value, value, h, MPFR_RNDN);
    mpfr_div_d(value, value, h, MPFR_RNDN);
    const pg::box in{age.in(1, a), weight.in(1, w), height.in(h, 3)};
    naive_is_below += mpfr_cmp_d(value, a * w / (h * h)) > 0 ? 1 : 0;
    const double proven = pg::supremum(bmi, in).upper;
    BOOST_TEST(mpfr_cmp_d(value, proven) <= 0);
    BOOST_TEST(proven <= a * w / (h * h) * (1 + 1e-15));
  }
  mpfr_clear(value);
  BOOST_TEST(naive_is_below > 50);
}
BOOST_AUTO_TEST_CASE(lipschitz_bounds_and_shares) {
  const auto steepest = pg::lipschitz(bmi, people);
  BOOST_TEST(steepest.upper == 14577.7058969543593, boost::test_tools::tolerance(1e-14));
  std::mt19937_64 words{2};
  const auto inside = [&](double low, double high) { return std::uniform_real_distribution<>{low, high}(words); };
  const expression query = vector(abs(age - 50) * height, min(weight, 2 * age), tanh(weight / 50));
  const double bound = pg::lipschitz(query, people).upper;
  double most = 0;
  for (int i = 0; i < 5000; ++i) {
    const double a = inside(18, 100);
    const double w = inside(40, 200);
    const double h = inside(1.4, 2.1);
    const double b = std::clamp(a + inside(-1e-3, 1e-3), 18.0, 100.0);
    const double v = std::clamp(w + inside(-1e-3, 1e-3), 40.0, 200.0);
    const double k = std::clamp(h + inside(-1e-3, 1e-3), 1.4, 2.1);
    const double distance = std::hypot(a - b, w - v, h - k);
    double square = 0;
    for (int j = 0; j < 3; ++j) {
      const double change = query[j](age = a, weight = w, height = h) - query[j](age = b, weight = v, height = k);
      square += change * change;
    }
    most = std::max(most, std::sqrt(square) / distance);
  }
  BOOST_TEST(most <= bound * (1 + 1e-9));
  BOOST_TEST(most >= bound * 0.5);
  const auto jumps = [] { static_cast<void>(pg::lipschitz(where(age > 65, weight, 0.0), people)); };
  BOOST_CHECK_EXCEPTION(jumps(), std::invalid_argument, [](const std::invalid_argument& error) {
    return std::string{error.what()}.find("where(age - 65 > 0, weight, 0)") != std::string::npos;
  });
  // So do signs, and poles that are clamped: both are constant on either side.
  const expression clamped_pole = clamp(1 / (age - 50), -1, 1);
  for (const expression& each : {derivative(abs(age - 50), age), clamped_pole, tanh(pow(age - 50, -3))}) {
    BOOST_CHECK_THROW(static_cast<void>(pg::lipschitz(each, people)), std::invalid_argument);
    const auto share = pg::field_shares(each, people).front();
    BOOST_TEST(std::isinf(share.slope));
    BOOST_TEST(share.change >= 2 * (1 - 1e-6));
  }
  // What is not defined parts the box: ((age - 59)² - 100)^1.5 has no values around the middle, and what stands beside
  // it jumps.
  const expression parted = clamp(1e6 * (age - 59), -1, 1) + 1e-9 * pow(pow(age - 59, 2) - 100, 1.5);
  BOOST_CHECK_THROW(static_cast<void>(pg::lipschitz(parted, people)), std::invalid_argument);
  BOOST_TEST(pg::field_shares(parted, people).front().change >= 2);
  BOOST_CHECK_THROW(static_cast<void>(pg::lipschitz(log(pow(age - 59, 2) - 100), people)), std::invalid_argument);
  // So do poles and logarithms of what is 0 in a part of the box: the value jumps from there to there.
  {
    constexpr pg::field<"b"> b;
    const pg::box around{b.in(-1, 1)};
    const expression gap = max(abs(b) - 0.5, 0);
    const expression steep = clamp(10 * b, -4, 4);
    for (const expression& each :
         {min(steep, 100 + 1 / gap), where(1 / gap > 0, steep, 0), where(log(gap) < 100, steep, 0),
          where(pow(gap, -0.5) > 0, steep, 0), where(pow(gap, -2) > 0, steep, 0)}) {
      BOOST_TEST(each(b = 0.6) - each(b = -0.6) == 8, boost::test_tools::tolerance(1e-12));
      BOOST_CHECK_THROW(static_cast<void>(pg::lipschitz(each, around)), std::invalid_argument);
      BOOST_TEST(pg::field_shares(each, around).front().change >= 8 * (1 - 1e-9));
    }
    BOOST_TEST(pg::lipschitz(1 / (1 + max(b, 0)), around).upper == 1, boost::test_tools::tolerance(1e-9));
  }
  // On one side of a plane alone it is in one piece; and this is never below 0, though its enclosure is.
  BOOST_TEST(pg::lipschitz(pow(age - weight / 4, 1.5), people).upper >= 14);
  // A root that is defined at the box's edge alone.
  constexpr pg::field<"a"> a;
  constexpr pg::field<"c"> c;
  const pg::box edge{a.in(-4, 0), c.in(0, 1.75)};
  BOOST_CHECK_THROW(static_cast<void>(pg::lipschitz(sqrt(a) + sin(c), edge)), std::invalid_argument);
  BOOST_TEST(pg::lipschitz(sqrt(age * age / 1000 - age / 10 + 7), people).upper <= 1);
  // These have none: even poles, and a denominator whose interval alone holds 0.
  BOOST_TEST(pg::lipschitz(clamp(pow(age - 50, -2), -1, 1), people).upper >= 1.9);
  BOOST_TEST(pg::lipschitz(1 / (age * age / 1000 - age / 10 + 30), people).upper <= 1);
  BOOST_CHECK_THROW(static_cast<void>(pg::field_shares(vector(age, 100 * age + 5 * weight), people)),
                    std::invalid_argument);
  // Outside of the jump there is none.
  BOOST_TEST(pg::lipschitz(where(age > 100, weight, 3 * weight), people).upper == 3,
             boost::test_tools::tolerance(1e-12));
  const auto shares = pg::field_shares(10 * age + weight / 100, people);
  BOOST_TEST(shares.size() == 2U);
  BOOST_TEST(shares[0].field == "age");
  BOOST_TEST(shares[0].slope == 10, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(shares[0].change == 820, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(shares[0].share + shares[1].share == 1, boost::test_tools::tolerance(1e-12));
}
// A search that is stopped early makes a bound larger, also where nothing was attained yet.
BOOST_AUTO_TEST_CASE(a_sensitivity_that_is_found_in_a_hurry_is_one) {
  constexpr pg::field<"b"> b;
  const expression small_piece = vector(sqrt(0.01 - (b - 0.3) * (b - 0.3)), b);
  const pg::box around{b.in(-1, 1)};
  const double whole = pg::sensitivity(small_piece, around, pg::neighbouring::replace_one).attained;
  BOOST_TEST(whole > 0.19);
  for (const std::size_t boxes : {1U, 2U, 3U, 5U, 20U}) {
    const auto found = pg::sensitivity(small_piece, around, pg::neighbouring::replace_one, {.boxes = boxes});
    BOOST_TEST(found.bound >= whole, boxes << ": " << found.bound);
    BOOST_TEST(found.attained <= found.bound);
  }
}
BOOST_AUTO_TEST_CASE(what_a_release_costs) {
  const table data = some_people(10, 1);
  pg::seeded_generator generator{1};
  removal_ledger ledger;
  static_cast<void>(pg::release(ledger, generator, pg::noise_multiplier{2}, bmi, people, data.records()));
  removal_ledger same;
  same.spend(pg::sampled_gaussian_event{1, 2});
  BOOST_TEST(ledger.epsilon(pg::delta{1e-5}) == same.epsilon(pg::delta{1e-5}));
  replacement_ledger other;
  static_cast<void>(pg::release(other, generator, pg::noise_multiplier{2}, bmi, people, data.records()));
  replacement_ledger expected;
  expected.spend(pg::replace_one_gaussian_event{1, 2});
  BOOST_TEST(other.epsilon(pg::delta{1e-5}) >= expected.epsilon(pg::delta{1e-5}));
  BOOST_TEST(other.epsilon(pg::delta{1e-5}) == expected.epsilon(pg::delta{1e-5}), boost::test_tools::tolerance(1e-12));
  // Nothing is entered or drawn where something is wrong.
  const auto refused = [&](const expression& query, double noise, const pg::records& of) {
    BOOST_CHECK_THROW(static_cast<void>(pg::release(ledger, generator, pg::noise_multiplier{noise}, query, people, of)),
                      std::invalid_argument);
  };
  refused(1 / (height - 2), 1, data.records());
  refused(bmi, 1, pg::records{age = data.ages});
  refused(bmi, 1e-9, data.records());
  refused(age - age, 1, data.records());
  BOOST_TEST(ledger.epsilon(pg::delta{1e-5}) == same.epsilon(pg::delta{1e-5}));
  BOOST_CHECK_THROW((pg::records{age = data.ages, weight = numbers{1}}), std::invalid_argument);
  BOOST_CHECK_THROW((pg::records{age = data.ages, age = data.ages}), std::invalid_argument);
}
BOOST_AUTO_TEST_CASE(beyond_the_budget_nothing_is_entered_or_drawn) {
  const table data = some_people(10, 1);
  removal_ledger one;
  one.spend(pg::sampled_gaussian_event{1, 2});
  const pg::delta delta{1e-5};
  removal_ledger ledger{pg::privacy_budget{pg::epsilon{one.epsilon(delta) * 1.1}, delta}};
  pg::seeded_generator generator{1};
  const auto release = [&] {
    return pg::release(ledger, generator, pg::noise_multiplier{2}, bmi, people, data.records());
  };
  static_cast<void>(release());
  const std::uint64_t drawn = generator.step();
  BOOST_CHECK_THROW(static_cast<void>(release()), pg::budget_exhausted);
  BOOST_TEST(ledger.steps() == 1U);
  BOOST_TEST(generator.step() == drawn);
}
// Of a ledger of replaced records by half of how far they are apart, which its event counts twice.
BOOST_AUTO_TEST_CASE(noise_has_the_stated_deviation) {
  const table data = some_people(5, 1);
  const auto check = [&]<class Ledger>(const Ledger&, double record_adds) {
    pg::seeded_generator generator{4};
    const double centre = exact<Ledger>(bmi, data)[0];
    double square = 0;
    double stated = 0;
    constexpr int times = 4000;
    for (int i = 0; i < times; ++i) {
      Ledger ledger;
      const auto found = pg::release(ledger, generator, pg::noise_multiplier{1.5}, bmi, people, data.records());
      square += (found.value() - centre) * (found.value() - centre);
      stated = found.deviation();
    }
    BOOST_TEST(stated >= 1.5 * record_adds);
    BOOST_TEST(stated <= 1.5 * record_adds * 1.001);
    BOOST_TEST(std::sqrt(square / times) == stated, boost::test_tools::tolerance(5 / std::sqrt(2.0 * times)));
  };
  check(removal_ledger{}, removed.bound);
  check(replacement_ledger{}, replaced.bound / 2);
}
BOOST_AUTO_TEST_CASE(individual_costs) {
  table data;
  data.add(100, 200, 1.4);
  data.add(18, 40, 2.1);
  data.add(1e9, nan, 1.4);
  const auto found = pg::unprotected::individual_rdp(bmi, people, data.records(), pg::noise_multiplier{2}, 8);
  // Order v² / (2 sigma²), of what the release adds. The first record adds K, sigma = 2 K, but for half a step more.
  const double deviation = deviation_at<removal_ledger>(bmi, data, pg::noise_multiplier{2});
  const double small = 18 * 40 / (2.1 * 2.1) / removed.bound;
  const double wanted[]{1, small};
  for (const std::size_t record : {0U, 1U}) {
    table alone;
    alone.add(data.ages[record], data.weights[record], data.heights[record]);
    const double moved = exact<removal_ledger>(bmi, alone)[0] / deviation;
    BOOST_TEST(found[record] == 8 * moved * moved / 2, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(std::fabs(2 * moved - wanted[record]) <= 1.0 / 2048);  // a step of the grid is less
  }
  BOOST_TEST(found[0] <= 8 / (2 * 4.0));
  BOOST_TEST(found[2] <= found[0]);
}
// A record whose value is less than a step of the grid adds a whole one, or nothing.
BOOST_AUTO_TEST_CASE(individual_costs_are_of_what_is_added) {
  const expression query = age - 18;
  double most = 0;
  for (double years = 18; years < 101; years += years < 18.995 ? 0.01 : 9) {
    table data;
    data.add(years, 60, 1.7);
    const double moved =
        exact<removal_ledger>(query, data)[0] / deviation_at<removal_ledger>(query, data, pg::noise_multiplier{2});
    const auto found = pg::unprotected::individual_rdp(query, people, data.records(), pg::noise_multiplier{2}, 8);
    BOOST_TEST(found[0] >= 8 * moved * moved / 2 * (1 - 1e-9), years);
    BOOST_TEST(found[0] <= 8 * moved * moved / 2 * (1 + 1e-9), years);
    most = std::max(most, found[0]);
  }
  BOOST_TEST(most == 8 / (2 * 4.0), boost::test_tools::tolerance(1e-3));
}

BOOST_AUTO_TEST_SUITE_END()
