// SPDX-License-Identifier: Apache-2.0
// pergrad/evaluation/classifier.hpp - accuracy and loss of a classifier on public data
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/evaluation/predict.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/losses/cross_entropy.hpp>

namespace pergrad::inline v0_1 {

/// Result of `evaluate_classifier`.
struct classifier_result {
  double accuracy = 0;   ///< fraction of records whose largest logit is their class; of none that has a NaN
  double mean_loss = 0;  ///< mean cross entropy
};

namespace unprotected {

/// The same for records of any kind: on training records both numbers are private values.
template <executor Executor, class Network>
requires(!pergrad::detail::is_explained<Network>) [[nodiscard]] classifier_result
    evaluate_classifier(const Executor& executor, const Network& network,
                        const dataset<typename Network::input_value, std::int32_t>& records) {
  using scalar = typename Network::scalar;
  const pergrad::detail::float_environment proven;
  constexpr std::size_t classes = Network::output_shape.size();
  std::vector<scalar> logits;
  std::vector<double> chunk_losses;
  std::size_t right = 0;
  double loss = 0;
  pergrad::detail::in_chunks<cross_entropy>(
      executor, network, records, [&](const auto& gradients, std::size_t first, std::size_t count) {
        logits.resize(count * classes);
        chunk_losses.resize(count);
        unprotected::evaluate_into(executor, assign(logits, outputs(gradients)),
                                   assign(chunk_losses, losses(gradients)));
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t told =
              pergrad::detail::told_class(std::span<const scalar>{logits}.subspan(i * classes, classes));
          right += told == static_cast<std::size_t>(records.targets(first + i)[0]) ? 1U : 0U;
          loss += chunk_losses[i];
        }
      });
  const double total = static_cast<double>(std::max<std::size_t>(1, records.size()));
  return {static_cast<double>(right) / total, loss / total};
}

}  // namespace unprotected

/// Accuracy and mean loss of a classifier over a whole data set that is public. Throws std::invalid_argument if the
/// records do not fit the network, std::logic_error for one that was moved from. An empty data set gives zeros.
template <executor Executor, class Network, class Value>
requires(!detail::is_explained<Network> && detail::records_of_classes<dataset<Value, std::int32_t>, Network>)
    [[nodiscard]] classifier_result evaluate_classifier(const Executor& executor, const Network& network,
                                                        const public_records<dataset<Value, std::int32_t>>& records) {
  return unprotected::evaluate_classifier(executor, network, records.view());
}
/// Of records that nobody says are public, and of a network that is explained to be wrong.
template <executor Executor, class Network, class Records>
[[nodiscard]] classifier_result evaluate_classifier(const Executor& /*executor*/, const Network& /*network*/,
                                                    const Records& /*records*/) {
  if constexpr (!detail::is_explained<Network>) static_cast<void>(error::records_may_be_private<Records>{});
  return {};
}
/// Of other inputs than the network's, of other targets than classes, and without an executor.
template <executor Executor, class Network, class Records>
requires(!detail::is_explained<Network> && !detail::records_of_classes<Records, Network>)
    [[nodiscard]] classifier_result evaluate_classifier(const Executor& /*executor*/, const Network& /*network*/,
                                                        const public_records<Records>& /*records*/) {
  static_cast<void>(error::records_of_another_type<dataset<typename Network::input_value, std::int32_t>, Records>{});
  return {};
}
template <class First, class... Rest>
requires(!executor<First>) [[nodiscard]] classifier_result
    evaluate_classifier(const First& /*first*/, const Rest&... /*rest*/) {
  static_cast<void>(error::needs_an_executor<error::function::evaluate_classifier, First>{});
  return {};
}

}  // namespace pergrad::inline v0_1
