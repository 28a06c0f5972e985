// SPDX-License-Identifier: Apache-2.0
// pergrad/train/check_records.hpp - what the owner of a data set should look at before training on it
//
// A private trainer cannot tell: what it said of the records would be a release of them. It trains on records of NaN,
// or on none, without a word. Everything here is a private value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::unprotected {

/// What `check` found. Counts are of records unless they say otherwise; record numbers are those of the first one.
struct records_report {
  std::size_t records = 0;
  std::size_t with_nan = 0;  ///< a NaN among the inputs that are there
  std::size_t with_infinity = 0;
  std::size_t first_not_finite = 0;  ///< of either; meaningless if both are 0
  std::size_t targets_not_finite = 0;
  std::vector<std::size_t> constant_columns;  ///< places in a record that have the same value in all of them
  std::size_t duplicates = 0;                 ///< inputs and targets are those of an earlier record
  std::size_t same_inputs_other_targets = 0;  ///< inputs are those of an earlier record, targets are not
  std::map<double, std::size_t> labels;       ///< of one target a record: how many have each value, for up to 1000
  bool more_labels = false;                   ///< there are more than 1000
  std::size_t shortest = 0;                   ///< lengths; all the same where they do not vary
  std::size_t longest = 0;
  double mean_length = 0;
  double smallest = std::numeric_limits<double>::infinity();  ///< finite input value
  double largest = -std::numeric_limits<double>::infinity();

  /// Nothing that most people would want to mend: records, numbers that are finite, no duplicate, no constant column.
  [[nodiscard]] bool clean() const noexcept {
    return records != 0 && with_nan == 0 && with_infinity == 0 && targets_not_finite == 0 && duplicates == 0 &&
           same_inputs_other_targets == 0 && constant_columns.empty();
  }
  /// A few lines for people.
  [[nodiscard]] std::string text() const {
    std::string lines = std::to_string(records) + " records\n";
    if (records == 0) return lines;
    const auto line = [&](std::size_t count, const char* what) {
      if (count != 0) lines += std::to_string(count) + what + "\n";
    };
    line(with_nan, " have a NaN among their inputs");
    line(with_infinity, " have an infinity among their inputs");
    if (with_nan + with_infinity != 0)
      lines += "the first of them is record " + std::to_string(first_not_finite) + "\n";
    line(targets_not_finite, " have a target that is not finite");
    line(duplicates, " are duplicates of an earlier one");
    line(same_inputs_other_targets, " have the inputs of an earlier one, and other targets");
    if (smallest <= largest) {
      lines += "input values from " + std::to_string(smallest) + " to " + std::to_string(largest) + "\n";
    }
    if (!constant_columns.empty()) {
      lines += std::to_string(constant_columns.size()) + " input columns are constant: ";
      for (std::size_t i = 0; i < std::min<std::size_t>(10, constant_columns.size()); ++i) {
        lines += (i == 0 ? "" : ", ") + std::to_string(constant_columns[i]);
      }
      lines += constant_columns.size() > 10 ? ", ...\n" : "\n";
    }
    if (shortest != longest) {
      lines += "lengths from " + std::to_string(shortest) + " to " + std::to_string(longest) + ", on average " +
               std::to_string(mean_length) + "\n";
    }
    if (more_labels) lines += "more than 1000 different targets\n";
    for (const auto& [label, count] : labels) {
      if (labels.size() > 100) break;
      char number[32];
      std::snprintf(number, sizeof number, "%.6g", label);
      lines += std::string{"target "} + number + ": " + std::to_string(count) + "\n";
    }
    return lines;
  }
};

/// Looks at every record, for the data's owner: each number of the result is a private value. Of samples with lengths
/// of their own, what lies beyond a length is not looked at; columns are those that all samples have. Takes the time of
/// sorting the records.
template <class Value, class Target>
[[nodiscard]] records_report check(const dataset<Value, Target>& records) {
  records_report found;
  const shape input = records.input_shape();
  const std::size_t width = input.size() / std::max<std::size_t>(1, input.e0);  // values a position
  const bool varies = input.varying_axis() != 0;
  const auto values_of = [&](std::size_t record) { return varies ? records.length(record) * width : input.size(); };
  const auto finite = [](auto value) {
    if constexpr (std::is_floating_point_v<decltype(value)>) return std::isfinite(value);
    return true;
  };
  found.records = records.size();
  if (found.records == 0) return found;
  found.shortest = std::numeric_limits<std::size_t>::max();
  std::vector<bool> varying(input.size());
  std::size_t columns = input.size();
  std::size_t positions = 0;
  for (std::size_t record = 0; record < found.records; ++record) {
    const Value* values = records.input(record);
    const std::size_t count = values_of(record);
    bool has_nan = false;
    bool has_infinity = false;
    for (std::size_t i = 0; i < count; ++i) {
      if (finite(values[i])) {
        found.smallest = std::min(found.smallest, static_cast<double>(values[i]));
        found.largest = std::max(found.largest, static_cast<double>(values[i]));
      } else if (std::isnan(static_cast<double>(values[i]))) {
        has_nan = true;
      } else {
        has_infinity = true;
      }
      if (record != 0 && values[i] != records.input(0)[i]) varying[i] = true;
    }
    columns = std::min(columns, count);
    if ((has_nan || has_infinity) && found.with_nan + found.with_infinity == 0) found.first_not_finite = record;
    found.with_nan += has_nan ? 1U : 0U;
    found.with_infinity += has_infinity ? 1U : 0U;
    const std::size_t length = records.length(record);
    found.shortest = std::min(found.shortest, length);
    found.longest = std::max(found.longest, length);
    positions += length;
    if constexpr (std::is_arithmetic_v<Target>) {
      const auto targets = records.targets(record);
      const bool all_finite = std::all_of(targets.begin(), targets.end(), finite);
      found.targets_not_finite += all_finite ? 0U : 1U;
      if (targets.size() == 1 && all_finite && !found.more_labels) {
        ++found.labels[static_cast<double>(targets[0])];
        if (found.labels.size() > 1000) {
          found.labels.clear();
          found.more_labels = true;
        }
      }
    }
  }
  found.mean_length = static_cast<double>(positions) / static_cast<double>(found.records);
  for (std::size_t i = 0; i < columns && found.records > 1; ++i) {
    if (!varying[i]) found.constant_columns.push_back(i);
  }

  // Equal records lie side by side once they are sorted by their bytes, the earliest first.
  std::vector<std::size_t> order(found.records);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto compare_inputs = [&](std::size_t a, std::size_t b) {
    if (values_of(a) != values_of(b)) return values_of(a) < values_of(b) ? -1 : 1;
    return std::memcmp(records.input(a), records.input(b), values_of(a) * sizeof(Value));
  };
  const auto compare_targets = [&](std::size_t a, std::size_t b) {
    return std::memcmp(records.targets(a).data(), records.targets(b).data(), records.targets(a).size_bytes());
  };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int inputs = compare_inputs(a, b);
    const int targets = inputs != 0 ? 0 : compare_targets(a, b);
    return inputs != 0 ? inputs < 0 : targets != 0 ? targets < 0 : a < b;
  });
  for (std::size_t i = 1; i < found.records; ++i) {
    if (compare_inputs(order[i - 1], order[i]) != 0) continue;
    ++(compare_targets(order[i - 1], order[i]) == 0 ? found.duplicates : found.same_inputs_other_targets);
  }
  return found;
}

}  // namespace pergrad::inline v0_1::unprotected
