// SPDX-License-Identifier: Apache-2.0
// pergrad/query/tree.hpp - which sub-expression makes a bound large: every node of a query with its intervals in a box
//
// A node's enclosure is what interval arithmetic makes of its operands'; its range is what a search proves. Where the
// first one is wider, operands depend on each other and the arithmetic does not know: there a bound is lost, and there
// another form of the query helps. Everything above inherits it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <pergrad/detail/float_environment.hpp>
#include <pergrad/query/supremum.hpp>
#include <pergrad/query/text.hpp>

namespace pergrad::inline v0_1 {

namespace query {

/// A node of a query in a box.
struct tree_node {
  std::string formula;
  interval enclosure;
  interval range;                     ///< proven by a search, and inside the enclosure
  std::vector<std::size_t> operands;  ///< places of its operands in the list
  /// By how much the enclosure is wider than the range: 1 if nothing is lost.
  [[nodiscard]] double excess() const noexcept {
    const double width = range.width();
    return width > 0 ? enclosure.width() / width : enclosure.width() > 0 ? inside::unbounded : 1;
  }
};

/// All nodes, operands before what is made of them; the values of the query are last or among them. A node that has no
/// bound keeps its enclosure as its range. Throws std::invalid_argument for a field without bounds.
[[nodiscard]] inline std::vector<tree_node> tree(const expression& query, const box& in,
                                                 const search_limits& limits = {.tolerance = 1e-6, .boxes = 5000}) {
  const detail::float_environment proven;
  inside::node_list list = inside::query_access::nodes(query);
  inside::node_values<interval> values{};
  inside::evaluate_nodes(list, in.of(query).data(), values);
  list.output_count = 1;
  std::vector<tree_node> found;
  for (int i = 0; i < list.node_count; ++i) {
    const inside::node& each = list.nodes[inside::place(i)];
    inside::string_text text;
    inside::formula_writer{list, text, inside::notation::text}.write(i);
    tree_node next{text.text, values[inside::place(i)], values[inside::place(i)], {}};
    if (each.kind != inside::node_kind::field) {
      for (const int operand : {int{each.first}, int{each.second}, int{each.third}}) {
        if (operand >= 0) next.operands.push_back(inside::place(operand));
      }
      list.outputs[0] = static_cast<std::int16_t>(i);
      const expression part = inside::query_access::of(list);
      const auto high = inside::try_supremum(part, in, limits);
      const auto low = inside::try_supremum(-part, in, limits);
      if (high.problem.mistake == inside::query_mistake::none && low.problem.mistake == inside::query_mistake::none) {
        next.range = intersection(next.range, {-low.found.upper, high.found.upper});
      }
    }
    found.push_back(next);
  }
  return found;
}

namespace inside {
[[nodiscard]] inline std::string text_of(const interval& x) {
  char text[64];
  std::snprintf(text, sizeof text, "[%.6g, %.6g]", x.lower, x.upper);
  return text;
}
inline constexpr double worth_telling = 1.01;
}  // namespace inside

/// The same as lines: enclosure, range where the enclosure is more than 1 % wider, formula. Throws as `tree`.
[[nodiscard]] inline std::string describe(const expression& query, const box& in) {
  std::string found;
  for (const tree_node& each : tree(query, in)) {
    found += inside::text_of(each.enclosure) + "  " + each.formula;
    if (each.excess() > inside::worth_telling) found += "   <- wider than its range, " + inside::text_of(each.range);
    found += "\n";
  }
  return found;
}
/// The same for Graphviz's `dot`: nodes whose enclosure is more than 1 % wider than their range are red. Throws as
/// `tree`.
[[nodiscard]] inline std::string graphviz(const expression& query, const box& in) {
  const std::vector<tree_node> nodes = tree(query, in);
  std::string found = "digraph query {\n  rankdir=BT;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const tree_node& each = nodes[i];
    const bool is_wide = each.excess() > inside::worth_telling;
    found += "  n" + std::to_string(i) + " [label=\"" + each.formula + "\\n" + inside::text_of(each.enclosure);
    if (is_wide) found += "\\nrange " + inside::text_of(each.range);
    found += is_wide ? "\", color=red, fontcolor=red];\n" : "\"];\n";
    for (const std::size_t operand : each.operands) {
      found += "  n" + std::to_string(operand) + " -> n" + std::to_string(i) + ";\n";
    }
  }
  return found + "}\n";
}

}  // namespace query
}  // namespace pergrad::inline v0_1
