// SPDX-License-Identifier: Apache-2.0
// examples/common/confusion.hpp - which classes a classifier takes for which, counted on public records
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <pergrad.hpp>

namespace example {

/// counts[true class * classes + class told].
struct confusion_matrix {
  std::vector<std::string> labels;  ///< names of the classes
  std::vector<std::size_t> counts;

  [[nodiscard]] std::size_t classes() const noexcept { return labels.size(); }
  [[nodiscard]] std::size_t count(std::size_t is, std::size_t told) const { return counts.at(is * classes() + told); }
  /// Records of one class.
  [[nodiscard]] std::size_t total(std::size_t is) const {
    std::size_t sum = 0;
    for (std::size_t told = 0; told < classes(); ++told) {
      sum += count(is, told);
    }
    return sum;
  }
  /// The share of the records of class `is` that was told to be of class `told`; 0 if there is no such record.
  [[nodiscard]] double share(std::size_t is, std::size_t told) const {
    return static_cast<double>(count(is, told)) / static_cast<double>(std::max<std::size_t>(1, total(is)));
  }
};

/// Asks the network for the class of every record: that of the largest logit among those that have a label.
template <class Executor, class Network, class Value>
[[nodiscard]] confusion_matrix confuse(const Executor& exec, const Network& net,
                                       const pergrad::dataset<Value, std::int32_t>& records,
                                       std::vector<std::string> labels) {
  constexpr std::size_t chunk = 1024;
  constexpr std::size_t outputs = Network::output_shape.size();
  const std::size_t classes = labels.size();
  confusion_matrix made{std::move(labels), std::vector<std::size_t>(classes * classes)};
  pergrad::tape<Network> tape{exec, pergrad::max_batch{chunk}};
  std::vector<std::uint32_t> ids;
  std::vector<typename Network::scalar> logits;
  for (std::size_t first = 0; first < records.size(); first += ids.size()) {
    ids.resize(std::min(chunk, records.size() - first));
    logits.resize(ids.size() * outputs);
    for (std::size_t place = 0; place < ids.size(); ++place) {
      ids[place] = static_cast<std::uint32_t>(first + place);
    }
    const pergrad::batch<Network, pergrad::cross_entropy> samples{records, ids};
    const auto gradients = pergrad::per_sample_gradients(net, pergrad::cross_entropy{}, samples, tape);
    pergrad::unprotected::evaluate_into(exec, pergrad::assign(logits, pergrad::outputs(gradients)));
    for (std::size_t place = 0; place < ids.size(); ++place) {
      const auto begin = std::next(logits.begin(), static_cast<std::ptrdiff_t>(place * outputs));
      const auto told = std::max_element(begin, std::next(begin, static_cast<std::ptrdiff_t>(classes))) - begin;
      const auto is = static_cast<std::size_t>(records.targets(first + place)[0]);
      ++made.counts[is * classes + static_cast<std::size_t>(told)];
    }
  }
  return made;
}

}  // namespace example
