// SPDX-License-Identifier: Apache-2.0
// tests/query/expression_test.cpp - canonical form, derivatives, values, partial evaluation, text
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/query/derivative.hpp>
#include <pergrad/query/evaluate.hpp>
#include <pergrad/query/functions.hpp>
#include <pergrad/query/slopes.hpp>
#include <pergrad/query/text.hpp>
#include <pergrad/query/tree.hpp>

BOOST_AUTO_TEST_SUITE(query_expression)

namespace {

namespace pg = pergrad;
using pg::query::expression;
constexpr pg::field<"age"> a;
constexpr pg::field<"weight"> w;
constexpr pg::field<"height"> h;
constexpr auto bmi = a * w / (h * h);

std::string said(const expression& query) { return text(query); }

// Constants and values in constant expressions.
static_assert(bmi(a = 30, w = 80, h = 2) == 600);
static_assert(sqrt(a)(a = 9) == 3);

}  // namespace

BOOST_AUTO_TEST_CASE(one_value_has_one_form) {
  BOOST_TEST(said(bmi) == "age * weight / height^2");
  BOOST_TEST(said(w / h * (a / h)) == said(bmi));
  BOOST_TEST(said(pow(h, -2) * w * a) == said(bmi));
  BOOST_TEST(said(a * a / a) == "age");
  BOOST_TEST(said(2 * a + 3 * a - 5 * a) == "0");
  BOOST_TEST(said(w + a + 1 + w) == "age + 2 * weight + 1");
  BOOST_TEST(said(-(a - w)) == said(w - a));
  BOOST_TEST(said(2 * (a + w) - 2 * a) == "2 * weight");
  BOOST_TEST(said(sqrt(a) * sqrt(a)) == "age");
  BOOST_TEST(said(sqrt(a * a)) == "sqrt(age^2)");  // |age|, not age
  BOOST_TEST(said(pow(a * w, 3) / a) == "age^2 * weight^3");
  BOOST_TEST(said(min(a, w) + min(w, a)) == "2 * min(age, weight)");
  BOOST_TEST(said(exp(a) * exp(a)) == "exp(age)^2");
  BOOST_TEST(said(0 * log(a)) == "0");
  BOOST_TEST(said(where(a > w, h, h)) == "height");
  BOOST_TEST(said(as_written(h * h) / h) == "height^2 / height");
}
BOOST_AUTO_TEST_CASE(constants_are_folded_with_both_neighbours) {
  // 0.1 + 0.2 is no double: the query means the sum.
  const pg::interval sum = enclosure(expression{0.1} + 0.2, pg::box{a.in(0, 1)});
  BOOST_TEST(sum.contains(0.1 + 0.2));
  BOOST_TEST(sum.lower < sum.upper);
  const pg::interval exact = enclosure(expression{0.5} + 0.25, pg::box{a.in(0, 1)});
  BOOST_TEST((exact == pg::interval{0.75}));
}
BOOST_AUTO_TEST_CASE(printed) {
  BOOST_TEST(said(gradient(bmi)) == "(weight / height^2, -2 * age * weight / height^3, age / height^2)");
  BOOST_TEST(latex(bmi) == "\\frac{\\mathrm{age} \\, \\mathrm{weight}}{\\mathrm{height}^{2}}");
  BOOST_TEST(said(a / (w * (h - 1))) == "age / (weight * (height - 1))");
  BOOST_TEST(said((a + 1) * (w - 1) / 2) == "0.5 * (age + 1) * (weight - 1)");
  BOOST_TEST(said(pow(a + 1, 1.5)) == "(age + 1)^1.5");
  BOOST_TEST(said(pow(as_written(h * h), -2)) == "1 / (height^2)^2");
  BOOST_TEST(said(1 - tanh(-a / 2)) == "-tanh(-0.5 * age) + 1");
  BOOST_TEST(said(where(a < 65, w, 2 * w)) == "where(-age + 65 > 0, weight, 2 * weight)");
  constexpr pg::fields<"visits", 3> visits;
  BOOST_TEST(said(sum(visits)) == "visits[0] + visits[1] + visits[2]");
  BOOST_TEST(said(l2_norm(vector(a, w))) == "sqrt(age^2 + weight^2)");
}
BOOST_AUTO_TEST_CASE(a_tree_shows_where_a_bound_is_lost) {
  const pg::box in{a.in(1, 2), w.in(-1, 3)};
  const auto nodes = tree(exp(a) * (w - as_written(w)) + 1 / w, in);
  int wide = 0;
  for (const auto& node : nodes) {
    BOOST_TEST(node.enclosure.contains(node.range));
    for (const std::size_t operand : node.operands)
      BOOST_TEST(operand < static_cast<std::size_t>(&node - nodes.data()));
    if (node.formula == "-weight + weight") BOOST_TEST(node.excess() > 1e6);
    if (node.formula == "exp(age)") BOOST_TEST(node.excess() < 1.001);
    if (node.formula == "1 / weight") BOOST_TEST(!node.range.is_finite());
    wide += node.excess() > 1.01 ? 1 : 0;
  }
  BOOST_TEST(wide > 0);
  BOOST_TEST(describe(bmi, pg::box{a.in(18, 100), w.in(40, 200), h.in(2, 4)}) ==
             "[18, 100]  age\n[40, 200]  weight\n[2, 4]  height\n[0.0625, 0.25]  1 / height^2\n"
             "[1.125, 25]  age / height^2\n[45, 5000]  age * weight / height^2\n");
  const std::string dot = graphviz(w - as_written(w), in);
  BOOST_TEST(dot.find("n0 -> n1;") != std::string::npos);
  BOOST_TEST(dot.find("color=red") != std::string::npos);
}
BOOST_AUTO_TEST_CASE(values_and_partial_evaluation) {
  const double record = bmi(a = 40, w = 70, h = 1.75);
  BOOST_TEST(record == 40 * 70 / (1.75 * 1.75), boost::test_tools::tolerance(1e-15));
  const expression given = bmi.given(h = 1.75, a = 40);
  BOOST_TEST(given(w = 70) == record, boost::test_tools::tolerance(1e-15));
  BOOST_CHECK_THROW(static_cast<void>(bmi(a = 1, w = 1)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(gradient(bmi)(a = 1, w = 1, h = 1)), std::invalid_argument);
  const auto paths = where(a > 18 && (w <= 60 || !(h < 2)), exp(a), -a);
  BOOST_TEST(paths(a = 18, w = 1, h = 1) == -18);
  BOOST_TEST(paths(a = 19, w = 60, h = 1) == std::exp(19));
  BOOST_TEST(paths(a = 19, w = 61, h = 1) == -19);
  BOOST_TEST(paths(a = 19, w = 61, h = 2) == std::exp(19));
  BOOST_TEST(clamp(a, 3, 5)(a = 7) == 5);
  BOOST_TEST(dot(vector(a, w), vector(w, h))(a = 2, w = 3, h = 4) == 18);
}
// Operators and functions go through the values one by one; a single value goes with each.
BOOST_AUTO_TEST_CASE(vectors_go_together_value_by_value) {
  constexpr pg::fields<"visits", 3> v;
  BOOST_TEST(said(vector(a, w) + h) == "(age + height, height + weight)");
  BOOST_TEST(said(vector(a, w) - vector(w, a)) == "(age - weight, -age + weight)");
  BOOST_TEST(said(2 * vector(a, w) / h) == "(2 * age / height, 2 * weight / height)");
  BOOST_TEST(said(sum(v * a)) == "age * visits[0] + age * visits[1] + age * visits[2]");
  BOOST_TEST(said(min(vector(a, w), h)) == "(min(age, height), min(height, weight))");
  BOOST_TEST(said(clamp(vector(a, w), 0, 1)) == "(min(1, max(0, age)), min(1, max(0, weight)))");
  BOOST_TEST(said(where(vector(a, w) > h, 1, vector(w, a))) ==
             "(where(age - height > 0, 1, weight), where(-height + weight > 0, 1, age))");
  BOOST_TEST(said(vector(vector(a, w), h, v)) == "(age, weight, height, visits[0], visits[1], visits[2])");
  constexpr auto distance = l2_norm(vector(a, w) - pg::query::vector(1, 2));
  static_assert(distance.size() == 1);
  BOOST_TEST(distance(a = 4, w = 6) == 5);
  const auto unlike = [](const auto& make) {
    BOOST_CHECK_EXCEPTION(make(), std::invalid_argument, [](const std::exception& error) {
      return std::string{error.what()}.find("vectors of unlike sizes") != std::string::npos;
    });
  };
  unlike([] { static_cast<void>(vector(a, w) + vector(a, w, h)); });
  unlike([] { static_cast<void>(dot(vector(a, w), expression{h})); });
  unlike([] { static_cast<void>(where(vector(a, w) > 0, vector(a, w, h), 0)); });
  const auto eight = vector(a, w, h, a, w, h, a, w);
  BOOST_TEST(vector(eight, eight, eight).size() == 24);
  BOOST_CHECK_THROW(static_cast<void>(vector(eight, eight, eight, a)), std::invalid_argument);
}
BOOST_AUTO_TEST_CASE(too_large_a_query_is_refused) {
  expression query{0};
  const auto grow = [&] {
    for (int i = 0; i < 600; ++i) query = sin(query + a);
  };
  BOOST_CHECK_THROW(grow(), std::invalid_argument);
}
BOOST_AUTO_TEST_CASE(derivatives_are_slopes) {
  // Of every function: the closed form against a difference quotient, and inside the enclosure of slopes; twice.
  const expression formulas[] = {a * w / (h * h),      sqrt(a) + pow(w, 1.5),
                                 exp(a / 3) * w,       log(a * h + w),
                                 sin(a * w),           cos(a - w / h),
                                 tanh(a * h - w),      sigmoid(w - a),
                                 softplus(a * w - 2),  erf(a / w),
                                 abs(a - 3) * w,       min(a, w * h),
                                 max(a * a, w),        pow(a + w, -3),
                                 pow(a, 0.3),          where(a > w, a * a, w / h),
                                 as_written(a * w) * a};
  std::mt19937_64 words{3};
  std::uniform_real_distribution<> values{0.6, 2.4};
  for (const expression& each : formulas) {
    for (const expression& query : {each, derivative(each, a)}) {
      for (int point = 0; point < 50; ++point) {
        const double at = values(words);
        const double weight = values(words);
        const double height = values(words);
        constexpr double step = 1e-5;
        const auto value = [&](double age) { return query(a = age, w = weight, h = height); };
        if (std::fabs(at - weight) < 2 * step || std::fabs(at - weight * height) < 2 * step) continue;  // a kink
        if (std::fabs(at * at - weight) < 2 * step) continue;
        const double quotient = (value(at + step) - value(at - step)) / (2 * step);
        const double closed = derivative(query, a)(a = at, w = weight, h = height);
        BOOST_TEST_CONTEXT(text(query)) {
          BOOST_TEST(std::fabs(quotient - closed) <= 1e-6 * (1 + std::fabs(closed)));
          const auto& list = pg::query::inside::query_access::nodes(query);
          const pg::box in{a.in(at - step, at + step), w.in(weight, weight), h.in(height, height)};
          pg::query::inside::node_values<pg::interval> nodes{};
          pg::query::inside::evaluate_nodes(list, in.of(query).data(), nodes);
          const auto slopes = pg::query::inside::slopes_of(list, nodes, list.outputs[0]);
          pg::interval slope{0};
          for (int i = 0; i < list.field_count; ++i) {
            if (std::string{list.fields[static_cast<std::size_t>(i)].text} == "age")
              slope = slopes[static_cast<std::size_t>(i)];
          }
          const double rounding = 1e-12 * (1 + std::fabs(closed));
          BOOST_TEST(slope.lower <= closed + rounding);
          BOOST_TEST(slope.upper >= closed - rounding);
        }
      }
    }
  }
}
BOOST_AUTO_TEST_CASE(a_kink_has_the_slopes_of_both_sides) {
  const pg::box in{a.in(-1, 2)};
  BOOST_TEST((enclosure(derivative(abs(a), a), in) == pg::interval{-1, 1}));
  BOOST_TEST((enclosure(derivative(max(a, 0), a), in) == pg::interval{0, 1}));
  BOOST_TEST((enclosure(derivative(where(a > 0, 3 * a, -a), a), in) == pg::interval{-1, 3}));
  BOOST_TEST((enclosure(derivative(abs(a), a), pg::box{a.in(1, 2)}) == pg::interval{1}));
}

BOOST_AUTO_TEST_SUITE_END()
