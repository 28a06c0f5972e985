// SPDX-License-Identifier: Apache-2.0
// pergrad/evaluation/predict.hpp - records that the caller says are public, and a network's outputs for them
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/tape.hpp>

namespace pergrad::inline v0_1 {

/// Records that anybody may know, such as a test set: what is computed from them is no private value. That they are is
/// a promise of whoever writes this; training records are not. Holds a view: a `dataset`, or the inputs of records in
/// one contiguous array, which must live as long as this is used: a temporary one to the end of its expression.
template <class View>
class public_records {
 public:
  template <class Records>
  explicit constexpr public_records(const Records& records) : view_{records} {}
  [[nodiscard]] constexpr const View& view() const noexcept { return view_; }

 private:
  View view_;
};
template <class Value, class Target>
public_records(const dataset<Value, Target>&) -> public_records<dataset<Value, Target>>;
template <detail::array Inputs>
public_records(const Inputs& inputs)
    -> public_records<std::span<std::remove_reference_t<decltype(*std::data(inputs))>>>;

namespace detail {

template <class Records>
inline constexpr bool said_to_be_public = false;
template <class Records>
inline constexpr bool said_to_be_public<public_records<Records>> = true;

/// What can be looked at as a network's inputs, one after the other.
template <class View, class Network>
concept inputs_of = std::is_convertible_v<const View&, std::span<const typename Network::input_value>>;

/// A data set of a network's inputs with a class each.
template <class Records, class Network>
concept records_of_classes = std::is_same_v<Records, dataset<typename Network::input_value, std::int32_t>>;

/// Asks nothing of the outputs.
struct no_loss {
  static constexpr bool on_device = true;
  static constexpr bool asks_nothing = true;
  template <class Scalar>
  using target = std::uint8_t;
  [[nodiscard]] static constexpr std::size_t target_count(shape /*output*/) noexcept { return 1; }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept { return output.size() > 0; }
  [[nodiscard]] static constexpr bool valid(shape /*output*/, std::span<const std::uint8_t> /*targets*/) noexcept {
    return true;
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::uint8_t> targets,
                                       std::span<Scalar> dy) noexcept {
    return evaluate(y.data(), y.size(), targets.data(), dy.data());
  }
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate(const Scalar* /*y*/, std::size_t count,
                                                  const std::uint8_t* /*targets*/, Scalar* dy) noexcept {
    for (std::size_t i = 0; i < count; ++i) dy[i] = 0;
    return 0;
  }
};

/// The class of a record, that of the largest of its logits; as many as there are if one of them is no number.
template <class Scalar>
[[nodiscard]] std::size_t told_class(std::span<const Scalar> logits) noexcept {
  std::size_t largest = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return logits.size();
    if (logits[i] > logits[largest]) largest = i;
  }
  return largest;
}

/// f(gradients of some records, number of the first, how many), until all records had their turn.
template <class Loss, class Executor, class Network, class Records, class Function>
[[gnu::cold]] void in_chunks(const Executor& executor, const Network& network, const Records& records,
                             const Function& f) {
  network_access::require_parameters(network);
  tape<Network> tape{executor, forward_only{std::clamp<std::size_t>(records.size(), 1, 1024)}};
  if constexpr (requires { executor.hold_parameters(network, tape); }) executor.hold_parameters(network, tape);
  const std::size_t chunk = tape.capacity();
  std::vector<std::uint32_t> ids;
  for (std::size_t first = 0; first < records.size(); first += chunk) {
    ids.clear();
    for (std::size_t i = first; i < std::min(first + chunk, records.size()); ++i) {
      ids.push_back(static_cast<std::uint32_t>(i));
    }
    const batch<Network, Loss> samples{records, ids};
    f(per_sample_gradients(network, Loss{}, samples, tape), first, ids.size());
  }
}

}  // namespace detail

namespace unprotected {

/// The same for records of any kind: outputs for training records are private values.
template <executor Executor, class Network>
requires(!pergrad::detail::is_explained<Network>)
    [[nodiscard]] std::vector<typename Network::scalar> predict(const Executor& executor, const Network& network,
                                                                std::span<const typename Network::input_value> inputs,
                                                                std::span<const std::uint32_t> lengths = {}) {
  using value = typename Network::input_value;
  constexpr std::size_t width = Network::output_shape.size();
  const std::vector<std::uint8_t> no_targets(inputs.size() / Network::input_shape.size());
  const dataset<value, std::uint8_t> records{inputs, no_targets, Network::input_shape, 1, lengths};
  std::vector<typename Network::scalar> found(records.size() * width);
  pergrad::detail::in_chunks<pergrad::detail::no_loss>(
      executor, network, records, [&](const auto& gradients, std::size_t first, std::size_t count) {
        const auto here = std::span{found}.subspan(first * width, count * width);
        unprotected::evaluate_into(executor, here, outputs(gradients));
      });
  return found;
}

}  // namespace unprotected

/// Outputs `[records][output shape]` of a network in evaluation, for any number of records that are public and lie one
/// after the other in an array of inputs; `lengths`: one a record where they vary. Allocates. Throws
/// std::invalid_argument or std::out_of_range as `dataset` does, std::logic_error for a network that was moved from.
template <executor Executor, class Network, class Inputs>
requires(!detail::is_explained<Network> && detail::inputs_of<Inputs, Network>)
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
/// Of other records than the network's inputs in an array, and without an executor: one error that says so.
template <executor Executor, class Network, class Inputs>
requires(!detail::is_explained<Network> && !detail::inputs_of<Inputs, Network>)
    [[nodiscard]] std::vector<float> predict(const Executor& /*executor*/, const Network& /*network*/,
                                             const public_records<Inputs>& /*inputs*/,
                                             std::span<const std::uint32_t> /*lengths*/ = {}) {
  static_cast<void>(error::records_of_another_type<std::span<const typename Network::input_value>, Inputs>{});
  return {};
}
template <class First, class... Rest>
requires(!executor<First>) [[nodiscard]] std::vector<float> predict(const First& /*first*/, const Rest&... /*rest*/) {
  static_cast<void>(error::needs_an_executor<error::function::predict, First>{});
  return {};
}

/// Outputs of one public record at a time, as soon as can be: working memory for one record is reserved once, and a
/// prediction allocates nothing. Refers to the executor and the network, whose parameters may change between
/// predictions. One prediction at a time. For the least delay make the executor with `threads{1}`: waking another
/// thread takes longer than most networks.
template <class Network, executor Executor = host>
class predictor {
 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;

  /// Throws what a tape throws.
  predictor(const Executor& executor, const Network& network)
      : executor_{&executor},
        network_{&network},
        tape_{executor, detail::forward_only{1}},
        outputs_(Network::output_shape.size()) {}
  // clang-format off
  predictor(const Executor&&, const Network&) = delete;  // it refers to the executor: const pergrad::host exec;
  predictor(const Executor&, const Network&&) = delete;  // it refers to the network: give it a name
  // clang-format on
  predictor(const predictor&) = delete;
  predictor& operator=(const predictor&) = delete;
  ~predictor() = default;

  /// The outputs for one record's inputs, `{output shape}`; overwritten by the next prediction. Throws
  /// std::invalid_argument or std::out_of_range for inputs that the network does not take, std::logic_error for a
  /// network that was moved from.
  template <detail::inputs_of<Network> Inputs>
  [[nodiscard]] std::span<const scalar> operator()(const public_records<Inputs>& input) {
    return predict(input.view(), {});
  }
  /// The same for a record with a length of its own.
  template <detail::inputs_of<Network> Inputs>
  [[nodiscard]] std::span<const scalar> operator()(const public_records<Inputs>& input, std::uint32_t length) {
    return predict(input.view(), {&length, 1});
  }
  /// Of another record than the network's inputs in an array.
  template <class Inputs, class... Length>
  requires(!detail::inputs_of<Inputs, Network>) [[nodiscard]] std::span<const scalar> operator()(
      const public_records<Inputs>& /*input*/, const Length&... /*length*/) {
    static_cast<void>(error::records_of_another_type<std::span<const input_value>, Inputs>{});
    return {};
  }
  /// Of inputs that nobody says are public.
  template <class Inputs, class... Length>
  requires(!detail::said_to_be_public<Inputs>) [[nodiscard]] std::span<const scalar> operator()(
      const Inputs& /*input*/, const Length&... /*length*/) {
    static_cast<void>(error::records_may_be_private<Inputs>{});
    return {};
  }

 private:
  [[nodiscard]] std::span<const scalar> predict(std::span<const input_value> input,
                                                std::span<const std::uint32_t> lengths) {
    if (input.size() != Network::input_shape.size()) {
      detail::throw_invalid_argument(
          {"pergrad: predictor: one record has ", Network::input_shape.size(), " input values, got ", input.size()});
    }
    detail::network_access::require_parameters(*network_);
    static constexpr std::uint8_t nothing_asked[1]{};
    const batch<Network, detail::no_loss> sample{input, nothing_asked, lengths};
    unprotected::evaluate_into(*executor_, std::span{outputs_},
                               outputs(per_sample_gradients(*network_, detail::no_loss{}, sample, tape_)));
    return outputs_;
  }

  const Executor* executor_;
  const Network* network_;
  tape<Network> tape_;
  std::vector<scalar> outputs_;
};
template <executor Executor, class Network>
predictor(const Executor&, const Network&) -> predictor<Network, Executor>;

}  // namespace pergrad::inline v0_1
