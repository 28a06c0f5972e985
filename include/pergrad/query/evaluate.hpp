// SPDX-License-Identifier: Apache-2.0
// pergrad/query/evaluate.hpp - a query's nodes as values of any arithmetic: doubles, records side by side, intervals
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/query/box.hpp>
#include <pergrad/query/expression.hpp>

namespace pergrad::inline v0_1 {

namespace query::inside {

/// Functions of doubles beside those of std, by the names that intervals have for theirs.
namespace real {
using std::abs, std::cos, std::erf, std::exp, std::log, std::sin, std::tanh;
[[nodiscard]] inline double sigmoid(double x) noexcept { return x > 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
[[nodiscard]] inline double softplus(double x) noexcept { return (x > 0 ? x : 0) + std::log1p(exp(-abs(x))); }
[[nodiscard]] inline double sign(double x) noexcept { return x > 0 ? 1 : x < 0 ? -1 : x; }
[[nodiscard]] inline double min(double x, double y) noexcept { return y < x ? y : x; }
[[nodiscard]] inline double max(double x, double y) noexcept { return x < y ? y : x; }
[[nodiscard]] inline double select(double x, double positive, double otherwise) noexcept {
  return x > 0 ? positive : otherwise;
}
/// Small whole powers by multiplications: they are what queries have.
[[nodiscard]] inline double pow(double x, double exponent) noexcept {
  if (exponent == -1) return 1 / x;
  if (exponent == 2) return x * x;
  if (exponent == -2) return 1 / (x * x);
  return exponent == 0.5 ? std::sqrt(x) : std::pow(x, exponent);
}
}  // namespace real

[[nodiscard]] constexpr interval sign(const interval& x) noexcept {
  return {x.lower > 0 ? 1.0 : x.lower == 0 ? 0.0 : -1.0, x.upper > 0 ? 1.0 : x.upper == 0 ? 0.0 : -1.0};
}
[[nodiscard]] constexpr interval select(const interval& x, const interval& positive,
                                        const interval& otherwise) noexcept {
  if (x.is_empty()) return hull(positive, otherwise);
  if (x.lower > 0) return positive;
  return x.upper <= 0 ? otherwise : hull(positive, otherwise);
}

/// So many records at once, so that a compiler makes vectors of them.
struct lanes {
  static constexpr std::size_t count = 32;
  std::array<double, count> values;
};

/// A node's value from its operands'.
template <class Value>
[[nodiscard]] constexpr Value value_of(const node& each, const Value& x, const Value& y, const Value& z) {
  using namespace real;
  switch (each.kind) {
    case node_kind::add:
      return x + y;
    case node_kind::multiply:
      return x * y;
    case node_kind::power:
      return pow(x, each.number);
    case node_kind::exp:
      return exp(x);
    case node_kind::log:
      return log(x);
    case node_kind::sin:
      return sin(x);
    case node_kind::cos:
      return cos(x);
    case node_kind::tanh:
      return tanh(x);
    case node_kind::sigmoid:
      return sigmoid(x);
    case node_kind::softplus:
      return softplus(x);
    case node_kind::erf:
      return erf(x);
    case node_kind::abs:
      return abs(x);
    case node_kind::sign:
      return sign(x);
    case node_kind::min:
      return min(x, y);
    case node_kind::max:
      return max(x, y);
    case node_kind::select:
      return select(x, y, z);
    default:
      return x;
  }
}
template <>
[[nodiscard]] inline lanes value_of(const node& each, const lanes& x, const lanes& y, const lanes& z) {
  lanes found;  // NOLINT(cppcoreguidelines-pro-type-member-init): all are set
  const auto all = [&](auto one) {
    for (std::size_t i = 0; i < lanes::count; ++i) found.values[i] = one(i);
  };
  switch (each.kind) {  // what is worth a loop of its own
    case node_kind::add:
      all([&](std::size_t i) { return x.values[i] + y.values[i]; });
      break;
    case node_kind::multiply:
      all([&](std::size_t i) { return x.values[i] * y.values[i]; });
      break;
    case node_kind::power:
      if (each.number == -1) {
        all([&](std::size_t i) { return 1 / x.values[i]; });
        break;
      }
      [[fallthrough]];
    default:
      all([&](std::size_t i) { return value_of<double>(each, x.values[i], y.values[i], z.values[i]); });
  }
  return found;
}

template <class Value>
[[nodiscard]] constexpr Value constant_of(const node& each) noexcept {
  if constexpr (std::is_same_v<Value, interval>) {
    return {each.number, each.number_above};
  } else if constexpr (std::is_same_v<Value, lanes>) {
    lanes found{};
    found.values.fill(each.number);
    return found;
  } else {
    return each.number;
  }
}

template <class Value>
using node_values = std::array<Value, most_nodes>;

/// All nodes' values, given the fields'; `values` holds as many as there are nodes.
template <class Value, class Values>
constexpr void evaluate_nodes(const node_list& list, const Value* fields, Values& values) {
  for (std::size_t i = 0; i < place(list.node_count); ++i) {
    const node& each = list.nodes[i];
    if (each.kind == node_kind::constant) {
      values[i] = constant_of<Value>(each);
    } else if (each.kind == node_kind::field) {
      values[i] = fields[each.first];
    } else {
      const Value& first = values[place(each.first)];
      values[i] = value_of<Value>(each, first, each.second < 0 ? first : values[place(each.second)],
                                  each.third < 0 ? first : values[place(each.third)]);
    }
  }
}

/// Values of the fields of a query by their names. Throws std::invalid_argument for one that has none.
template <class... Bindings>
[[nodiscard]] constexpr std::array<double, most_fields> bound_values(const node_list& list,
                                                                     const Bindings&... bindings) {
  std::array<double, most_fields> found{};
  for (std::size_t i = 0; i < place(list.field_count); ++i) {
    bool is_bound = false;
    const auto take = [&](const query::binding& each) {
      if (list.fields[i].compared(each.name) != 0) return;
      found[i] = each.value;
      is_bound = true;
    };
    (take(bindings), ...);
    if (!is_bound) field_has_no_value(short_text_of(list.fields[i]));
  }
  return found;
}

}  // namespace query::inside

namespace query {

template <class... Bindings>
constexpr double expression::operator()(const Bindings&... bindings) const {
  if (size() != 1) query::inside::query_has_several_values(size());
  const auto fields = query::inside::bound_values(nodes_, bindings...);
  const std::size_t output = query::inside::place(nodes_.outputs[0]);
  if (std::is_constant_evaluated()) {
    query::inside::field_intervals points{};
    for (std::size_t i = 0; i < fields.size(); ++i) points[i] = fields[i];
    query::inside::node_values<interval> values{};
    query::inside::evaluate_nodes(nodes_, points.data(), values);
    return values[output].middle();
  }
  query::inside::node_values<double> values;
  query::inside::evaluate_nodes(nodes_, fields.data(), values);
  return values[output];
}

/// Encloses all values of every node of a query in a box: the query's own as `[i]`.
[[nodiscard]] constexpr interval enclosure(const expression& query, const box& in, int i = 0) {
  const inside::node_list& list = inside::query_access::nodes(query);
  const inside::field_intervals fields = in.of(query);
  return inside::proven([&] {
    inside::node_values<interval> values{};
    inside::evaluate_nodes(list, fields.data(), values);
    return values[inside::place(list.outputs[inside::place(i)])];
  });
}

}  // namespace query
}  // namespace pergrad::inline v0_1
