// SPDX-License-Identifier: Apache-2.0
// pergrad/query/slopes.hpp - enclosures of all partial derivatives in a box, by one pass back through the nodes
//
// Every node's adjoint is enclosed, so the result encloses the gradient wherever there is one. At a kink it encloses
// the slopes of both sides (Clarke's gradient), so the mean value theorem holds with it. Where a formula may jump,
// nothing is known of it: all that lies below such a `where` has the slope [-inf, inf].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <pergrad/query/evaluate.hpp>

namespace pergrad::inline v0_1::query::inside {

/// A `where` whose condition may hold and may not.
[[nodiscard]] constexpr bool may_jump(const node& each, const node_values<interval>& values) noexcept {
  if (each.kind != node_kind::select) return false;
  const interval& sign = values[place(each.first)];
  return sign.lower <= 0 && sign.upper > 0;
}

/// Whether all points of the box have a value of every node: only then do slopes tell of all of it.
[[nodiscard]] constexpr bool is_defined_everywhere(const node_list& list,
                                                   const node_values<interval>& values) noexcept {
  for (std::size_t i = 0; i < place(list.node_count); ++i) {
    const node& each = list.nodes[i];
    // Of a path of a `where`, say, the other one of which has values.
    if (each.kind == node_kind::constant && values[i].is_empty()) return false;
    if (each.kind != node_kind::power && each.kind != node_kind::log) continue;
    const interval& x = values[place(each.first)];
    if (each.kind == node_kind::log && !(x.lower > 0)) return false;
    if (each.kind == node_kind::log) continue;
    const bool is_whole = magnitude(each.number) < 0x1p20 && near_whole(each.number) == each.number;
    if ((each.number < 0 && x.contains(0)) || (!is_whole && !(x.lower >= 0))) return false;
  }
  return true;
}

/// Slopes of node `output` by the query's fields, given all nodes' values in the box.
[[nodiscard]] constexpr field_intervals slopes_of(const node_list& list, const node_values<interval>& values,
                                                  int output) {
  node_values<interval> adjoints{};
  field_intervals found{};
  adjoints[place(output)] = interval{1};
  for (int i = output; i >= 0; --i) {
    const node& each = list.nodes[place(i)];
    const interval adjoint = adjoints[place(i)];
    if (adjoint == interval{0} || each.kind == node_kind::constant) continue;
    if (each.kind == node_kind::field) {
      found[place(each.first)] = adjoint;
      continue;
    }
    const interval& here = values[place(i)];
    const interval& x = values[place(each.first)];
    const auto add_to = [&](std::int16_t operand, const interval& factor) {
      interval& to = adjoints[place(operand)];
      // A factor that is not defined anywhere says nothing.
      to = to + (factor.is_empty() ? interval::everything() : adjoint * factor);
    };
    switch (each.kind) {
      case node_kind::add:
        add_to(each.first, 1);
        add_to(each.second, 1);
        break;
      case node_kind::multiply:
        add_to(each.first, values[place(each.second)]);
        add_to(each.second, x);
        break;
      case node_kind::power: {
        const interval below = interval{each.number} - interval{1};
        add_to(each.first, interval{each.number} * (below.is_point() ? pow(x, below.lower) : here / x));
        break;
      }
      case node_kind::exp:
        add_to(each.first, here);
        break;
      case node_kind::log:
        add_to(each.first, interval{1} / intersection(x, {0, unbounded}));
        break;
      case node_kind::sin:
        add_to(each.first, cos(x));
        break;
      case node_kind::cos:
        add_to(each.first, -sin(x));
        break;
      case node_kind::tanh:
        add_to(each.first, interval{1} - pow(here, 2));
        break;
      case node_kind::sigmoid:
        add_to(each.first, here * (interval{1} - here));
        break;
      case node_kind::softplus:
        add_to(each.first, sigmoid(x));
        break;
      case node_kind::erf:
        add_to(each.first, two_by_root_pi * exp(-pow(x, 2)));
        break;
      case node_kind::abs:
        add_to(each.first, {x.lower > 0 ? 1.0 : -1.0, x.upper < 0 ? -1.0 : 1.0});
        break;
      case node_kind::sign:
        if (x.contains(0) && !x.is_point()) add_to(each.first, interval::everything());
        break;
      case node_kind::min:
      case node_kind::max: {
        const interval& y = values[place(each.second)];
        const bool is_min = each.kind == node_kind::min;
        const interval ahead = is_min ? y - x : x - y;  // above 0: the first one is taken
        add_to(each.first, {ahead.lower > 0 ? 1.0 : 0.0, ahead.upper < 0 ? 0.0 : 1.0});
        add_to(each.second, {ahead.upper < 0 ? 1.0 : 0.0, ahead.lower > 0 ? 0.0 : 1.0});
        break;
      }
      case node_kind::select:
        if (may_jump(each, values)) {
          for (const std::int16_t operand : {each.first, each.second, each.third}) {
            add_to(operand, interval::everything());
          }
        } else {
          add_to(x.lower > 0 ? each.second : each.third, 1);
        }
        break;
      default:
        add_to(each.first, 1);
    }
  }
  return found;
}

}  // namespace pergrad::inline v0_1::query::inside
