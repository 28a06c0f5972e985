// SPDX-License-Identifier: Apache-2.0
// pergrad/query/expression.hpp - fields, expressions over them, and partial evaluation
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>

#include <pergrad/detail/float_environment.hpp>
#include <pergrad/query/builder.hpp>
#include <pergrad/query/node.hpp>

namespace pergrad::inline v0_1 {

namespace query::inside {
struct query_access;

/// compute() in the floating point environment in which bounds are proven; in constant expressions it is the
/// compiler's.
template <class Compute>
[[nodiscard]] constexpr auto proven(Compute compute) {
  if (std::is_constant_evaluated()) return compute();
  return [&] {
    const detail::float_environment environment;
    return compute();
  }();
}

/// Letters of a field's name as a template argument.
template <std::size_t Length>
struct literal {
  char text[Length] = {};
  constexpr literal(const char (&from)[Length]) noexcept {  // NOLINT(google-explicit-constructor)
    std::copy_n(from, Length, text);
  }
};
}  // namespace query::inside

namespace query {

/// A field and its value.
struct binding {
  query::inside::field_name name;
  double value;
};
/// A field and the values of all records.
struct column {
  query::inside::field_name name;
  std::span<const double> values;
};
/// A field and where its values lie.
struct bound {
  query::inside::field_name name;
  double lower;
  double upper;
};

/// What is known of every field by its name.
class field_base {
 public:
  constexpr explicit field_base(const query::inside::field_name& name) noexcept : name_{name} {}
  /// Values of the field from `lower` to `upper`, in its own units.
  [[nodiscard]] constexpr bound in(double lower, double upper) const noexcept { return {name_, lower, upper}; }
  // NOLINTBEGIN(misc-unconventional-assign-operator,cppcoreguidelines-c-copy-assignment-signature): a named argument
  constexpr binding operator=(double value) const noexcept { return {name_, value}; }
  constexpr column operator=(std::span<const double> values) const noexcept { return {name_, values}; }
  // NOLINTEND(misc-unconventional-assign-operator,cppcoreguidelines-c-copy-assignment-signature)
  [[nodiscard]] constexpr const query::inside::field_name& name() const noexcept { return name_; }

 private:
  query::inside::field_name name_;
};

/// What is known of every list of fields.
class field_list_base {
 public:
  constexpr field_list_base(const char* name, int count) noexcept : name_{name}, count_{count} {}
  [[nodiscard]] constexpr field_base operator[](int i) const noexcept { return field_base{{name_, i}}; }
  [[nodiscard]] constexpr int size() const noexcept { return count_; }

 private:
  const char* name_;
  int count_;
};

/// An expression over the fields of one record, of one value or several: a regular value, also in constant expressions.
/// Equal formulas are one node (builder.hpp says which are equal). Throws std::invalid_argument where it would have
/// more than 512 nodes; in a constant expression the error names `query_has_too_many_nodes`.
class expression {
 public:
  constexpr expression(double number) {  // NOLINT(google-explicit-constructor)
    query::inside::builder all;
    nodes_ = all.finished({static_cast<std::int16_t>(all.constant(number))}, 1);
  }
  constexpr expression(const field_base& field) {  // NOLINT(google-explicit-constructor)
    query::inside::builder all;
    nodes_ = all.finished({static_cast<std::int16_t>(all.field(field.name()))}, 1);
  }

  /// All fields of a list, as values of one expression.
  constexpr expression(const field_list_base& list) {  // NOLINT(google-explicit-constructor)
    query::inside::builder all;
    std::array<std::int16_t, query::inside::most_outputs> outputs{};
    for (int i = 0; i < list.size(); ++i)
      outputs[query::inside::place(i)] = static_cast<std::int16_t>(all.field(list[i].name()));
    nodes_ = all.finished(outputs, list.size());
  }

  /// How many values it has.
  [[nodiscard]] constexpr int size() const noexcept { return nodes_.output_count; }
  /// One of them. Precondition: 0 <= i < size().
  [[nodiscard]] constexpr expression operator[](int i) const {
    query::inside::builder all;
    const auto outputs = all.imported(nodes_);
    return expression{all.finished({outputs[query::inside::place(i)]}, 1)};
  }
  /// With numbers in the place of some fields: `bmi.given(height = 1.8)`. Other fields' numbers are not read. Throws
  /// std::invalid_argument for two numbers for one field.
  template <class... Bindings>
  [[nodiscard]] constexpr expression given(const Bindings&... bindings) const {
    return query::inside::proven([&] {
      query::inside::builder all;
      std::array<int, query::inside::most_fields> fields{};
      for (int i = 0; i < nodes_.field_count; ++i) {
        const query::inside::field_name& name = nodes_.fields[query::inside::place(i)];
        int found = -1;
        const auto take = [&](const query::binding& each) {
          if (name.compared(each.name) != 0) return;
          if (found >= 0) query::inside::field_has_value_twice(name);
          found = all.constant(each.value);
        };
        (take(bindings), ...);
        fields[query::inside::place(i)] = found < 0 ? all.field(name) : found;
      }
      return expression{all.finished(all.substituted(nodes_, fields), nodes_.output_count)};
    });
  }
  /// Its value, of an expression of one value that reads no other fields: `bmi(age = 30, weight = 80, height = 1.8)`.
  /// To nearest and by libm at run time; by intervals in constant expressions. Throws std::invalid_argument for a field
  /// without a value (evaluate.hpp).
  template <class... Bindings>
  [[nodiscard]] constexpr double operator()(const Bindings&... bindings) const;

 private:
  friend struct query::inside::query_access;
  constexpr explicit expression(const query::inside::node_list& nodes) noexcept : nodes_{nodes} {}

  query::inside::node_list nodes_{};
};

/// What `where` asks: true where its expression is above 0.
class condition {
 public:
  constexpr explicit condition(const expression& above_zero) : above_zero_{above_zero} {}
  [[nodiscard]] constexpr const expression& above_zero() const noexcept { return above_zero_; }

 private:
  expression above_zero_;
};

}  // namespace query

/// A field of a record, by its name: `constexpr pg::field<"age"> age;`.
template <query::inside::literal Name>
struct field : query::field_base {
  constexpr field() noexcept : field_base{query::inside::field_name{Name.text, -1}} {}
  using field_base::operator=;
};
/// A list of so many fields of one name: `constexpr pg::fields<"visits", 7> visits;`, with `visits[0]` and so on, and
/// `sum(visits)`.
template <query::inside::literal Name, int Count>
requires(Count > 0 && query::inside::place(Count) <= query::inside::most_fields) struct fields
    : query::field_list_base {
  constexpr fields() noexcept : field_list_base{Name.text, Count} {}
};

namespace query::inside {

/// How functions of queries get at nodes.
struct query_access {
  [[nodiscard]] static constexpr const node_list& nodes(const query::expression& query) noexcept {
    return query.nodes_;
  }
  [[nodiscard]] static constexpr query::expression of(const node_list& nodes) noexcept {
    return query::expression{nodes};
  }
  /// An expression of what `make` adds to the nodes of the values of others, value by value: make(builder, i) or
  /// make(builder, i, j). One of a single value goes with each value of the others, which have as many.
  template <class Make, class... Expressions>
  [[nodiscard]] static constexpr query::expression made(Make make, const Expressions&... from) {
    int count = 1;
    ((count = count == 1 ? from.size() : count), ...);
    if (!((from.size() == 1 || from.size() == count) && ...)) query_has_vectors_of_unlike_sizes();
    return proven([&] {
      builder all;
      const std::array<std::array<std::int16_t, most_outputs>, sizeof...(from)> values{all.imported(from.nodes_)...};
      std::array<std::int16_t, most_outputs> outputs{};
      for (int i = 0; i < count; ++i) {
        std::size_t at = 0;
        const auto next = [&](const query::expression& each) {
          return int{values[at++][each.size() == 1 ? 0 : place(i)]};
        };
        const std::array<int, sizeof...(from)> operands{next(from)...};
        outputs[place(i)] =
            static_cast<std::int16_t>(std::apply([&](auto... each) { return make(all, each...); }, operands));
      }
      return of(all.finished(outputs, count));
    });
  }
  /// A function of every value of an expression.
  template <class Make>
  [[nodiscard]] static constexpr query::expression mapped(const query::expression& from, Make make) {
    return proven([&] {
      builder all;
      auto outputs = all.imported(from.nodes_);
      for (int i = 0; i < from.size(); ++i) {
        outputs[place(i)] = static_cast<std::int16_t>(make(all, int{outputs[place(i)]}));
      }
      return of(all.finished(outputs, from.size()));
    });
  }
  [[nodiscard]] static constexpr query::expression applied(node_kind kind, const query::expression& from) {
    return mapped(from, [kind](builder& all, int i) { return all.apply(kind, i); });
  }
};

}  // namespace query::inside
}  // namespace pergrad::inline v0_1
