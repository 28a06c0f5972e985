// SPDX-License-Identifier: Apache-2.0
// pergrad/query/sensitivity.hpp - what one record in a box can do to a sum of a query's values, and which field does it
//
// Add or remove a record: its value f(x), so sup ‖f‖. Replace it: f(x) - f(x'), for one value its range. For vectors
// the diameter is at most 2 sup ‖f - c‖ for any c: here the middle of every value's range, so of one value half the
// range. Every bound is a certificate (supremum.hpp); a search that is stopped early makes it larger, never wrong.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <pergrad/privacy/types.hpp>
#include <pergrad/query/derivative.hpp>
#include <pergrad/query/functions.hpp>
#include <pergrad/query/slopes.hpp>
#include <pergrad/query/supremum.hpp>

namespace pergrad::inline v0_1 {

/// What one record can do to a sum of a query's values.
struct query_sensitivity {
  double bound = 0;         ///< proven: the most, in L2, that neighbours' sums differ by
  double attained = 0;      ///< some records do: so much at least
  double record_bound = 0;  ///< proven: the most that a record's value is away from `centre`, in L2
  neighbouring relation = neighbouring::add_or_remove_one;
  int size = 0;                                               ///< values of the query
  std::array<interval, query::inside::most_outputs> range{};  ///< of each of them
  std::array<double, query::inside::most_outputs> centre{};   ///< 0 unless a record is replaced
};

namespace query::inside {

using output_intervals = std::array<interval, most_outputs>;

/// A query's values where a bound is attained; a field that was not read is in the middle of its bounds.
[[nodiscard]] constexpr output_intervals values_at(const expression& query, const box& in, const extremum& found) {
  const node_list& list = query_access::nodes(query);
  field_intervals fields = in.of(query);
  for (std::size_t i = 0; i < place(list.field_count); ++i) {
    const binding* const at = found.find(list.fields[i]);
    fields[i] = at != nullptr ? at->value : fields[i].middle();
  }
  return proven([&] {
    node_values<interval> values{};
    evaluate_nodes(list, fields.data(), values);
    output_intervals outputs{};
    for (int i = 0; i < query.size(); ++i) outputs[place(i)] = values[place(list.outputs[place(i)])];
    return outputs;
  });
}
/// ‖a - b‖₂ from below.
[[nodiscard]] constexpr double least_distance(const output_intervals& a, const output_intervals& b, int size) {
  return proven([&] {
    interval squares{0};
    for (int i = 0; i < size; ++i) {
      const interval apart = a[place(i)] - b[place(i)];
      const interval least{std::max({apart.lower, -apart.upper, 0.0})};
      squares = squares + least * least;
    }
    return sqrt(squares).lower;
  });
}

}  // namespace query::inside

/// What one record whose fields lie in the box can do to a sum of the query over records. Throws what `supremum`
/// throws.
[[nodiscard]] constexpr query_sensitivity sensitivity(const query::expression& query, const box& in,
                                                      neighbouring relation, const search_limits& limits = {}) {
  query_sensitivity found;
  found.relation = relation;
  found.size = query.size();
  const bool is_replaced = relation == neighbouring::replace_one;
  const auto distance_from = [&](const auto& centre) {
    query::expression squares{0};
    for (int i = 0; i < query.size(); ++i) squares = squares + pow(query[i] - centre[query::inside::place(i)], 2);
    return sqrt(squares);
  };
  double farthest = 0;
  for (int i = 0; i < query.size(); ++i) {
    const std::size_t at = query::inside::place(i);
    const extremum high = supremum(query[i], in, limits);
    const extremum low = infimum(query[i], in, limits);
    found.range[at] = {low.lower, high.upper};
    found.centre[at] = is_replaced ? found.range[at].middle() : 0;
    farthest = (found.range[at] - interval{found.centre[at]}).magnitude();
    if (query.size() == 1) {
      found.attained = is_replaced ? std::max(high.lower - low.upper, 0.0) : std::max({high.lower, -low.upper, 0.0});
    }
  }
  if (query.size() == 1) {
    found.record_bound = farthest;
  } else {
    const extremum record = supremum(distance_from(found.centre), in, limits);
    found.record_bound = record.upper;
    found.attained = std::max(record.lower, 0.0);
    if (is_replaced && record.lower > -query::inside::unbounded) {  // that record, and the one that is farthest from it
      const auto there = query::inside::values_at(query, in, record);
      std::array<double, query::inside::most_outputs> from{};
      for (std::size_t i = 0; i < query::inside::place(query.size()); ++i) from[i] = there[i].middle();
      const extremum other = supremum(distance_from(from), in, limits);
      found.attained = query::inside::least_distance(there, query::inside::values_at(query, in, other), query.size());
    }
  }
  found.bound = is_replaced ? 2 * found.record_bound : found.record_bound;
  return found;
}

namespace query::inside {
/// What is proven of a node's values in the box.
enum class sign_question : unsigned char { one_and_not_zero, not_negative };
[[nodiscard]] constexpr bool is_proven(sign_question asked, const node_list& list, std::int16_t node, const box& in) {
  node_list its = list;
  its.outputs[0] = node;
  its.output_count = 1;
  const expression value = query_access::of(its)[0];
  const auto largest_of = [&](const expression& of) {
    const extremum_or_problem most = try_supremum(of, in, {});
    return most.problem.mistake == query_mistake::none ? most.found.upper : unbounded;
  };
  if (asked == sign_question::not_negative) return largest_of(-value) <= 0;
  return largest_of(-value) < 0 || largest_of(value) < 0;
}
/// A node that may jump in the box, or -1: a `where`, a sign, an odd pole, which jumps from one end of the numbers to
/// the other and may be clamped behind; a logarithm or a root that is not defined somewhere, perhaps between two parts
/// of the box. What is defined on one side of a plane alone is in one piece, and has no jump. Where the operand bends
/// (`abs`, `min`, `max`), a logarithm or a pole may be undefined in a whole part of the box, and so must not be met.
[[nodiscard]] constexpr int place_of_jump(const expression& query, const box& in) {
  const field_intervals fields = in.of(query);
  const node_list& list = query_access::nodes(query);
  const auto values = proven([&] {
    node_values<interval> found{};
    evaluate_nodes(list, fields.data(), found);
    return found;
  });
  std::array<bool, most_nodes> is_affine{};
  std::array<bool, most_nodes> bends{};
  for (int i = 0; i < list.node_count; ++i) {
    const node& each = list.nodes[place(i)];
    if (may_jump(each, values)) return i;
    const auto of = [&](std::int16_t operand) { return is_affine[place(operand)]; };
    const auto is_constant = [&](std::int16_t operand) {
      return list.nodes[place(operand)].kind == node_kind::constant;
    };
    is_affine[place(i)] = each.kind == node_kind::constant || each.kind == node_kind::field ||
                          (each.kind == node_kind::add && of(each.first) && of(each.second)) ||
                          (each.kind == node_kind::multiply && of(each.first) && of(each.second) &&
                           (is_constant(each.first) || is_constant(each.second)));
    bends[place(i)] = each.kind == node_kind::abs || each.kind == node_kind::min || each.kind == node_kind::max;
    for (const std::int16_t operand : {each.first, each.second, each.third}) {
      bends[place(i)] = bends[place(i)] || (operand >= 0 && bends[place(operand)]);
    }
    const bool has_edge =
        each.kind == node_kind::log || (each.kind == node_kind::power && !intervals::inside::is_whole(each.number));
    if (has_edge && !of(each.first) && !(values[place(each.first)].lower >= 0) &&
        !is_proven(sign_question::not_negative, list, each.first, in)) {
      return i;
    }
    const bool has_none_of_0 = each.kind == node_kind::log || (each.kind == node_kind::power && each.number < 0);
    if (has_none_of_0 && bends[place(each.first)] && values[place(each.first)].contains(0) &&
        !is_proven(sign_question::one_and_not_zero, list, each.first, in)) {
      return i;
    }
    // A root that is defined at an edge of the box at most: what is simplified to be a power of its own has no root.
    const bool is_root = each.kind == node_kind::power && each.number < 1 && !intervals::inside::is_whole(each.number);
    if (is_root && !(values[place(each.first)].upper > 0)) return i;
    const bool is_pole = each.kind == node_kind::power && each.number < 0 && intervals::inside::is_whole(each.number) &&
                         !intervals::inside::is_even(each.number);
    if (!is_pole && each.kind != node_kind::sign) continue;
    const interval& x = values[place(each.first)];
    const bool may_be = is_pole ? x.lower < 0 && x.upper > 0 : x.contains(0) && !x.is_point();
    if (may_be && !is_proven(sign_question::one_and_not_zero, list, each.first, in)) return i;
  }
  return -1;
}
}  // namespace query::inside

/// sup ‖gradient‖ over the box, as Ziller et al. 2021 (arXiv:2107.04265) define it: two records at distance r in the
/// box have values that differ by at most r times that. Of a vector, with the Frobenius norm of all derivatives. Throws
/// what `supremum` throws, and std::invalid_argument where the query may jump in the box: a `where` whose condition may
/// hold and may not, a derivative of `abs`, a pole that is clamped, a root or a logarithm that is not defined
/// everywhere, unless of a sum of fields times numbers, and a pole or a logarithm of what may be 0 and has `abs`,
/// `min`, `max` or `clamp` in it. These have no jumps themselves.
[[nodiscard]] constexpr extremum lipschitz(const query::expression& query, const box& in,
                                           const search_limits& limits = {}) {
  const int jump = query::inside::place_of_jump(query, in);
  if (jump >= 0) {
    const query::inside::node_list& list = query::inside::query_access::nodes(query);
    query::inside::query_has_no_bound_in_the_box(
        {query::inside::query_mistake::may_jump_in_the_box, query::inside::short_text_of(list, jump)});
  }
  return supremum(l2_norm(gradient(query)), in, limits);
}

/// What a field contributes to a query's sensitivity.
struct field_share {
  std::string field;
  double slope;   ///< proven: sup |derivative by this field|; infinity where the query may jump or has a pole's slope
  double change;  ///< proven: the most that the value changes if this field alone changes
  double share;   ///< of all fields' changes
};
/// Which field costs how much privacy: of a query of one value, the dearest field first. Throws what `supremum` throws.
[[nodiscard]] inline std::vector<field_share> field_shares(const query::expression& query, const box& in,
                                                           const search_limits& limits = {}) {
  if (query.size() != 1) query::inside::query_has_several_values(query.size());
  const detail::float_environment environment;
  namespace inside = query::inside;
  const inside::node_list& list = inside::query_access::nodes(query);
  const double range = sensitivity(query, in, neighbouring::replace_one, limits).bound;
  const inside::field_intervals all = in.of(query);
  const bool jumps = inside::place_of_jump(query, in) >= 0;
  std::vector<field_share> found;
  double total = 0;
  for (int i = 0; i < list.field_count; ++i) {
    const inside::field_name& name = list.fields[inside::place(i)];
    const query::expression slope = derivative(query, query::field_base{name});
    const inside::extremum_or_problem most = inside::try_supremum(abs(slope), in, limits);
    const bool is_bounded = !jumps && most.problem.mistake == inside::query_mistake::none;
    field_share each{"", is_bounded ? most.found.upper : inside::unbounded, range, 0};
    if (is_bounded) {
      each.change = std::min(range, inside::product_of(each.slope, all[inside::place(i)].width()).up);
    }
    inside::string_text text;
    inside::put_name(text, name);
    each.field = text.text;
    total += each.change;
    found.push_back(each);
  }
  for (field_share& each : found) each.share = total > 0 ? each.change / total : 0;
  std::ranges::sort(found, [](const field_share& a, const field_share& b) { return a.change > b.change; });
  return found;
}

}  // namespace pergrad::inline v0_1
