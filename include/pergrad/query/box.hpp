// SPDX-License-Identifier: Apache-2.0
// pergrad/query/box.hpp - between which bounds every field lies
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/query/expression.hpp>
#include <pergrad/query/text.hpp>

namespace pergrad::inline v0_1 {

namespace query::inside {

/// What can be wrong with a query in a box.
enum class query_mistake {
  none,
  field_without_bounds,
  unbounded_in_the_box,
  undefined_in_the_box,
  may_jump_in_the_box
};

/// A mistake and the field or the sub-expression that it is about.
struct query_problem {
  query_mistake mistake;
  short_text where;
};

// Told by throwing. None can be called in a constant expression, so that a compiler names the function.
[[noreturn, gnu::cold]] inline void bounds_are_no_interval(short_text field, double lower, double upper) {
  detail::throw_invalid_argument({"pergrad: box: bounds of ", field.text,
                                  " must be finite numbers, the lower one first, got ", lower, " and ", upper});
}
[[noreturn, gnu::cold]] inline void field_has_bounds_twice(short_text field) {
  detail::throw_invalid_argument({"pergrad: box: ", field.text, " has bounds twice"});
}
[[noreturn, gnu::cold]] inline void query_has_no_bound_in_the_box(const query_problem& problem) {
  const char* const where = problem.where.text;
  switch (problem.mistake) {
    case query_mistake::field_without_bounds:
      detail::throw_invalid_argument({"pergrad: query: the field ", where, " has no bounds in the box"});
    case query_mistake::unbounded_in_the_box:
      detail::throw_invalid_argument({"pergrad: query: ", where, " is unbounded in the box"});
    case query_mistake::may_jump_in_the_box:
      detail::throw_invalid_argument(
          {"pergrad: query: no Lipschitz bound: there may be a jump in the box, of ", where});
    default:
      detail::throw_invalid_argument({"pergrad: query: ", where, " is not defined anywhere in the box"});
  }
}
[[noreturn, gnu::cold]] inline void query_has_several_values(int count) {
  detail::throw_invalid_argument({"pergrad: query: this takes a query of one value, and got one of ", count});
}
[[noreturn, gnu::cold]] inline void field_has_no_value(short_text field) {
  detail::throw_invalid_argument({"pergrad: query: the query reads ", field.text, ", which has no value"});
}
[[noreturn, gnu::cold]] inline void option_is_no_tolerance(double value) {
  detail::throw_invalid_argument({"pergrad: query: a tolerance must not be negative, got ", value});
}

[[nodiscard]] constexpr short_text short_text_of(const field_name& name) {
  short_text found{};
  put_name(found, name);
  return found;
}

/// Values of a query's fields, in the query's order.
using field_intervals = std::array<interval, most_fields>;

}  // namespace query::inside

/// Bounds of fields: `pg::box{age.in(18, 100), weight.in(40, 200)}`. Bounds are the doubles given. Throws
/// std::invalid_argument, in constant expressions an error, for bounds that are not finite or in the wrong order, and
/// for a field with bounds twice.
class box {
 public:
  template <class... Bounds>
  constexpr explicit box(const query::bound& first, const Bounds&... others) : count_{1 + sizeof...(Bounds)} {
    static_assert(1 + sizeof...(Bounds) <= query::inside::most_fields, "pergrad: a box of too many fields");
    bounds_[0] = first;
    std::size_t next = 1;
    ((bounds_[next++] = others), ...);
    for (std::size_t i = 0; i < count_; ++i) {
      const query::bound& each = bounds_[i];
      if (!(each.lower <= each.upper && query::inside::is_finite(each.lower) && query::inside::is_finite(each.upper))) {
        query::inside::bounds_are_no_interval(query::inside::short_text_of(each.name), each.lower, each.upper);
      }
      for (std::size_t j = 0; j < i; ++j) {
        if (bounds_[j].name.compared(each.name) == 0) {
          query::inside::field_has_bounds_twice(query::inside::short_text_of(each.name));
        }
      }
    }
  }
  /// Throws std::invalid_argument for a field without bounds.
  [[nodiscard]] constexpr interval of(const query::field_base& field) const {
    const interval found = find(field.name());
    if (found.is_empty()) {
      query::inside::query_has_no_bound_in_the_box(
          {query::inside::query_mistake::field_without_bounds, query::inside::short_text_of(field.name())});
    }
    return found;
  }
  /// Of all fields of a query, in its order.
  [[nodiscard]] constexpr query::inside::field_intervals of(const query::expression& query) const {
    const query::inside::node_list& list = query::inside::query_access::nodes(query);
    query::inside::field_intervals found{};
    for (std::size_t i = 0; i < query::inside::place(list.field_count); ++i)
      found[i] = of(query::field_base{list.fields[i]});
    return found;
  }
  /// Empty for a field without bounds.
  [[nodiscard]] constexpr interval find(const query::inside::field_name& name) const noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if (bounds_[i].name.compared(name) == 0) return {bounds_[i].lower, bounds_[i].upper};
    }
    return interval::nothing();
  }

 private:
  std::array<query::bound, query::inside::most_fields> bounds_{};
  std::size_t count_;
};

}  // namespace pergrad::inline v0_1
