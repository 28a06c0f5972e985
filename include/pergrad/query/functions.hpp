// SPDX-License-Identifier: Apache-2.0
// pergrad/query/functions.hpp - what expressions are made of: operators, functions, conditions, vectors
//
// Of expressions of several values, functions and operators give as many, value by value; one of a single value goes
// with each of them. Sizes that differ otherwise are an error.
#pragma once

#include <array>
#include <cstdint>

#include <pergrad/query/expression.hpp>

namespace pergrad::inline v0_1::query {

// NOLINTBEGIN(misc-redundant-expression)
[[nodiscard]] constexpr expression operator+(const expression& x, const expression& y) {
  return query::inside::query_access::made([](auto& all, int i, int j) { return all.add(i, j); }, x, y);
}
[[nodiscard]] constexpr expression operator-(const expression& x, const expression& y) {
  return query::inside::query_access::made([](auto& all, int i, int j) { return all.subtract(i, j); }, x, y);
}
[[nodiscard]] constexpr expression operator*(const expression& x, const expression& y) {
  return query::inside::query_access::made([](auto& all, int i, int j) { return all.multiply(i, j); }, x, y);
}
[[nodiscard]] constexpr expression operator/(const expression& x, const expression& y) {
  return query::inside::query_access::made([](auto& all, int i, int j) { return all.multiply(i, all.power(j, -1)); }, x,
                                           y);
}
// NOLINTEND(misc-redundant-expression)
[[nodiscard]] constexpr expression operator-(const expression& x) {
  return query::inside::query_access::mapped(x, [](auto& all, int i) { return all.negative(i); });
}
/// x^y; of a y that is not whole, of x >= 0 only.
[[nodiscard]] constexpr expression pow(const expression& x, double y) {
  return query::inside::query_access::mapped(x, [y](auto& all, int i) { return all.power(i, y); });
}
[[nodiscard]] constexpr expression sqrt(const expression& x) { return pow(x, 0.5); }
[[nodiscard]] constexpr expression exp(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::exp, x);
}
[[nodiscard]] constexpr expression log(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::log, x);
}
[[nodiscard]] constexpr expression sin(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::sin, x);
}
[[nodiscard]] constexpr expression cos(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::cos, x);
}
[[nodiscard]] constexpr expression tanh(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::tanh, x);
}
/// 1 / (1 + e^-x).
[[nodiscard]] constexpr expression sigmoid(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::sigmoid, x);
}
/// log(1 + e^x).
[[nodiscard]] constexpr expression softplus(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::softplus, x);
}
[[nodiscard]] constexpr expression erf(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::erf, x);
}
[[nodiscard]] constexpr expression abs(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::abs, x);
}
/// x, which nothing is merged with: what is made of it stays as it is written. To see what canonical form is worth.
[[nodiscard]] constexpr expression as_written(const expression& x) {
  return query::inside::query_access::applied(query::inside::node_kind::as_written, x);
}
[[nodiscard]] constexpr expression min(const expression& x, const expression& y) {
  return query::inside::query_access::made(
      [](auto& all, int i, int j) { return all.extreme(query::inside::node_kind::min, i, j); }, x, y);
}
[[nodiscard]] constexpr expression max(const expression& x, const expression& y) {
  return query::inside::query_access::made(
      [](auto& all, int i, int j) { return all.extreme(query::inside::node_kind::max, i, j); }, x, y);
}
/// Throws std::invalid_argument where the bounds are no interval.
[[nodiscard]] constexpr expression clamp(const expression& x, double lower, double upper) {
  if (!(lower <= upper)) query::inside::bounds_of_clamp_are_no_interval(lower, upper);
  return min(max(x, lower), upper);
}

[[nodiscard]] constexpr condition operator>(const expression& x, const expression& y) { return condition{x - y}; }
[[nodiscard]] constexpr condition operator<(const expression& x, const expression& y) { return condition{y - x}; }
[[nodiscard]] constexpr condition operator!(const condition& x) {
  return condition{query::inside::query_access::made(
      [](auto& all, int i) { return all.select(i, all.constant(-1.0), all.constant(1.0)); }, x.above_zero())};
}
[[nodiscard]] constexpr condition operator>=(const expression& x, const expression& y) { return !(x < y); }
[[nodiscard]] constexpr condition operator<=(const expression& x, const expression& y) { return !(x > y); }
[[nodiscard]] constexpr condition operator&&(const condition& x, const condition& y) {
  return condition{min(x.above_zero(), y.above_zero())};
}
[[nodiscard]] constexpr condition operator||(const condition& x, const condition& y) {
  return condition{max(x.above_zero(), y.above_zero())};
}
/// `positive` where the condition holds, `otherwise` elsewhere. Both are kept: a bound counts what is possible in a
/// box.
[[nodiscard]] constexpr expression where(const condition& holds, const expression& positive,
                                         const expression& otherwise) {
  return query::inside::query_access::made([](auto& all, int i, int j, int k) { return all.select(i, j, k); },
                                           holds.above_zero(), positive, otherwise);
}

/// The values of several expressions, one behind the other, as one of several values.
template <class... Expressions>
[[nodiscard]] constexpr expression vector(const Expressions&... from) {
  query::inside::builder all;
  std::array<std::int16_t, query::inside::most_outputs> outputs{};
  int count = 0;
  const auto append = [&](const expression& each) {
    const auto values = all.imported(query::inside::query_access::nodes(each));
    for (int i = 0; i < each.size(); ++i) {
      if (query::inside::place(count) == query::inside::most_outputs) query::inside::query_has_too_many_nodes();
      outputs[query::inside::place(count++)] = values[query::inside::place(i)];
    }
  };
  (append(from), ...);
  return query::inside::query_access::of(all.finished(outputs, count));
}
/// Sum of all values of an expression, or of a list of fields.
[[nodiscard]] constexpr expression sum(const expression& from) {
  expression total{0.0};
  for (int i = 0; i < from.size(); ++i) total = total + from[i];
  return total;
}
/// Square root of the sum of squares.
[[nodiscard]] constexpr expression l2_norm(const expression& from) { return sqrt(sum(pow(from, 2))); }
/// Sum of products of two of as many values.
[[nodiscard]] constexpr expression dot(const expression& x, const expression& y) {
  if (x.size() != y.size()) query::inside::query_has_vectors_of_unlike_sizes();
  expression total{0.0};
  for (int i = 0; i < x.size(); ++i) total = total + x[i] * y[i];
  return total;
}

}  // namespace pergrad::inline v0_1::query

namespace pergrad::inline v0_1 {
using query::l2_norm;  // NOLINT(misc-unused-using-decls): for users
}  // namespace pergrad::inline v0_1
