// SPDX-License-Identifier: Apache-2.0
// pergrad/query/builder.hpp - queries in canonical form: the same value has one node, however it is written
//
// A product is a number times powers of different bases, in order; a sum is numbers times different products, in order.
// So `a * w / (h * h)` is a w h^-2, and an interval sees h once: of a power it knows that one h is meant, of a quotient
// of two products it does not. Constants are folded as intervals: where the result is no double, the query keeps both
// neighbours, and bounds hold for the formula as it was meant, not as it would round. Exponents are added up only where
// their sum is exact. `a / a` is 1: that it has no value at 0 is forgotten; no bound gets smaller by it than the limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/query/node.hpp>

namespace pergrad::inline v0_1::query::inside {

/// A number times powers.
struct monomial {
  static constexpr int most = 24;
  struct factor {
    int base;
    double exponent;
  };
  interval coefficient{1};
  std::array<factor, most> factors{};
  int count = 0;
};

/// Not usable in constant expressions: its name is what a compiler prints of a query that is too large.
[[noreturn]] inline void query_has_too_many_nodes() {
  detail::throw_invalid_argument({"pergrad: query: more than ", most_nodes, " nodes, ", most_fields, " fields, ",
                                  most_outputs, " components, or ", monomial::most, " factors of a product"});
}

/// The same of a field that is told two values, and of reversed bounds.
[[noreturn, gnu::cold]] inline void field_has_value_twice(const field_name& field) {
  if (field.number < 0) detail::throw_invalid_argument({"pergrad: query: ", field.text, " has a value twice"});
  detail::throw_invalid_argument({"pergrad: query: ", field.text, "[", field.number, "] has a value twice"});
}
[[noreturn, gnu::cold]] inline void bounds_of_clamp_are_no_interval(double lower, double upper) {
  detail::throw_invalid_argument({"pergrad: query: clamp: from ", lower, " to ", upper, " is no interval"});
}

/// The same of vectors that do not go together.
[[noreturn]] inline void query_has_vectors_of_unlike_sizes() {
  detail::throw_invalid_argument(
      {"pergrad: query: vectors of unlike sizes: operands have as many components each, or one"});
}

/// Grows a list of nodes, operands first, every node once.
class builder {
 public:
  constexpr builder() noexcept : list_{} {}

  [[nodiscard]] constexpr const node& at(int i) const noexcept { return list_.nodes[place(i)]; }
  [[nodiscard]] constexpr interval constant_at(int i) const noexcept { return {at(i).number, at(i).number_above}; }
  [[nodiscard]] constexpr bool is(int i, node_kind kind) const noexcept { return at(i).kind == kind; }
  [[nodiscard]] constexpr bool is_constant(int i, double value) const noexcept {
    return is(i, node_kind::constant) && constant_at(i) == interval{value};
  }

  constexpr int constant(const interval& value) { return place_of(constant_node(value)); }
  constexpr int field(const field_name& name) {
    int place_of_name = -1;
    for (int i = 0; i < list_.field_count; ++i) {
      if (list_.fields[place(i)].compared(name) == 0) place_of_name = i;
    }
    if (place_of_name < 0) {
      if (place(list_.field_count) == most_fields) query_has_too_many_nodes();
      place_of_name = list_.field_count++;
      list_.fields[place(place_of_name)] = name;
    }
    return place_of({node_kind::field, static_cast<std::int16_t>(place_of_name), -1, -1, 0, 0});
  }

  constexpr int multiply(int i, int j) {
    monomial both = monomial_of(i);
    append(both, monomial_of(j), 1);
    return node_of(both);
  }
  constexpr int negative(int i) { return multiply(constant(-1.0), i); }
  constexpr int power(int i, double exponent) {
    if (exponent == 0) return constant(1.0);
    if (exponent == 1) return i;
    if (is(i, node_kind::constant)) return constant(pow(constant_at(i), exponent));
    if (near_whole_or_zero(exponent) == exponent) {
      const monomial base = monomial_of(i);
      bool is_exact = true;
      for (int k = 0; k < base.count; ++k) {
        const directed product = product_of(base.factors[place(k)].exponent, exponent);
        is_exact = is_exact && product.down == product.up;
      }
      monomial found;
      if (is_exact) append(found, base, exponent);
      if (is_exact) return node_of(found);
    }
    return place_of({node_kind::power, static_cast<std::int16_t>(i), -1, -1, exponent, 0});
  }
  constexpr int add(int i, int j) {
    sum all;
    append(all, i, 1);
    append(all, j, 1);
    return node_of(all);
  }
  constexpr int subtract(int i, int j) {
    sum all;
    append(all, i, 1);
    append(all, j, -1);
    return node_of(all);
  }
  /// Functions of one value.
  constexpr int apply(node_kind kind, int i) {
    const node wanted{kind, static_cast<std::int16_t>(i), -1, -1, 0, 0};
    if (is(i, node_kind::constant)) return constant(value_of<interval>(wanted, constant_at(i), {}, {}));
    return place_of(wanted);
  }
  /// The smaller or the larger one.
  constexpr int extreme(node_kind kind, int i, int j) {
    if (i == j) return i;
    if (is(i, node_kind::constant) && is(j, node_kind::constant)) {
      return constant(kind == node_kind::min ? min(constant_at(i), constant_at(j))
                                             : max(constant_at(i), constant_at(j)));
    }
    const bool is_in_order = compared(i, j) < 0;
    return place_of({kind, static_cast<std::int16_t>(is_in_order ? i : j),
                     static_cast<std::int16_t>(is_in_order ? j : i), -1, 0, 0});
  }
  constexpr int select(int sign, int positive, int otherwise) {
    if (is(sign, node_kind::constant) && constant_at(sign).is_empty()) return sign;  // not defined
    if (positive == otherwise) return positive;
    if (is(sign, node_kind::constant) && constant_at(sign).lower > 0) return positive;
    if (is(sign, node_kind::constant) && constant_at(sign).upper <= 0) return otherwise;
    return place_of({node_kind::select, static_cast<std::int16_t>(sign), static_cast<std::int16_t>(positive),
                     static_cast<std::int16_t>(otherwise), 0, 0});
  }
  /// A node of this kind of these operands, in canonical form.
  constexpr int rebuilt(const node& like, int first, int second, int third) {
    switch (like.kind) {
      case node_kind::constant:
        return constant({like.number, like.number_above});
      case node_kind::add:
        return add(first, second);
      case node_kind::multiply:
        return multiply(first, second);
      case node_kind::power:
        return power(first, like.number);
      case node_kind::min:
      case node_kind::max:
        return extreme(like.kind, first, second);
      case node_kind::select:
        return select(first, second, third);
      default:
        return apply(like.kind, first);
    }
  }

  /// The values of another list, with the nodes `fields` in the place of its fields: the places of its outputs.
  constexpr std::array<std::int16_t, most_outputs> substituted(const node_list& other,
                                                               const std::array<int, most_fields>& fields) {
    std::array<std::int16_t, most_nodes> here{};
    for (int i = 0; i < other.node_count; ++i) {
      const node& old = other.nodes[place(i)];
      const auto operand = [&](std::int16_t old_place) { return old_place < 0 ? -1 : int{here[place(old_place)]}; };
      here[place(i)] = static_cast<std::int16_t>(
          old.kind == node_kind::field ? fields[place(old.first)]
                                       : rebuilt(old, operand(old.first), operand(old.second), operand(old.third)));
    }
    std::array<std::int16_t, most_outputs> outputs{};
    for (int i = 0; i < other.output_count; ++i) outputs[place(i)] = here[place(other.outputs[place(i)])];
    return outputs;
  }
  constexpr std::array<std::int16_t, most_outputs> imported(const node_list& other) {
    std::array<int, most_fields> fields{};
    for (int i = 0; i < other.field_count; ++i) fields[place(i)] = field(other.fields[place(i)]);
    return substituted(other, fields);
  }

  /// The list of what these values need and nothing else; fields in the order of their names.
  [[nodiscard]] constexpr node_list finished(const std::array<std::int16_t, most_outputs>& outputs, int count) const {
    node_list found{};
    std::array<bool, most_nodes> is_needed{};
    for (int i = 0; i < count; ++i) is_needed[place(outputs[place(i)])] = true;
    std::array<bool, most_fields> is_read{};
    for (int i = list_.node_count; i-- > 0;) {
      if (!is_needed[place(i)]) continue;
      const node& each = at(i);
      if (each.kind == node_kind::field) {
        is_read[place(each.first)] = true;
        continue;
      }
      for (const std::int16_t operand : {each.first, each.second, each.third}) {
        if (operand >= 0) is_needed[place(operand)] = true;
      }
    }
    std::array<std::int16_t, most_fields> place_of_field{};
    for (int i = 0; i < list_.field_count; ++i) {
      if (!is_read[place(i)]) continue;
      int before = 0;
      for (int j = 0; j < list_.field_count; ++j) {
        before += is_read[place(j)] && list_.fields[place(j)].compared(list_.fields[place(i)]) < 0 ? 1 : 0;
      }
      place_of_field[place(i)] = static_cast<std::int16_t>(before);
      found.fields[place(before)] = list_.fields[place(i)];
      ++found.field_count;
    }
    std::array<std::int16_t, most_nodes> there{};
    for (int i = 0; i < list_.node_count; ++i) {
      if (!is_needed[place(i)]) continue;
      node each = at(i);
      if (each.kind == node_kind::field) {
        each.first = place_of_field[place(each.first)];
      } else {
        for (std::int16_t* const operand : {&each.first, &each.second, &each.third}) {
          if (*operand >= 0) *operand = there[place(*operand)];
        }
      }
      there[place(i)] = static_cast<std::int16_t>(found.node_count);
      found.nodes[place(found.node_count++)] = each;
    }
    for (int i = 0; i < count; ++i) found.outputs[place(i)] = there[place(outputs[place(i)])];
    found.output_count = count;
    return found;
  }

  /// Below, equal or above: an order of nodes that does not hang on their places.
  [[nodiscard]] constexpr int compared(int i, int j) const noexcept {
    if (i == j) return 0;
    const node& a = at(i);
    const node& b = at(j);
    if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
    if (a.kind == node_kind::field) return list_.fields[place(a.first)].compared(list_.fields[place(b.first)]);
    for (int k = 0; k < operands_of(a.kind); ++k) {
      const int order = compared(k == 0   ? a.first
                                 : k == 1 ? a.second
                                          : a.third,
                                 k == 0   ? b.first
                                 : k == 1 ? b.second
                                          : b.third);
      if (order != 0) return order;
    }
    if (a.number != b.number) return a.number < b.number ? -1 : 1;
    return a.number_above < b.number_above ? -1 : a.number_above > b.number_above ? 1 : 0;
  }

 private:
  /// Numbers times products without a number; a constant is a number times nothing (-1).
  struct sum {
    struct term {
      interval coefficient;
      int product;
    };
    std::array<term, 128> terms{};
    int count = 0;
  };

  [[nodiscard]] static constexpr double near_whole_or_zero(double x) noexcept {
    return magnitude(x) < 0x1p20 ? near_whole(x) : 0;
  }
  constexpr int place_of(const node& wanted) {
    for (int i = 0; i < list_.node_count; ++i) {
      if (at(i) == wanted) return i;
    }
    if (place(list_.node_count) == most_nodes) query_has_too_many_nodes();
    list_.nodes[place(list_.node_count)] = wanted;
    return list_.node_count++;
  }

  [[nodiscard]] constexpr monomial monomial_of(int i) const {
    monomial found;
    while (is(i, node_kind::multiply)) {
      append_factor(found, at(i).second);
      i = at(i).first;
    }
    append_factor(found, i);
    return found;
  }
  constexpr void append_factor(monomial& to, int i) const {
    if (is(i, node_kind::constant)) {
      to.coefficient = to.coefficient * constant_at(i);
    } else if (is(i, node_kind::power)) {
      append_power(to, at(i).first, at(i).number);
    } else {
      append_power(to, i, 1);
    }
  }
  static constexpr void append_power(monomial& to, int base, double exponent) {
    for (int i = 0; i < to.count; ++i) {
      auto& same = to.factors[place(i)];
      const directed both = sum_of(same.exponent, exponent);
      if (same.base == base && both.down == both.up) {
        same.exponent = both.down;
        return;
      }
    }
    if (to.count == monomial::most) query_has_too_many_nodes();
    to.factors[place(to.count++)] = {base, exponent};
  }
  /// to *= other ^ exponent, which is whole.
  static constexpr void append(monomial& to, const monomial& other, double exponent) {
    to.coefficient = to.coefficient * pow(other.coefficient, exponent);
    for (int i = 0; i < other.count; ++i) {
      const auto& each = other.factors[place(i)];
      append_power(to, each.base, each.exponent * exponent);
    }
  }
  constexpr int node_of(monomial product) {
    if (product.coefficient == interval{0}) return constant(0.0);
    const auto is_before = [this](const monomial::factor& a, const monomial::factor& b) {
      const int order = compared(a.base, b.base);
      return order != 0 ? order < 0 : a.exponent < b.exponent;
    };
    for (int i = 1; i < product.count; ++i) {
      for (int j = i; j > 0 && is_before(product.factors[place(j)], product.factors[place(j - 1)]); --j) {
        const auto kept = product.factors[place(j)];
        product.factors[place(j)] = product.factors[place(j - 1)];
        product.factors[place(j - 1)] = kept;
      }
    }
    int found = -1;
    for (int i = 0; i < product.count; ++i) {
      const auto& each = product.factors[place(i)];
      if (each.exponent == 0) continue;
      const int one =
          each.exponent == 1
              ? each.base
              : place_of({node_kind::power, static_cast<std::int16_t>(each.base), -1, -1, each.exponent, 0});
      found = found < 0 ? one : pair(node_kind::multiply, found, one);
    }
    if (found < 0) return constant(product.coefficient);
    if (is(found, node_kind::add)) {  // a number goes into a sum
      sum all;
      append(all, found, product.coefficient);
      return node_of(all);
    }
    return product.coefficient == interval{1} ? found : pair(node_kind::multiply, found, constant(product.coefficient));
  }
  constexpr int pair(node_kind kind, int first, int second) {
    return place_of({kind, static_cast<std::int16_t>(first), static_cast<std::int16_t>(second), -1, 0, 0});
  }

  constexpr void append(sum& to, int i, const interval& coefficient) const {
    if (is(i, node_kind::add)) {
      append(to, at(i).first, coefficient);
      append(to, at(i).second, coefficient);
    } else if (is(i, node_kind::constant)) {
      append_term(to, coefficient * constant_at(i), -1);
    } else if (is(i, node_kind::multiply) && is(at(i).second, node_kind::constant)) {  // a number comes last
      append(to, at(i).first, coefficient * constant_at(at(i).second));
    } else {
      append_term(to, coefficient, i);
    }
  }
  static constexpr void append_term(sum& to, const interval& coefficient, int product) {
    for (int i = 0; i < to.count; ++i) {
      auto& same = to.terms[place(i)];
      if (same.product != product) continue;
      same.coefficient = same.coefficient + coefficient;
      return;
    }
    if (place(to.count) == to.terms.size()) query_has_too_many_nodes();
    to.terms[place(to.count++)] = {coefficient, product};
  }
  constexpr int node_of(sum all) {
    // Products in order, the number behind them.
    const auto is_before = [this](const sum::term& a, const sum::term& b) {
      return a.product >= 0 && (b.product < 0 || compared(a.product, b.product) < 0);
    };
    for (int i = 1; i < all.count; ++i) {
      for (int j = i; j > 0 && is_before(all.terms[place(j)], all.terms[place(j - 1)]); --j) {
        const auto kept = all.terms[place(j)];
        all.terms[place(j)] = all.terms[place(j - 1)];
        all.terms[place(j - 1)] = kept;
      }
    }
    int found = -1;
    for (int i = 0; i < all.count; ++i) {
      const auto& each = all.terms[place(i)];
      if (each.coefficient == interval{0}) continue;
      const int one = each.product < 0 ? constant(each.coefficient)
                      : each.coefficient == interval{1}
                          ? each.product
                          : pair(node_kind::multiply, each.product, constant(each.coefficient));
      found = found < 0 ? one : pair(node_kind::add, found, one);
    }
    return found < 0 ? constant(0.0) : found;
  }

  node_list list_;
};

}  // namespace pergrad::inline v0_1::query::inside
