// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/samples.hpp - made-up samples for any network and loss, a pure function of the seed, and ways
// to spoil one
//
// Public pseudo-randomness (splitmix64): the same samples on every machine, so that what a seed found can be found
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/initialise.hpp>

namespace pergrad::inline v0_1::testing {

/// Inputs and targets that own their numbers, whatever network they are for.
template <class Value, class Target>
struct sample_values {
  std::vector<Value> inputs;
  std::vector<Target> targets;
  std::vector<std::uint32_t> lengths;   ///< of samples that have lengths of their own, else none
  std::size_t values_of_a_sample = 1;   ///< in `inputs`
  std::size_t targets_of_a_sample = 1;  ///< in `targets`

  [[nodiscard]] std::size_t size() const noexcept { return inputs.size() / values_of_a_sample; }
  [[nodiscard]] std::span<Value> input(std::size_t sample) noexcept {
    return std::span<Value>{inputs}.subspan(sample * values_of_a_sample, values_of_a_sample);
  }
  /// The samples that `order` lists, in that order.
  [[nodiscard]] sample_values pick(std::span<const std::size_t> order) const {
    sample_values result{{}, {}, {}, values_of_a_sample, targets_of_a_sample};
    for (const std::size_t sample : order) {
      const auto* const input_first = inputs.data() + sample * values_of_a_sample;
      const auto* const target_first = targets.data() + sample * targets_of_a_sample;
      result.inputs.insert(result.inputs.end(), input_first, input_first + values_of_a_sample);
      result.targets.insert(result.targets.end(), target_first, target_first + targets_of_a_sample);
      if (!lengths.empty()) result.lengths.push_back(lengths[sample]);
    }
    return result;
  }
};

/// The same for one network and loss.
template <class Network, class Loss>
struct sample_set : sample_values<typename Network::input_value, target_of<Loss, typename Network::scalar>> {
  using scalar = typename Network::scalar;
  using target = target_of<Loss, scalar>;
  using input_value = typename Network::input_value;
  using values = sample_values<input_value, target>;
  static constexpr std::size_t input_size = Network::input_shape.size();
  static constexpr std::size_t target_count = Loss::target_count(Network::output_shape);

  sample_set() : sample_set{{}, {}, {}} {}
  sample_set(std::vector<input_value> x, std::vector<target> y, std::vector<std::uint32_t> lengths_of_x)
      : values{std::move(x), std::move(y), std::move(lengths_of_x), input_size, target_count} {}
  /// Precondition: they are for this network and loss.
  explicit sample_set(values given) : values{std::move(given)} {}

  /// A batch of all samples. This object must outlive it.
  [[nodiscard]] batch<Network, Loss> view() const { return view(*this); }
  [[nodiscard]] static batch<Network, Loss> view(const values& of) {
    return {std::span<const input_value>{of.inputs}, std::span<const target>{of.targets},
            std::span<const std::uint32_t>{of.lengths}};
  }
  /// The samples that `order` lists, in that order.
  [[nodiscard]] sample_set pick(std::span<const std::size_t> order) const {
    return sample_set{this->values::pick(order)};
  }
};

/// `count` samples: inputs uniform in [-1, 1]; integer targets in [0, outputs), of a loss over positions in [0,
/// classes); real ones in [0, 1).
/// Throws std::invalid_argument if the loss refuses such targets: then make the samples yourself.
template <class Network, class Loss>
[[nodiscard]] sample_set<Network, Loss> draw_samples(std::uint64_t seed, std::size_t count) {
  using set = sample_set<Network, Loss>;
  using target = typename set::target;
  set result;
  result.inputs.resize(count * set::input_size);
  for (std::size_t i = 0; i < result.inputs.size(); ++i) {
    const double uniform = pergrad::detail::public_uniform(seed, i);
    if constexpr (Network::input_shape.ids != 0) {
      result.inputs[i] = static_cast<std::int32_t>(uniform * static_cast<double>(Network::input_shape.ids));
    } else {
      result.inputs[i] = static_cast<typename set::scalar>(2 * uniform - 1);
    }
  }
  for (std::size_t sample = 0; Network::input_shape.varying_axis() != 0 && sample < count; ++sample) {
    const double uniform = pergrad::detail::public_uniform(seed + 101, sample);
    result.lengths.push_back(static_cast<std::uint32_t>(uniform * static_cast<double>(Network::input_shape.e0)) + 1);
  }
  constexpr std::size_t classes = [] {
    if constexpr (requires { Loss::ignores(target{}); }) {
      return static_cast<std::size_t>(Loss::target_limits(Network::output_shape)[1]) + 1;
    } else {
      return Network::output_shape.size();
    }
  }();
  result.targets.resize(count * set::target_count);
  for (std::size_t i = 0; i < result.targets.size(); ++i) {
    const double uniform = pergrad::detail::public_uniform(~seed, i);
    if constexpr (std::is_integral_v<target>) {
      result.targets[i] = static_cast<target>(uniform * static_cast<double>(classes));
    } else {
      result.targets[i] = static_cast<target>(uniform);
    }
  }
  for (std::size_t sample = 0; sample < count; ++sample) {
    const auto targets = std::span<const target>{result.targets}.subspan(sample * set::target_count, set::target_count);
    if (!Loss::valid(Network::output_shape, targets)) {
      throw std::invalid_argument(
          "pergrad: testing: this loss takes neither class numbers nor values in [0, 1) as targets");
    }
  }
  return result;
}

namespace testing_detail {

/// Ways to spoil one sample. Of ids: mirrored ones, one id everywhere, another one everywhere, one other id.
enum class spoil { other, huge, nan, infinity, one_nan, last_infinity };
inline constexpr const char* spoil_names[] = {"other values", "huge values", "NaN",
                                              "infinity",     "one NaN",     "one infinity"};
inline constexpr spoil all_spoils[] = {spoil::other,    spoil::huge,    spoil::nan,
                                       spoil::infinity, spoil::one_nan, spoil::last_infinity};

/// The same samples, one of them spoiled. There is no huge or broken id; what can be spoiled is which ids a sample has.
/// `vocabulary` counts the ids, if there are any.
template <class Value, class Target>
[[nodiscard]] sample_values<Value, Target> with_a_spoiled_sample(sample_values<Value, Target> result,
                                                                 std::size_t vocabulary, std::size_t sample,
                                                                 spoil how) {
  if constexpr (std::is_integral_v<Value>) {
    const auto last = static_cast<std::int32_t>(vocabulary - 1);
    const std::span<std::int32_t> ids = result.input(sample);
    for (std::int32_t& id : ids) {
      if (how == spoil::other) id = last - id;
      if (how == spoil::huge || how == spoil::infinity) id = last;
      if (how == spoil::nan) id = 0;
    }
    if (how == spoil::one_nan) ids.front() = last - ids.front();
    if (how == spoil::last_infinity) ids.back() = last - ids.back();
  } else {
    using scalar = Value;
    const std::span<scalar> input = result.input(sample);
    constexpr scalar nan = std::numeric_limits<scalar>::quiet_NaN();
    constexpr scalar infinity = std::numeric_limits<scalar>::infinity();
    for (scalar& value : input) {
      if (how == spoil::other) value = static_cast<scalar>(0.25) - 3 * value;
      if (how == spoil::huge) value *= std::numeric_limits<scalar>::max() / 2;
      if (how == spoil::nan) value = nan;
      if (how == spoil::infinity) value = value < 0 ? -infinity : infinity;
    }
    if (how == spoil::one_nan) input.front() = nan;
    if (how == spoil::last_infinity) input.back() = infinity;
  }
  return result;
}

}  // namespace testing_detail
}  // namespace pergrad::inline v0_1::testing
