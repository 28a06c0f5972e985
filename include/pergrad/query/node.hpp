// SPDX-License-Identifier: Apache-2.0
// pergrad/query/node.hpp - what a query is made of: nodes in a list, operands before what is made of them
//
// A query is a value, in constant expressions too: no type says what stands in it. So its derivative is a value, and a
// query of a hundred nodes costs a compiler a hundred numbers and no instantiation.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <pergrad/interval/functions.hpp>

namespace pergrad::inline v0_1 {

/// Queries: expressions over the fields of one record. Functions have their usual names and are found by their
/// arguments: `sqrt(age)`, where `age` is a `pg::field`.
namespace query {

class expression;
class condition;

}  // namespace query

/// What queries are made of; not for users.
namespace query::inside {

// NOLINTBEGIN(google-build-using-namespace,misc-unused-using-decls): the library's own
using namespace intervals::inside;
// Layers have some of these names, and would be found first.
using intervals::exp, intervals::log, intervals::sin, intervals::cos, intervals::tanh, intervals::sigmoid;
using intervals::softplus, intervals::erf, intervals::abs, intervals::min, intervals::max, intervals::pow;
using intervals::sqrt;
// NOLINTEND(google-build-using-namespace,misc-unused-using-decls)

/// More than usual queries and their gradients have; so many fields, and components of a vector.
inline constexpr std::size_t most_nodes = 512;
inline constexpr std::size_t most_fields = 24;
inline constexpr std::size_t most_outputs = 24;

enum class node_kind : std::uint8_t {
  constant,  ///< between `number` and `number_above`: sums of constants may be no double
  field,     ///< number `first` of the query's fields
  add,
  multiply,
  power,  ///< first ^ number
  exp,
  log,
  sin,
  cos,
  tanh,
  sigmoid,
  softplus,
  erf,
  abs,
  sign,
  min,
  max,
  select,     ///< first > 0 ? second : third
  as_written  ///< first, which nothing is merged with
};

struct node {
  node_kind kind;
  std::int16_t first;
  std::int16_t second;
  std::int16_t third;
  double number;
  double number_above;

  friend constexpr bool operator==(const node&, const node&) noexcept = default;
};
[[nodiscard]] constexpr node constant_node(const interval& value) noexcept {
  return {node_kind::constant, -1, -1, -1, value.lower + 0.0, value.upper + 0.0};
}
[[nodiscard]] constexpr int operands_of(node_kind kind) noexcept {
  switch (kind) {
    case node_kind::constant:
    case node_kind::field:
      return 0;
    case node_kind::add:
    case node_kind::multiply:
    case node_kind::min:
    case node_kind::max:
      return 2;
    case node_kind::select:
      return 3;
    default:
      return 1;
  }
}
[[nodiscard]] constexpr std::size_t place(int index) noexcept { return static_cast<std::size_t>(index); }

/// A field's name; one of a list has a number, too.
struct field_name {
  const char* text;
  int number;

  /// Below, equal or above: by letters, then by number.
  [[nodiscard]] constexpr int compared(const field_name& other) const noexcept {
    const char* a = text;
    const char* b = other.text;
    while (*a != 0 && *a == *b) ++a, ++b;
    if (*a != *b) return *a < *b ? -1 : 1;
    return number == other.number ? 0 : number < other.number ? -1 : 1;
  }
};

/// The nodes of one or several values.
struct node_list {
  std::array<node, most_nodes> nodes;
  std::array<field_name, most_fields> fields;  ///< in the order of names
  std::array<std::int16_t, most_outputs> outputs;
  int node_count;
  int field_count;
  int output_count;
};

/// Functions of doubles beside those of std, by the names that intervals have for theirs.
namespace real {
using std::abs, std::cos, std::erf, std::exp, std::sin, std::tanh;
inline constexpr double undefined = std::numeric_limits<double>::quiet_NaN();
[[nodiscard]] inline double sigmoid(double x) noexcept { return x > 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
[[nodiscard]] inline double softplus(double x) noexcept { return (x > 0 ? x : 0) + std::log1p(exp(-abs(x))); }
[[nodiscard]] inline double sign(double x) noexcept { return x > 0 ? 1 : x < 0 ? -1 : x; }
// What is not defined, a NaN, stays so.
[[nodiscard]] inline double min(double x, double y) noexcept { return x != x || x < y ? x : y; }
[[nodiscard]] inline double max(double x, double y) noexcept { return x != x || x > y ? x : y; }
[[nodiscard]] inline double select(double x, double positive, double otherwise) noexcept {
  return x > 0 ? positive : x <= 0 ? otherwise : x;
}
// As of intervals, 0 has neither a logarithm nor negative powers: an infinity might become a number behind it.
[[nodiscard]] inline double log(double x) noexcept { return x > 0 ? std::log(x) : undefined; }
[[nodiscard]] inline double one_over(double x) noexcept { return x != 0 ? 1 / x : undefined; }
/// Small whole powers by multiplications: they are what queries have.
[[nodiscard]] inline double pow(double x, double exponent) noexcept {
  if (exponent == -1) return one_over(x);
  if (exponent == 2) return x * x;
  if (exponent < 0 && x == 0) return undefined;
  if (exponent == -2) return 1 / (x * x);
  return exponent == 0.5 ? std::sqrt(x) : std::pow(x, exponent);
}
}  // namespace real

[[nodiscard]] constexpr interval sign(const interval& x) noexcept {
  return {x.lower > 0 ? 1.0 : x.lower == 0 ? 0.0 : -1.0, x.upper > 0 ? 1.0 : x.upper == 0 ? 0.0 : -1.0};
}
[[nodiscard]] constexpr interval select(const interval& x, const interval& positive,
                                        const interval& otherwise) noexcept {
  if (x.is_empty()) return x;
  if (x.lower > 0) return positive;
  return x.upper <= 0 ? otherwise : hull(positive, otherwise);
}

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

}  // namespace query::inside
}  // namespace pergrad::inline v0_1
