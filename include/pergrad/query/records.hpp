// SPDX-License-Identifier: Apache-2.0
// pergrad/query/records.hpp - columns of records, and a query's values for all of them
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/query/evaluate.hpp>

namespace pergrad::inline v0_1 {

/// The fields of records as columns: `pg::records{age = ages, weight = weights}`, views of the caller's numbers. Throws
/// std::invalid_argument unless all columns are of one length, and of one field each.
class records {
 public:
  template <class... Columns>
  explicit records(const query::column& first, const Columns&... others) : columns_{first, others...} {
    for (const query::column& each : columns_) {
      const auto is_its = [&](const query::column& other) { return other.name.compared(each.name) == 0; };
      if (std::ranges::count_if(columns_, is_its) > 1) query::inside::field_has_value_twice(each.name);
      if (each.values.size() == size()) continue;
      detail::throw_invalid_argument({"pergrad: records: ", query::inside::short_text_of(each.name).text, " has ",
                                      each.values.size(), " values, and ",
                                      query::inside::short_text_of(columns_[0].name).text, " has ", size()});
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return columns_[0].values.size(); }
  /// Throws std::invalid_argument for a field that is no column.
  [[nodiscard]] std::span<const double> of(const query::inside::field_name& name) const {
    for (const query::column& each : columns_) {
      if (each.name.compared(name) == 0) return each.values;
    }
    query::inside::field_has_no_value(query::inside::short_text_of(name));
  }

 private:
  std::vector<query::column> columns_;
};

namespace query::inside {

/// A number brought into its bounds; a NaN becomes the lower one.
[[nodiscard]] inline double clamped(double value, const interval& bounds) noexcept {
  if (!(value >= bounds.lower)) return bounds.lower;
  return value > bounds.upper ? bounds.upper : value;
}

/// take(i, values) of every record i: the query's values there. Fields are clamped to `bounds` first unless it is null.
template <class Take>
void for_each_record(const expression& query, const records& of, const field_intervals* bounds, Take take) {
  const node_list& list = query_access::nodes(query);
  std::vector<std::span<const double>> columns;
  for (std::size_t i = 0; i < place(list.field_count); ++i) columns.push_back(of.of(list.fields[i]));
  std::vector<lanes> fields(columns.size() + 1);
  std::vector<lanes> nodes(place(list.node_count));
  std::array<double, most_outputs> values{};
  for (std::size_t first = 0; first < of.size(); first += lanes::count) {
    const std::size_t count = std::min(lanes::count, of.size() - first);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      std::copy_n(columns[i].data() + first, count, fields[i].values.data());
      if (bounds == nullptr) continue;
      for (double& each : fields[i].values) each = clamped(each, (*bounds)[i]);
    }
    evaluate_nodes(list, fields.data(), nodes);
    for (std::size_t lane = 0; lane < count; ++lane) {
      for (std::size_t i = 0; i < place(query.size()); ++i) values[i] = nodes[place(list.outputs[i])].values[lane];
      take(first + lane, values);
    }
  }
}

}  // namespace query::inside

namespace query {

/// Values of the query for all records, size() of them a record, one record after the other: private values. To nearest
/// and by libm. Throws std::invalid_argument for a field that is no column.
[[nodiscard]] inline std::vector<double> evaluate(const expression& query, const records& of) {
  const std::size_t size = inside::place(query.size());
  std::vector<double> found(of.size() * size);
  inside::for_each_record(query, of, nullptr, [&](std::size_t record, const auto& values) {
    std::copy_n(values.data(), size, found.data() + record * size);
  });
  return found;
}

}  // namespace query
}  // namespace pergrad::inline v0_1
