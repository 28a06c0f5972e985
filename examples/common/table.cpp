// SPDX-License-Identifier: Apache-2.0
// examples/common/table.cpp - schemas of tables, and rows as numbers
#include "table.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "csv.hpp"
#include "gzip.hpp"
#include "word_lists.hpp"

namespace example {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t most_categories = 64;
constexpr std::size_t most_rows = std::numeric_limits<std::uint32_t>::max();  // what a trainer takes

[[nodiscard]] std::string shown(const std::string& text) {
  return "'" + text.substr(0, 40) + (text.size() > 40 ? "...'" : "'");
}

constexpr double largest = std::numeric_limits<double>::max();

/// A finite number that is the whole text.
[[nodiscard]] std::optional<double> number_of(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (stop != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {  // larger than any double, to be clamped as others are; or next to 0
    value = std::clamp(std::strtod(std::string{text}.c_str(), nullptr), -largest, largest);
  } else if (error != std::errc{} || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

[[nodiscard]] bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::ranges::find(list, text) != list.end();
}

/// Where the columns of the schema are in the table.
[[nodiscard]] std::vector<std::size_t> places(const csv_table& table, const table_schema& schema, bool classes) {
  std::vector<std::size_t> found;
  for (const column_schema& column : schema.columns) {
    const auto place = std::ranges::find(table.columns, column.name);
    if (place == table.columns.end() && (classes || column.name != schema.target)) {
      throw std::runtime_error(table.name + ", line 1: there is no column " + shown(column.name) +
                               ", which the schema names");
    }
    found.push_back(static_cast<std::size_t>(place - table.columns.begin()));
  }
  return found;
}

/// Halves, as in encode(); of the smallest doubles they may be no different.
[[nodiscard]] bool has_width(const column_schema& range) { return range.high / 2 - range.low / 2 > 0; }

[[nodiscard]] column_schema column_of(const std::string& name, const json& entry, const std::string& where) {
  column_schema made{name, {}, 0, 0};
  const auto all = [&entry](auto is) { return std::all_of(entry.begin(), entry.end(), is); };
  if (entry.is_array() && entry.size() == 2 && all([](const json& each) { return each.is_number(); })) {
    made.low = entry[0].get<double>();
    made.high = entry[1].get<double>();
    if (!has_width(made)) throw std::runtime_error(where + ": the range must be [LOW, HIGH] with LOW < HIGH");
    return made;
  }
  if (!entry.is_array() || entry.empty() || !all([](const json& each) { return each.is_string(); })) {
    throw std::runtime_error(where + R"(: must be a range such as [0, 100], or categories such as ["yes", "no"])");
  }
  made.categories = entry.get<std::vector<std::string>>();
  std::set<std::string_view> seen;
  for (const std::string& category : made.categories) {
    if (!seen.insert(category).second) {
      throw std::runtime_error(where + ": has the category " + shown(category) + " twice");
    }
  }
  return made;
}

}  // namespace

const column_schema& table_schema::target_column() const {
  return *std::ranges::find(columns, target, &column_schema::name);
}

std::size_t table_schema::inputs() const {
  std::size_t sum = 0;
  for (const column_schema& column : columns) sum += column.name == target ? 0 : column.inputs();
  return sum;
}

table_schema read_schema(const std::string& path, const std::string& target) {
  const bytes content = read_file(path);
  table_schema made;
  const auto fail = [&path](const std::string& what) { throw std::runtime_error(path + ": " + what); };
  json text;
  std::vector<std::set<std::string>> keys;  // of the objects that the parser is in
  const auto keeps = [&](int, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      fail("has " + shown(parsed.get<std::string>()) + " twice");
    }
    return true;
  };
  try {
    text = json::parse(content, keeps);
  } catch (const json::exception& problem) {
    const std::string said =
        problem.what();  // "[json.exception.parse_error.101] parse error at line 1, column 14: ..."
    fail("is not a schema: " + said.substr(said.find("] ") + 2));
  }
  if (!text.is_object()) fail("is not a schema: expected an object of JSON");
  for (const auto& [key, entry] : text.items()) {
    if (key == "rows" && entry.is_number_unsigned() && entry.get<std::size_t>() - 1 < most_rows) {
      made.rows = entry.get<std::size_t>();
    } else if (key == "target" && entry.is_string()) {
      made.target = entry.get<std::string>();
    } else if (key == "missing" && entry.is_array() &&
               std::all_of(entry.begin(), entry.end(), [](const json& each) { return each.is_string(); })) {
      made.missing = entry.get<std::vector<std::string>>();
    } else if (key == "columns" && entry.is_object()) {
      for (const auto& [name, column] : entry.items()) {
        made.columns.push_back(column_of(name, column, path + ": column " + shown(name)));
      }
    } else {
      fail("unexpected entry or value of " + shown(key) + "; a schema has rows (a whole number from 1 to " +
           std::to_string(most_rows) + "), columns, target, missing");
    }
  }
  if (!text.contains("missing")) made.missing = {"", "NA", "N/A", "nan", "NaN", "null", "NULL", "?"};
  if (made.rows == 0) fail("needs rows: about how many there are, a number that is public");
  if (!target.empty()) made.target = target;
  if (made.target.empty()) fail("has no target, and --target names none");
  if (std::ranges::find(made.columns, made.target, &column_schema::name) == made.columns.end()) {
    fail("has no column " + shown(made.target) + ", the target");
  }
  if (made.target_column().categories.size() < 2) {
    fail("column " + shown(made.target) + " is the target, so it needs at least two categories");
  }
  if (made.inputs() == 0) fail("has no column but the target");
  return made;
}

std::string schema_text(const table_schema& schema) {
  json made;
  made["rows"] = schema.rows;
  if (!schema.target.empty()) made["target"] = schema.target;
  made["missing"] = schema.missing;
  for (const column_schema& column : schema.columns) {
    made["columns"][column.name] = column.is_number() ? json{column.low, column.high} : json(column.categories);
  }
  return made.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

table_schema draft_schema(const csv_table& table, const std::string& target) {
  table_schema made{table.rows.size(), {"", "NA", "N/A", "nan", "NaN", "null", "NULL", "?"}, {}, target};
  if (!target.empty() && !contains(table.columns, target)) {
    throw std::runtime_error(table.name + ", line 1: there is no column " + shown(target));
  }
  // What read_schema() would refuse is not written: a draft is replaced by no other one.
  if (table.rows.empty()) throw std::runtime_error(table.name + ": has no rows that a schema could be drafted from");
  for (std::size_t place = 0; place < table.columns.size(); ++place) {
    column_schema column{table.columns[place], {}, INFINITY, -INFINITY};
    bool numbers = column.name != target;
    std::set<std::string> categories;
    for (const csv_row& row : table.rows) {
      const std::string& field = row.fields[place];
      if (contains(made.missing, field)) continue;
      if (categories.size() <= most_categories) categories.insert(field);
      const auto value = number_of(field);
      numbers = numbers && value;
      column.low = std::min(column.low, value.value_or(INFINITY));
      column.high = std::max(column.high, value.value_or(-INFINITY));
    }
    if (!target.empty() && column.name == target && (categories.size() < 2 || categories.size() > most_categories)) {
      std::string refusal = table.name + ", column " + target + ": has ";
      refusal += categories.size() > most_categories ? "more than " + std::to_string(most_categories)
                                                     : std::to_string(categories.size());
      throw std::runtime_error(refusal + " categories, and a target needs 2 to " + std::to_string(most_categories));
    }
    if (!numbers) column.categories.assign(categories.begin(), categories.end());
    if (numbers ? has_width(column) : !categories.empty() && categories.size() <= most_categories) {
      made.columns.push_back(std::move(column));
    }
  }
  if (made.columns.size() <= (target.empty() ? 0U : 1U)) {
    throw std::runtime_error(table.name + ": has no column" + (target.empty() ? "" : " but the target") +
                             " of numbers that differ or of 1 to " + std::to_string(most_categories) + " categories");
  }
  return made;
}

csv_table read_csv(const std::string& path) {
  const bytes content = read_file(path);
  return parse_csv({reinterpret_cast<const char*>(content.data()), content.size()}, path);
}

encoded_rows encode(const csv_table& table, const table_schema& schema, std::size_t width, bool classes) {
  const std::vector<std::size_t> at = places(table, schema, classes);
  encoded_rows made;
  made.inputs.assign(table.rows.size() * width, 0.0F);
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    auto input = std::next(made.inputs.begin(), static_cast<std::ptrdiff_t>(row * width));
    for (std::size_t place = 0; place < schema.columns.size(); ++place) {
      const column_schema& column = schema.columns[place];
      const bool is_target = column.name == schema.target;
      if (is_target && !classes) continue;
      const std::string& field = table.rows[row].fields[at[place]];
      const auto fail = [&](const std::string& what) {
        throw std::runtime_error(table.name + ", line " + std::to_string(table.rows[row].line) + ", column " +
                                 column.name + ": " + shown(field) + what);
      };
      if (column.is_number()) {
        if (contains(schema.missing, field)) {  // which may look like a number: -999
          input[1] = 1.0F;
        } else if (const auto value = number_of(field)) {
          // Both halved: the width of a range of doubles may be no double.
          const double share = (*value / 2 - column.low / 2) / (column.high / 2 - column.low / 2);
          input[0] = static_cast<float>(std::clamp(2 * share - 1, -1.0, 1.0));
        } else {
          fail(" is not a number, nor among the schema's texts for a missing one");
        }
      } else {
        const auto category = std::ranges::find(column.categories, field) - column.categories.begin();
        if (!is_target) {
          input[category] = 1.0F;
        } else if (static_cast<std::size_t>(category) == column.categories.size()) {
          fail(" is none of the classes that the schema lists");
        } else {
          made.classes.push_back(static_cast<std::int32_t>(category));
        }
      }
      if (!is_target) input += static_cast<std::ptrdiff_t>(column.inputs());
    }
  }
  return made;
}

csv_table hold_out(csv_table& table, std::size_t percent) {
  csv_table held{table.name, table.columns, {}};
  std::vector<csv_row> kept;
  for (csv_row& row : table.rows) {
    std::string all;
    for (const std::string& field : row.fields) all.append(field).push_back('\0');
    (words::hash(all) % 100 < percent ? held.rows : kept).push_back(std::move(row));
  }
  table.rows = std::move(kept);
  return held;
}

}  // namespace example
