// SPDX-License-Identifier: Apache-2.0
// pergrad/train/predict.hpp - a network's outputs for records that have no targets
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/tape.hpp>
#include <pergrad/train/public_records.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Asks nothing of the outputs.
struct no_loss {
  template <class Scalar>
  using target = std::uint8_t;
  [[nodiscard]] static constexpr std::size_t target_count(shape /*output*/) noexcept { return 1; }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept { return output.size() > 0; }
  [[nodiscard]] static constexpr bool valid(shape /*output*/, std::span<const std::uint8_t> /*targets*/) noexcept {
    return true;
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> /*y*/, std::span<const std::uint8_t> /*targets*/,
                                       std::span<Scalar> dy) noexcept {
    std::ranges::fill(dy, Scalar{0});
    return 0;
  }
};

}  // namespace detail

namespace unprotected {

/// The same for records of any kind: outputs for training records are private values.
template <executor Executor, class Network>
requires(!pergrad::detail::is_explained<Network>)
    [[nodiscard]] std::vector<typename Network::scalar> predict(const Executor& executor, const Network& network,
                                                                std::span<const typename Network::input_value> inputs,
                                                                std::span<const std::uint32_t> lengths = {}) {
  using value = typename Network::input_value;
  constexpr std::size_t outputs_per_record = Network::output_shape.size();
  constexpr std::size_t chunk = 1024;
  const std::vector<std::uint8_t> no_targets(inputs.size() / Network::input_shape.size());
  const dataset<value, std::uint8_t> records{inputs, no_targets, Network::input_shape, 1, lengths};
  tape<Network> tape{executor, max_batch{std::min(chunk, std::max<std::size_t>(1, records.size()))}};
  std::vector<typename Network::scalar> found(records.size() * outputs_per_record);
  std::vector<std::uint32_t> ids;
  for (std::size_t first = 0; first < records.size(); first += chunk) {
    ids.clear();
    for (std::size_t i = first; i < std::min(first + chunk, records.size()); ++i) {
      ids.push_back(static_cast<std::uint32_t>(i));
    }
    const batch<Network, pergrad::detail::no_loss> samples{records, ids};
    const auto gradients = per_sample_gradients(network, pergrad::detail::no_loss{}, samples, tape);
    const auto here = std::span{found}.subspan(first * outputs_per_record, ids.size() * outputs_per_record);
    unprotected::evaluate_into(executor, here, outputs(gradients));
  }
  return found;
}

}  // namespace unprotected

/// Outputs `[records][output shape]` of a network in evaluation, for any number of records that are public and lie one
/// after the other in an array of inputs; `lengths`: one a record where they vary. Allocates. Throws
/// std::invalid_argument or std::out_of_range as `dataset` does.
template <executor Executor, class Network, class Inputs>
requires(!detail::is_explained<Network>)
    [[nodiscard]] std::vector<typename Network::scalar> predict(const Executor& executor, const Network& network,
                                                                const public_records<Inputs>& inputs,
                                                                std::span<const std::uint32_t> lengths = {}) {
  return unprotected::predict(executor, network, inputs.view(), lengths);
}
/// Of inputs that nobody says are public, and of a network that is explained to be wrong.
template <executor Executor, class Network, class Inputs>
[[nodiscard]] std::vector<float> predict(const Executor& /*executor*/, const Network& /*network*/,
                                         const Inputs& /*inputs*/, std::span<const std::uint32_t> /*lengths*/ = {}) {
  if constexpr (!detail::is_explained<Network>) static_cast<void>(error::records_may_be_private<Inputs>{});
  return {};
}

}  // namespace pergrad::inline v0_1
