// SPDX-License-Identifier: Apache-2.0
// pergrad/query/derivative.hpp - closed forms of derivatives: expressions like all others, of any order
//
// Where a formula has a kink (abs, min, max, where), its derivative is that of either side, chosen as the formula
// chooses; as intervals both sides are enclosed. A jump of `where` has no derivative: sensitivity.hpp refuses it where
// one is asked for.
#pragma once

#include <array>
#include <cstdint>

#include <pergrad/query/expression.hpp>

namespace pergrad::inline v0_1 {

namespace query::inside {

/// Derivatives of all nodes from 0 to `last` by one field, each a node of the same builder.
constexpr int differentiated(builder& all, int last, int field) {
  std::array<std::int16_t, most_nodes> derivatives{};
  std::array<bool, most_nodes> is_known{};
  // Of operands first: no node is before them. By a list of those that wait, as there is no telling how deep it is.
  const int zero = all.constant(0.0);
  const auto derivative = [&](int i) -> int { return derivatives[place(i)]; };
  std::array<std::int16_t, most_nodes> waiting{};
  int count = 0;
  waiting[0] = static_cast<std::int16_t>(last);
  count = 1;
  while (count > 0) {
    const int i = waiting[place(count - 1)];
    const node each = all.at(i);
    bool is_ready = true;
    if (each.kind != node_kind::field) {
      for (const std::int16_t operand : {each.first, each.second, each.third}) {
        if (operand < 0 || is_known[place(operand)]) continue;
        waiting[place(count++)] = operand;
        is_ready = false;
        break;
      }
    }
    if (!is_ready) continue;
    --count;
    const int x = each.first;
    const int y = each.second;
    const auto chained = [&](int factor) { return all.multiply(factor, derivative(x)); };
    int found = zero;
    switch (each.kind) {
      case node_kind::constant:
      case node_kind::sign:
        break;
      case node_kind::field:
        found = i == field ? all.constant(1.0) : zero;
        break;
      case node_kind::add:
        found = all.add(derivative(x), derivative(y));
        break;
      case node_kind::multiply:
        found = all.add(all.multiply(derivative(x), y), all.multiply(x, derivative(y)));
        break;
      case node_kind::power: {
        const interval below = interval{each.number} - interval{1};
        // An exponent that is no double after all: x^y / x.
        const int lowered = below.is_point() ? all.power(x, below.lower) : all.multiply(i, all.power(x, -1));
        found = chained(all.multiply(all.constant(each.number), lowered));
        break;
      }
      case node_kind::exp:
        found = chained(i);
        break;
      case node_kind::log:
        found = chained(all.power(x, -1));
        break;
      case node_kind::sin:
        found = chained(all.apply(node_kind::cos, x));
        break;
      case node_kind::cos:
        found = chained(all.negative(all.apply(node_kind::sin, x)));
        break;
      case node_kind::tanh:
        found = chained(all.subtract(all.constant(1.0), all.power(i, 2)));
        break;
      case node_kind::sigmoid:
        found = chained(all.multiply(i, all.apply(node_kind::sigmoid, all.negative(x))));
        break;
      case node_kind::softplus:
        found = chained(all.apply(node_kind::sigmoid, x));
        break;
      case node_kind::erf:
        found = chained(
            all.multiply(all.constant(two_by_root_pi), all.apply(node_kind::exp, all.negative(all.power(x, 2)))));
        break;
      case node_kind::abs:
        found = chained(all.apply(node_kind::sign, x));
        break;
      case node_kind::min:
        found = all.select(all.subtract(y, x), derivative(x), derivative(y));
        break;
      case node_kind::max:
        found = all.select(all.subtract(x, y), derivative(x), derivative(y));
        break;
      case node_kind::select:
        found = all.select(x, derivative(y), derivative(each.third));
        break;
      case node_kind::as_written:
        found = derivative(x);
        break;
    }
    derivatives[place(i)] = static_cast<std::int16_t>(found);
    is_known[place(i)] = true;
  }
  return derivative(last);
}

}  // namespace query::inside

namespace query {

/// Derivative of every value by one field.
[[nodiscard]] constexpr expression derivative(const expression& of, const field_base& by) {
  return inside::query_access::mapped(
      of, [&by](auto& all, int i) { return inside::differentiated(all, i, all.field(by.name())); });
}
/// Derivatives by all fields that the expression reads, in the order of their names; of several values those of the
/// first one come first.
[[nodiscard]] constexpr expression gradient(const expression& of) {
  const inside::node_list& nodes = inside::query_access::nodes(of);
  return inside::proven([&] {
    inside::builder all;
    const auto from = all.imported(nodes);
    std::array<std::int16_t, inside::most_outputs> outputs{};
    int count = 0;
    for (int i = 0; i < of.size(); ++i) {
      for (int j = 0; j < nodes.field_count; ++j) {
        if (inside::place(count) == inside::most_outputs) inside::query_has_too_many_nodes();
        const int field = all.field(nodes.fields[inside::place(j)]);
        outputs[inside::place(count++)] =
            static_cast<std::int16_t>(inside::differentiated(all, from[inside::place(i)], field));
      }
    }
    return inside::query_access::of(all.finished(outputs, count));
  });
}

}  // namespace query

// NOLINTBEGIN(misc-unused-using-decls): for users
using query::derivative;
using query::gradient;
// NOLINTEND(misc-unused-using-decls)

}  // namespace pergrad::inline v0_1
