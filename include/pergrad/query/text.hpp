// SPDX-License-Identifier: Apache-2.0
// pergrad/query/text.hpp - queries in words: as text, as LaTeX, and in error messages of both run time and compilers
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <pergrad/query/expression.hpp>

namespace pergrad::inline v0_1 {

namespace query::inside {

/// Text of a fixed room, cut off at its end, for messages in constant expressions.
struct short_text {
  static constexpr std::size_t room = 160;
  char text[room];
  std::size_t used;

  constexpr void put(char letter) noexcept {
    if (used + 1 < room) text[used++] = letter;
  }
};
struct string_text {
  std::string text{};
  void put(char letter) { text.push_back(letter); }
};
template <class To>
constexpr void put_letters(To& to, const char* letters) {
  for (; *letters != 0; ++letters) to.put(*letters);
}
template <class To>
constexpr void put_whole(To& to, std::uint64_t number) {
  if (number >= 10) put_whole(to, number / 10);
  to.put(static_cast<char>('0' + number % 10));
}
/// The shortest digits that mean this number; in constant expressions 6 decimals at most.
template <class To>
constexpr void put_number(To& to, double number) {
  if (!std::is_constant_evaluated()) {
    char digits[32] = {};
    const auto end = std::to_chars(digits, digits + sizeof digits - 1, number);
    *end.ptr = 0;
    put_letters(to, digits);
    return;
  }
  if (number < 0) to.put('-');
  const double size = magnitude(number);
  if (!(size < 1e15)) return put_letters(to, size == unbounded ? "inf" : size > 0 ? "1e15 or more" : "nan");
  auto whole = static_cast<std::uint64_t>(size);
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): lround is none of constant expressions
  auto millionths = static_cast<std::uint64_t>((size - static_cast<double>(whole)) * 1e6 + 0.5);
  if (millionths == 1'000'000) ++whole, millionths = 0;
  put_whole(to, whole);
  if (millionths == 0) return;
  to.put('.');
  for (std::uint64_t unit = 100'000; millionths != 0; unit /= 10) {
    to.put(static_cast<char>('0' + millionths / unit));
    millionths %= unit;
  }
}
/// A constant as one number: of two neighbours the one with fewer digits.
[[nodiscard]] constexpr double shown(const node& constant) noexcept {
  if (std::is_constant_evaluated() || constant.number == constant.number_above) return constant.number;
  char digits[32] = {};
  const auto length = [&](double x) { return std::to_chars(digits, digits + sizeof digits, x).ptr - digits; };
  return length(constant.number) < length(constant.number_above) ? constant.number : constant.number_above;
}
template <class To>
constexpr void put_name(To& to, const field_name& name) {
  put_letters(to, name.text);
  if (name.number < 0) return;
  to.put('[');
  put_whole(to, static_cast<std::uint64_t>(name.number));
  to.put(']');
}

enum class notation { text, latex };
/// How tightly a formula holds together.
enum class binding_strength { sum, product, power, atom };

/// Writes formulas: products with what is below a fraction's line behind it, sums with their signs.
template <class To>
class formula_writer {
 public:
  constexpr formula_writer(const node_list& list, To& to, notation style) noexcept
      : list_{list}, to_{to}, style_{style} {}

  constexpr void write(int i, binding_strength around = binding_strength::sum) {
    const node& each = at(i);
    switch (each.kind) {
      case node_kind::constant: {
        const bool is_below = each.number < 0 && around != binding_strength::sum;
        if (is_below) to_.put('(');
        put_number(to_, shown(each));
        if (is_below) to_.put(')');
        break;
      }
      case node_kind::field:
        if (is_latex()) put("\\mathrm{");
        put_name(to_, list_.fields[place(each.first)]);
        if (is_latex()) to_.put('}');
        break;
      case node_kind::add:
        enclosed(around > binding_strength::sum, [&] { write_sum(i, true); });
        break;
      case node_kind::multiply:
      case node_kind::power:
        write_product(i, around);
        break;
      case node_kind::select:
        write_select(each);
        break;
      case node_kind::as_written:
        write(each.first, around);
        break;
      default:
        put(is_latex() ? "\\operatorname{" : "");
        put(name_of(each.kind));
        put(is_latex() ? "}\\left(" : "(");
        write(each.first);
        if (operands_of(each.kind) == 2) put(", "), write(each.second);
        put(is_latex() ? "\\right)" : ")");
    }
  }

  [[nodiscard]] static constexpr const char* name_of(node_kind kind) noexcept {
    constexpr std::array<const char*, 19> names{"constant", "field", "+",    "*",       "^",         "exp", "log",
                                                "sin",      "cos",   "tanh", "sigmoid", "softplus",  "erf", "abs",
                                                "sign",     "min",   "max",  "where",   "as_written"};
    return names[static_cast<std::size_t>(kind)];
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const noexcept { return list_.nodes[place(i)]; }
  [[nodiscard]] constexpr bool is_latex() const noexcept { return style_ == notation::latex; }
  constexpr void put(const char* letters) { put_letters(to_, letters); }
  template <class Write>
  constexpr void enclosed(bool is_enclosed, Write inner) {
    if (is_enclosed) put(is_latex() ? "\\left(" : "(");
    inner();
    if (is_enclosed) put(is_latex() ? "\\right)" : ")");
  }
  [[nodiscard]] constexpr bool is_number(int i) const noexcept { return at(i).kind == node_kind::constant; }
  /// The number of a product or sum's term, or 1.
  [[nodiscard]] constexpr double number_of(int i) const noexcept {
    if (at(i).kind == node_kind::multiply) i = at(i).second;
    return is_number(i) ? shown(at(i)) : 1;
  }

  constexpr void write_sum(int i, bool is_first) {
    if (at(i).kind == node_kind::add) {
      write_sum(at(i).first, is_first);
      write_sum(at(i).second, false);
      return;
    }
    const bool is_negative = number_of(i) < 0;
    if (!is_first) put(is_negative ? " - " : " + ");
    if (is_first && is_negative) put("-");
    if (is_number(i)) {
      put_number(to_, magnitude(number_of(i)));
    } else {
      write_factors(i, binding_strength::product, magnitude(number_of(i)));
    }
  }
  constexpr void write_product(int i, binding_strength around) {
    const double number = number_of(i);
    enclosed(number < 0 && around > binding_strength::sum, [&] {
      if (number < 0) put("-");
      write_factors(i, number < 0 ? binding_strength::product : around, magnitude(number));
    });
  }
  /// How many factors have exponents above 0 (sign 1) or below (-1), not counting a number.
  [[nodiscard]] constexpr int factors(int i, int sign) const noexcept {
    if (at(i).kind == node_kind::multiply) return factors(at(i).first, sign) + factors(at(i).second, sign);
    if (is_number(i)) return 0;
    return (at(i).kind == node_kind::power && at(i).number < 0 ? -1 : 1) == sign ? 1 : 0;
  }
  constexpr void write_factors(int i, binding_strength around, double number) {
    const int above = factors(i, 1);
    const int below = factors(i, -1);
    const bool is_one = above + below == 1 && below == 0 && number == 1;
    const bool has_fraction = below > 0 && is_latex();
    const bool is_raised = is_one && at(i).kind == node_kind::power && at(i).number != 0.5;
    const bool is_loose = is_raised ? around == binding_strength::atom : !is_one && around > binding_strength::product;
    enclosed(is_loose && !has_fraction, [&] {
      if (has_fraction) put("\\frac{");
      bool is_first = true;
      if (number != 1 || above == 0) put_number(to_, number), is_first = false;
      write_side(i, 1, is_first, is_one ? around : binding_strength::power);
      if (below == 0) return;
      put(has_fraction ? "}{" : " / ");
      is_first = true;
      enclosed(!has_fraction && below > 1, [&] {
        write_side(i, -1, is_first, has_fraction ? binding_strength::product : binding_strength::power);
      });
      if (has_fraction) put("}");
    });
  }
  /// Factors of one side of the fraction's line.
  constexpr void write_side(int i, int sign, bool& is_first, binding_strength around) {
    if (at(i).kind == node_kind::multiply) {
      write_side(at(i).first, sign, is_first, around);
      write_side(at(i).second, sign, is_first, around);
      return;
    }
    if (factors(i, sign) == 0) return;
    if (!is_first) put(is_latex() ? " \\, " : " * ");
    is_first = false;
    if (at(i).kind != node_kind::power) return write(i, around);
    const double exponent = magnitude(at(i).number);
    if (exponent == 0.5) {
      put(is_latex() ? "\\sqrt{" : "sqrt(");
      write(at(i).first);
      put(is_latex() ? "}" : ")");
      return;
    }
    write(at(i).first, exponent == 1 ? around : binding_strength::atom);
    if (exponent == 1) return;
    put(is_latex() ? "^{" : "^");
    put_number(to_, exponent);
    if (is_latex()) put("}");
  }
  constexpr void write_select(const node& each) {
    put(is_latex() ? "\\begin{cases}" : "where(");
    if (is_latex()) {
      write(each.second), put(" & "), write(each.first), put(" > 0 \\\\ "), write(each.third);
      put(" & \\text{else}\\end{cases}");
    } else {
      write(each.first), put(" > 0, "), write(each.second), put(", "), write(each.third), put(")");
    }
  }

  const node_list& list_;
  To& to_;
  notation style_;
};

/// A node's formula, for messages.
[[nodiscard]] constexpr short_text short_text_of(const node_list& list, int i) {
  short_text found{};
  formula_writer{list, found, notation::text}.write(i);
  return found;
}
[[nodiscard]] inline std::string string_of(const query::expression& query, notation style) {
  const node_list& list = query_access::nodes(query);
  string_text found;
  if (query.size() > 1) found.put('(');
  for (int i = 0; i < query.size(); ++i) {
    if (i > 0) put_letters(found, ", ");
    formula_writer{list, found, style}.write(list.outputs[place(i)]);
  }
  if (query.size() > 1) found.put(')');
  return found.text;
}

}  // namespace query::inside

namespace query {

/// The formula on one line, in canonical form.
[[nodiscard]] inline std::string text(const expression& query) {
  return query::inside::string_of(query, query::inside::notation::text);
}
/// The formula in LaTeX's mathematical mode.
[[nodiscard]] inline std::string latex(const expression& query) {
  return query::inside::string_of(query, query::inside::notation::latex);
}

}  // namespace query
}  // namespace pergrad::inline v0_1
