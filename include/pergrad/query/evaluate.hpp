// SPDX-License-Identifier: Apache-2.0
// pergrad/query/evaluate.hpp - a query's nodes as values of any arithmetic: doubles, records side by side, intervals
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <pergrad/query/box.hpp>
#include <pergrad/query/expression.hpp>

namespace pergrad::inline v0_1 {

namespace query::inside {

/// So many records at once, so that a compiler makes vectors of them.
struct lanes {
  static constexpr std::size_t count = 32;
  std::array<double, count> values;
};

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
        all([&](std::size_t i) { return real::one_over(x.values[i]); });
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
    found.values.fill(constant_of<double>(each));
    return found;
  } else {  // what is not defined anywhere is an interval without numbers
    return each.number <= each.number_above ? each.number : std::numeric_limits<double>::quiet_NaN();
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

/// Values of the fields of a query by their names. Throws std::invalid_argument for one that has none, or two.
template <class... Bindings>
[[nodiscard]] constexpr std::array<double, most_fields> bound_values(const node_list& list,
                                                                     const Bindings&... bindings) {
  std::array<double, most_fields> found{};
  for (std::size_t i = 0; i < place(list.field_count); ++i) {
    bool is_bound = false;
    [[maybe_unused]] const auto take = [&](const query::binding& each) {
      if (list.fields[i].compared(each.name) != 0) return;
      if (is_bound) field_has_value_twice(each.name);
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
    return values[output].is_empty() ? std::numeric_limits<double>::quiet_NaN() : values[output].middle();
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
