// SPDX-License-Identifier: Apache-2.0
// pergrad/evaluation/metrics.hpp - what is said of predictions beside accuracy and loss: confusion matrix, area under
// the ROC curve, R²
//
//   AUC = P(score of a one > score of a zero) + P(both are equal) / 2        (Hanley & McNeil 1982, Radiology 143(1))
//   R²  = 1 - sum (t - y)² / sum (t - mean t)²
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/evaluation/predict.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/losses/cross_entropy.hpp>

namespace pergrad::inline v0_1 {

/// Which classes a classifier takes for which.
class confusion_matrix {
 public:
  /// Throws std::invalid_argument for more classes than a matrix can have.
  explicit confusion_matrix(std::size_t classes) : classes_{classes}, counts_(squared(classes)) {}

  [[nodiscard]] std::size_t classes() const noexcept { return classes_; }
  /// Counts one record. Throws std::out_of_range if there is no such class; so does each function here.
  void add(std::size_t is, std::size_t told) { ++counts_[place(is, told)]; }
  /// Records of class `is` that were told to be of class `told`.
  [[nodiscard]] std::size_t count(std::size_t is, std::size_t told) const { return counts_[place(is, told)]; }
  /// Records of a class.
  [[nodiscard]] std::size_t total(std::size_t is) const {
    std::size_t sum = 0;
    for (std::size_t told = 0; told < classes_; ++told) sum += count(is, told);
    return sum;
  }
  /// Records that were told to be of a class.
  [[nodiscard]] std::size_t total_told(std::size_t told) const {
    std::size_t sum = 0;
    for (std::size_t is = 0; is < classes_; ++is) sum += count(is, told);
    return sum;
  }
  /// The share of the records of class `is` that was told to be of class `told`; 0 if there is no such record.
  [[nodiscard]] double share(std::size_t is, std::size_t told) const { return ratio(count(is, told), total(is)); }
  /// The share of a class's records that was found.
  [[nodiscard]] double recall(std::size_t of) const { return share(of, of); }
  /// The share of what was told to be of a class that is; 0 if nothing was.
  [[nodiscard]] double precision(std::size_t of) const { return ratio(count(of, of), total_told(of)); }
  /// The share of all records that was told right; 0 of none.
  [[nodiscard]] double accuracy() const {
    std::size_t right = 0;
    for (std::size_t i = 0; i < classes_; ++i) right += count(i, i);
    return ratio(right, std::accumulate(counts_.begin(), counts_.end(), std::size_t{0}));
  }

 private:
  [[nodiscard]] static std::size_t squared(std::size_t classes) {
    if (classes != 0 && classes > std::vector<std::size_t>{}.max_size() / classes) {
      detail::throw_invalid_argument({"pergrad: confusion_matrix: ", classes, " classes are too many"});
    }
    return classes * classes;
  }
  [[nodiscard]] std::size_t place(std::size_t is, std::size_t told) const {
    if (is >= classes_ || told >= classes_) {
      detail::throw_out_of_range({"pergrad: confusion_matrix: class ", std::max(is, told), " of ", classes_});
    }
    return is * classes_ + told;
  }
  [[nodiscard]] static double ratio(std::size_t part, std::size_t whole) noexcept {
    return static_cast<double>(part) / static_cast<double>(std::max<std::size_t>(1, whole));
  }

  std::size_t classes_;
  std::vector<std::size_t> counts_;
};

namespace unprotected {

/// The same for records of any kind: on training records all counts are private values.
template <executor Executor, class Network>
requires(!pergrad::detail::is_explained<Network>) [[nodiscard]] confusion_matrix
    confuse(const Executor& executor, const Network& network,
            const dataset<typename Network::input_value, std::int32_t>& records,
            std::size_t classes = Network::output_shape.size()) {
  using scalar = typename Network::scalar;
  const pergrad::detail::float_environment proven;
  constexpr std::size_t outputs_of_one = Network::output_shape.size();
  if (classes == 0 || classes > outputs_of_one) {
    pergrad::detail::throw_invalid_argument(
        {"pergrad: confuse: ", classes, " classes of a network with ", outputs_of_one, " outputs"});
  }
  confusion_matrix found{classes};
  std::vector<scalar> logits;
  pergrad::detail::in_chunks<cross_entropy>(
      executor, network, records, [&](const auto& gradients, std::size_t first, std::size_t count) {
        logits.resize(count * outputs_of_one);
        unprotected::evaluate_into(executor, assign(logits, outputs(gradients)));
        for (std::size_t i = 0; i < count; ++i) {
          const auto is = static_cast<std::size_t>(records.targets(first + i)[0]);
          if (is >= classes) {
            pergrad::detail::throw_out_of_range(
                {"pergrad: confuse: record ", first + i, " has the label ", is, ", of ", classes, " classes"});
          }
          const std::size_t told =
              pergrad::detail::told_class(std::span<const scalar>{logits}.subspan(i * outputs_of_one, classes));
          if (told == classes) {
            pergrad::detail::throw_runtime_error(
                {"pergrad: confuse: the outputs for record ", first + i, " are not all numbers"});
          }
          found.add(is, told);
        }
      });
  return found;
}

}  // namespace unprotected

/// Asks a classifier for the class of every record of a public data set, that of the largest logit among the first
/// `classes`. Throws std::invalid_argument if the records do not fit the network, and for more classes than it has
/// outputs; std::out_of_range for a label from `classes` on; std::runtime_error if one of a record's outputs is no
/// number, as it is told to be of no class; std::logic_error for a network that was moved from.
template <executor Executor, class Network, class Value>
requires(!detail::is_explained<Network> && detail::records_of_classes<dataset<Value, std::int32_t>, Network>)
    [[nodiscard]] confusion_matrix confuse(const Executor& executor, const Network& network,
                                           const public_records<dataset<Value, std::int32_t>>& records,
                                           std::size_t classes = Network::output_shape.size()) {
  return unprotected::confuse(executor, network, records.view(), classes);
}
/// Of records that nobody says are public, and of a network that is explained to be wrong.
template <executor Executor, class Network, class Records>
[[nodiscard]] confusion_matrix confuse(const Executor& /*executor*/, const Network& /*network*/,
                                       const Records& /*records*/, std::size_t /*classes*/ = 0) {
  if constexpr (!detail::is_explained<Network>) static_cast<void>(error::records_may_be_private<Records>{});
  return confusion_matrix{0};
}
/// Of other inputs than the network's, of other targets than classes, and without an executor.
template <executor Executor, class Network, class Records>
requires(!detail::is_explained<Network> && !detail::records_of_classes<Records, Network>) [[nodiscard]] confusion_matrix
    confuse(const Executor& /*executor*/, const Network& /*network*/, const public_records<Records>& /*records*/,
            std::size_t /*classes*/ = 0) {
  static_cast<void>(error::records_of_another_type<dataset<typename Network::input_value, std::int32_t>, Records>{});
  return confusion_matrix{0};
}
template <class First, class... Rest>
requires(!executor<First>) [[nodiscard]] confusion_matrix confuse(const First& /*first*/, const Rest&... /*rest*/) {
  static_cast<void>(error::needs_an_executor<error::function::confuse, First>{});
  return confusion_matrix{0};
}

/// Area under the ROC curve of scores, larger for ones, and labels 0 or 1. NaN if all labels are alike or a score is no
/// number. Throws std::invalid_argument for other labels and for counts that differ.
template <detail::array Scores, detail::array Labels>
[[nodiscard]] double area_under_roc(const Scores& scores, const Labels& labels) {
  const std::size_t count = std::size(scores);
  if (std::size(labels) != count) {
    detail::throw_invalid_argument({"pergrad: area_under_roc: ", count, " scores for ", std::size(labels), " labels"});
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::size_t ones = 0;
  bool are_numbers = true;
  for (std::size_t i = 0; i < count; ++i) {  // all labels, wherever a score is no number
    if (!(labels[i] == 0 || labels[i] == 1)) {
      detail::throw_invalid_argument(
          {"pergrad: area_under_roc: label ", i, " must be 0 or 1, is ", static_cast<double>(labels[i])});
    }
    are_numbers = are_numbers && !std::isnan(static_cast<double>(scores[i]));
    ones += labels[i] == 1 ? 1U : 0U;
  }
  if (!are_numbers || ones == 0 || ones == count) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  double won = 0;  // pairs of a one and a zero
  std::size_t zeros_below = 0;
  for (std::size_t first = 0, end = 0; first < count; first = end) {
    std::size_t equal_ones = 0;
    for (end = first; end < count && !(scores[order[first]] < scores[order[end]]); ++end) {
      equal_ones += labels[order[end]] == 1 ? 1U : 0U;
    }
    const std::size_t equal_zeros = end - first - equal_ones;
    won += static_cast<double>(equal_ones) * (static_cast<double>(zeros_below) + static_cast<double>(equal_zeros) / 2);
    zeros_below += equal_zeros;
  }
  return won / (static_cast<double>(ones) * static_cast<double>(count - ones));
}

/// The share of the targets' variance that predictions explain: 1 if they are right, 0 for the mean, negative below.
/// NaN if all targets are alike. Throws std::invalid_argument for counts that differ.
template <detail::array Predicted, detail::array Targets>
[[nodiscard]] double r_squared(const Predicted& predicted, const Targets& targets) {
  const std::size_t count = std::size(targets);
  if (std::size(predicted) != count) {
    detail::throw_invalid_argument(
        {"pergrad: r_squared: ", std::size(predicted), " predictions for ", count, " targets"});
  }
  // In units of a power of two at the largest target: the square of a number may be no double.
  double largest = 0;
  for (const auto target : targets) largest = std::max(largest, std::fabs(static_cast<double>(target)));
  int unit = 0;
  static_cast<void>(std::frexp(largest, &unit));
  const auto in_units = [unit](double number) { return std::ldexp(number, -unit); };
  double mean = 0;
  for (const auto target : targets) mean += in_units(static_cast<double>(target)) / static_cast<double>(count);
  double missed = 0;
  double spread = 0;
  double rest = 0;
  bool alike = true;
  for (std::size_t i = 0; i < count; ++i) {
    alike = alike && targets[i] == targets[0];  // their mean may be rounded
    const double target = in_units(static_cast<double>(targets[i]));
    missed += std::pow(target - in_units(static_cast<double>(predicted[i])), 2);
    spread += std::pow(target - mean, 2);
    rest += target - mean;
  }
  // The mean is rounded as the targets are, and they may lie closer together than they are to 0: times, for example.
  spread -= rest * rest / static_cast<double>(count);
  return spread > 0 && !alike ? 1 - missed / spread : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace pergrad::inline v0_1
