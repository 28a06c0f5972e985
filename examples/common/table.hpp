// SPDX-License-Identifier: Apache-2.0
// examples/common/table.hpp - rows of a table as numbers for a network, one row at a time
//
// What a row becomes depends on that row and on the schema, and on no other row: the schema is the user's, and public.
// So preparing the data costs no privacy. Ranges or vocabularies that are read from private rows would tell of them
// before the first step of training.
//
//   a number in [low, high]     two inputs: 2 (x - low) / (high - low) - 1, clamped to [-1, 1], and 0;
//                               0 and 1 where the value is missing
//   one of V categories         V + 1 inputs, of which one is 1: the last one for whatever is not among the V
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csv.hpp"

namespace example {

/// What is public about one column.
struct column_schema {
  std::string name;
  std::vector<std::string> categories;  ///< none: a number
  double low = 0, high = 0;

  [[nodiscard]] bool is_number() const noexcept { return categories.empty(); }
  [[nodiscard]] std::size_t inputs() const noexcept { return is_number() ? 2 : categories.size() + 1; }
};

/// What is public about a table: nothing of it may be read from private rows.
struct table_schema {
  std::size_t rows = 0;                ///< about as many: for the sampling probability and the divisor
  std::vector<std::string> missing;    ///< how a missing number is written
  std::vector<column_schema> columns;  ///< the target among them
  std::string target;

  [[nodiscard]] const column_schema& target_column() const;
  /// Of all columns but the target.
  [[nodiscard]] std::size_t inputs() const;
};

/// `width` numbers a row, zeros behind those of the schema; the class of each row, if the target was asked for.
struct encoded_rows {
  std::vector<float> inputs;
  std::vector<std::int32_t> classes;
};

/// Reads a schema (JSON). `target` replaces that of the file; it must be a column with at least two categories. Throws
/// std::runtime_error that names the file and the column.
[[nodiscard]] table_schema read_schema(const std::string& path, const std::string& target);
[[nodiscard]] std::string schema_text(const table_schema& schema);

/// A schema from rows that are public: a range for what are numbers in all rows, the categories of what has at most 64,
/// and nothing of any other column. `target` gets categories in any case. Throws std::runtime_error for a table from
/// which no schema can be made that read_schema() takes.
[[nodiscard]] table_schema draft_schema(const csv_table& table, const std::string& target);

[[nodiscard]] csv_table read_csv(const std::string& path);

/// Throws std::runtime_error that names the file, the line and the column: for a column of the schema that is not
/// there, for text where a number should be, and, with `classes`, for a row whose target is no class.
[[nodiscard]] encoded_rows encode(const csv_table& table, const table_schema& schema, std::size_t width, bool classes);

/// Takes the rows out of a table that a hash of their fields chooses: about so many of a hundred. A row goes to the
/// same side whatever the other rows are.
[[nodiscard]] csv_table hold_out(csv_table& table, std::size_t percent);

}  // namespace example
