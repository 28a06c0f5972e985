// SPDX-License-Identifier: Apache-2.0
// examples/common/csv.hpp - tables as text: RFC 4180, and what programs write beside it
//
// A field may stand in quotes and then hold separators, line ends and doubled quotes. Lines end in LF or CRLF. The
// separator is the one of , ; and tab that the header has most of. A byte order mark and empty lines are skipped,
// blanks around a field without quotes are no part of it. Everything else is an error that names the file, the line and
// the column.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

/// One row, and the line of the file in which it begins, counted from 1.
struct csv_row {
  std::size_t line = 0;
  std::vector<std::string> fields;
};

struct csv_table {
  std::string name;                  ///< of the file
  std::vector<std::string> columns;  ///< the first row
  std::vector<csv_row> rows;         ///< all others, with as many fields each
};

class csv_parser {
 public:
  csv_parser(std::string_view text, std::string name) : text_{text}, name_{std::move(name)} {
    if (text_.starts_with("\xef\xbb\xbf")) place_ = 3;
    if (text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff")) fail("is UTF-16 text, expected UTF-8");
    separator_ = most_frequent_separator();
  }

  /// Throws std::runtime_error that names the file, the line and the column.
  [[nodiscard]] csv_table parse() {
    csv_table made{name_, {}, {}};
    for (csv_row row; next(row);) {
      if (made.columns.empty()) {
        made.columns = std::move(row.fields);
        for (auto column = made.columns.begin(); column != made.columns.end(); ++column) {
          const auto first = std::find(made.columns.begin(), column, *column);
          if (first == column) continue;
          line_ = row.line;
          column_ = static_cast<std::size_t>(column - made.columns.begin()) + 1;
          fail("has the name '" + *column + "' of column " + std::to_string(first - made.columns.begin() + 1) +
               ", expected another one");
        }
      } else if (row.fields.size() != made.columns.size()) {
        line_ = row.line;
        column_ = 0;
        fail("has " + std::to_string(row.fields.size()) + " fields, expected " + std::to_string(made.columns.size()) +
             " as in the header");
      } else {
        made.rows.push_back(std::move(row));
      }
    }
    if (made.columns.empty()) fail("is empty, expected a line with the names of the columns");
    return made;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const std::string column = column_ == 0 ? "" : ", column " + std::to_string(column_);
    throw std::runtime_error(name_ + ", line " + std::to_string(line_) + column + ": " + what);
  }

  // Of the header, the first line that is not empty. What is in quotes is text, and separates nothing.
  [[nodiscard]] char most_frequent_separator() const {
    constexpr std::string_view separators = ",;\t";
    std::array<std::size_t, separators.size()> counts{};
    bool is_quoted = false, begins = true;  // a field
    for (std::size_t place = text_.find_first_not_of("\r\n", place_); place < text_.size(); ++place) {
      const char each = text_[place];
      if (is_quoted) {
        if (each != '"') continue;
        is_quoted = text_.substr(place + 1).starts_with('"');
        if (is_quoted) ++place;
        continue;
      }
      if (each == '\r' || each == '\n') break;
      is_quoted = begins && each == '"';
      const std::size_t which = separators.find(each);
      if (which != std::string_view::npos) ++counts[which];
      begins = which != std::string_view::npos || (begins && each == ' ');
    }
    return separators[static_cast<std::size_t>(std::max_element(counts.begin(), counts.end()) - counts.begin())];
  }

  [[nodiscard]] bool at_line_end() const {
    return place_ == text_.size() || text_[place_] == '\n' || text_.substr(place_).starts_with("\r\n");
  }
  void skip_line_end() {
    if (place_ < text_.size()) place_ += text_[place_] == '\n' ? 1U : 2U;
    ++line_;
  }
  void skip_blanks() {
    while (place_ < text_.size() && text_[place_] != separator_ && (text_[place_] == ' ' || text_[place_] == '\t')) {
      ++place_;
    }
  }

  // Whether there was one more row that is not empty.
  [[nodiscard]] bool next(csv_row& row) {
    while (place_ < text_.size() && at_line_end()) skip_line_end();
    row = {line_, {}};
    column_ = 0;
    if (place_ == text_.size()) return false;
    while (true) {
      ++column_;
      row.fields.push_back(field());
      if (at_line_end()) {
        skip_line_end();
        return true;
      }
      ++place_;  // the separator
    }
  }

  [[nodiscard]] std::string field() {
    skip_blanks();
    if (place_ < text_.size() && text_[place_] == '"') return quoted_field();
    const std::size_t begin = place_;
    while (!at_line_end() && text_[place_] != separator_) {
      if (text_[place_] == '\0') fail("has a byte 0, expected text");
      ++place_;
    }
    std::size_t end = place_;
    while (end > begin && (text_[end - 1] == ' ' || text_[end - 1] == '\t')) --end;
    return std::string{text_.substr(begin, end - begin)};
  }

  [[nodiscard]] std::string quoted_field() {
    const std::size_t begins_in = line_;
    std::string made;
    for (++place_; place_ < text_.size(); ++place_) {
      if (text_[place_] == '"') {
        if (!text_.substr(place_ + 1).starts_with('"')) {
          ++place_;
          skip_blanks();
          if (!at_line_end() && text_[place_] != separator_) {
            fail(std::string("has text behind the closing quote, expected '") + separator_ + "' or the line's end");
          }
          return made;
        }
        ++place_;
      }
      if (text_[place_] == '\0') fail("has a byte 0, expected text");
      if (text_[place_] == '\n') ++line_;
      made += text_[place_];
    }
    line_ = begins_in;
    fail("has a quote that is opened and never closed, expected another one");
  }

  std::string_view text_;
  std::string name_;
  std::size_t place_ = 0;
  std::size_t line_ = 1;
  std::size_t column_ = 0;  ///< counted from 1; 0: it is of the whole line
  char separator_ = ',';
};

[[nodiscard]] inline csv_table parse_csv(std::string_view text, const std::string& name) {
  return csv_parser{text, name}.parse();
}

/// A field as it is written: in quotes where it has to be.
[[nodiscard]] inline std::string csv_field(const std::string& content) {
  if (content.find_first_of(",;\t\"\r\n ") == std::string::npos) return content;
  std::string made = "\"";
  for (const char character : content) made += character == '"' ? "\"\"" : std::string(1, character);
  return made + "\"";
}

}  // namespace example
