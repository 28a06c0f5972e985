// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/observer.hpp - everything that can be seen of a batch's per-sample gradients, in one value to compare
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <pergrad/expressions/clip.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/network.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/privacy/layer_randomness.hpp>
#include <pergrad/testing/samples.hpp>

namespace pergrad::inline v0_1::testing {

/// One way to compute the same thing.
struct configuration {
  norm_method method = norm_method::automatic;
  pergrad::strategy strategy = pergrad::strategy::book_keeping;
  const char* name = "automatic";
};

/// Every norm method, then every strategy. The first one is the default. `product` counts where a block has one
/// position.
inline constexpr configuration configurations[] = {{},
                                                   {norm_method::product, strategy::book_keeping, "product"},
                                                   {norm_method::gram, strategy::book_keeping, "gram"},
                                                   {norm_method::direct, strategy::book_keeping, "direct"},
                                                   {norm_method::instantiate, strategy::book_keeping, "instantiate"},
                                                   {norm_method::automatic, strategy::naive, "naive"},
                                                   {norm_method::automatic, strategy::multi, "multi"},
                                                   {norm_method::automatic, strategy::crb, "crb"},
                                                   {norm_method::automatic, strategy::ghost, "ghost"}};

/// How an examination makes executors of one kind: the usual one, others that must give the same bits, and how many of
/// the configurations differ there. Specialise it for an executor of your own or of a device.
template <class Executor>
struct executors_to_compare {
  static constexpr threads usual{1};
  static constexpr threads others[] = {threads{2}, threads{3}, threads{5}};
  static constexpr std::size_t configuration_count = std::size(configurations);
  [[nodiscard]] static std::string name(threads which) { return std::to_string(which.count) + " threads"; }
};

/// What one batch gave, all in PyTorch's order.
template <class Scalar>
struct observation {
  std::vector<Scalar> outputs;        ///< [samples][outputs]
  std::vector<double> losses;         ///< [samples]
  std::vector<double> squared_norms;  ///< [samples]
  std::vector<Scalar> rows;           ///< [samples][parameters]
  std::vector<Scalar> plain;          ///< [parameters]
  std::vector<Scalar> clipped;        ///< [parameters]
  std::vector<double> factors;        ///< [samples], what the clipped sum multiplied gradients with
};

namespace testing_detail {

/// One sample's part of values of which each sample has `size`.
template <class Value>
[[nodiscard]] std::span<const Value> row(const std::vector<Value>& values, std::size_t sample, std::size_t size) {
  return std::span<const Value>{values}.subspan(sample * size, size);
}
template <class Scalar>
[[nodiscard]] long double norm(std::span<const Scalar> values) {
  long double squared = 0;
  for (const Scalar value : values) squared += static_cast<long double>(value) * static_cast<long double>(value);
  return std::sqrt(squared);
}
template <class Scalar>
[[nodiscard]] double largest(std::span<const Scalar> values) {
  double most = 0;
  for (const Scalar value : values) most = std::max(most, std::fabs(static_cast<double>(value)));
  return most;
}

/// Clip factors as clip() finds them, but 0 for one sample: what a clipped sum must equal if that sample is not finite.
template <class Leaf>
struct clip_factors : pergrad::detail::per_sample_scalar_tag {
  static constexpr auto nobody = static_cast<std::size_t>(-1);
  Leaf leaf;
  double bound;
  std::size_t left_out;
  static constexpr pergrad::detail::scalar_needs needs{true, true};
  clip_factors(Leaf of, double clip_bound, std::size_t sample = nobody)
      : leaf{of}, bound{clip_bound}, left_out{sample} {}

  template <class Scalar>
  [[nodiscard]] double at(const detail::sample_facts<Scalar>& facts) const noexcept {
    if (facts.sample == left_out) return 0;
    const norm_bound& known = facts.norm;
    return static_cast<double>(clip_factor<Scalar>(known, Leaf::network_type::parameter_count, bound));
  }
};

}  // namespace testing_detail

/// Evaluates batches of one network on one executor. Its tape is used again and again, so that nothing may be left on
/// it.
template <class Network, class Loss, class Executor = host>
class observer {
 public:
  using scalar = typename Network::scalar;
  using samples = sample_values<typename Network::input_value, target_of<Loss, scalar>>;
  static constexpr std::size_t width = Network::parameter_count;

  /// `handle`: what the executor is made of, such as a number of threads.
  template <class Handle>
  observer(const Handle& handle, std::size_t most_samples)
      : executor_{handle}, tape_{executor_, max_batch{most_samples}} {}

  /// From here on what layers do in training, with these random bits; of a default value what they do in evaluation.
  void draw(layer_randomness randomness) noexcept { randomness_ = randomness; }

  [[nodiscard]] std::vector<double> losses(const Network& network, const samples& data) {
    const auto batch = sample_set<Network, Loss>::view(data);
    const auto gradients = per_sample_gradients(network, Loss{}, batch, tape_).with(randomness_);
    return unprotected::evaluate(executor_, pergrad::losses(gradients));
  }
  [[nodiscard]] observation<scalar> look(const Network& network, const samples& data, double bound,
                                         const configuration& how = {}) {
    observation<scalar> seen;
    seen.outputs.resize(data.size() * Network::output_shape.size());
    seen.losses.resize(data.size());
    seen.squared_norms.resize(data.size());
    const auto batch = sample_set<Network, Loss>::view(data);
    const auto gradients = leaf(network, batch, how);
    unprotected::evaluate_into(executor_, assign(seen.outputs, pergrad::outputs(gradients)),
                               assign(seen.losses, pergrad::losses(gradients)),
                               assign(seen.squared_norms, squared_l2_norms(gradients)));
    seen.rows = unprotected::evaluate(executor_, materialise(gradients));
    seen.plain = unprotected::evaluate(executor_, sum(gradients));
    seen.clipped.resize(width);
    seen.factors.resize(data.size());
    unprotected::evaluate_into(executor_, assign(seen.clipped, sum(clip(gradients, l2_clip_norm{bound}))),
                               assign(seen.factors, testing_detail::clip_factors{gradients, bound}));
    return seen;
  }
  [[nodiscard]] std::vector<scalar> clipped_sum(const Network& network, const samples& data, double bound,
                                                const configuration& how) {
    const auto batch = sample_set<Network, Loss>::view(data);
    return unprotected::evaluate(executor_, sum(clip(leaf(network, batch, how), l2_clip_norm{bound})));
  }
  /// The same sum with one sample's factor set to 0 by hand.
  [[nodiscard]] std::vector<scalar> clipped_sum_without(const Network& network, const samples& data, double bound,
                                                        const configuration& how, std::size_t left_out) {
    const auto batch = sample_set<Network, Loss>::view(data);
    const auto gradients = leaf(network, batch, how);
    const testing_detail::clip_factors factors{gradients, bound, left_out};
    return unprotected::evaluate(executor_, weighted_sum(gradients, factors));
  }
  [[nodiscard]] std::vector<scalar> clipped_rows(const Network& network, const samples& data, double bound,
                                                 const configuration& how) {
    const auto batch = sample_set<Network, Loss>::view(data);
    return unprotected::evaluate(executor_, materialise(clip(leaf(network, batch, how), l2_clip_norm{bound})));
  }
  [[nodiscard]] std::vector<scalar> weighted(const Network& network, const samples& data,
                                             const std::vector<scalar>& weights, const configuration& how) {
    const auto batch = sample_set<Network, Loss>::view(data);
    const auto gradients = leaf(network, batch, how);
    return unprotected::evaluate(executor_, weighted_sum(gradients, std::span<const scalar>{weights}));
  }
  /// Adds the clipped sum to what `onto` holds.
  void add_clipped_sum(const Network& network, const samples& data, double bound, const configuration& how,
                       std::vector<scalar>& onto) {
    const auto batch = sample_set<Network, Loss>::view(data);
    const auto gradients = leaf(network, batch, how);
    unprotected::evaluate_into(executor_, accumulate(onto, sum(clip(gradients, l2_clip_norm{bound}))));
  }

 private:
  template <class Batch>
  [[nodiscard]] auto leaf(const Network& network, const Batch& batch, const configuration& how) {
    return per_sample_gradients(network, Loss{}, batch, tape_)
        .with(randomness_)
        .with(how.method, ~std::uint64_t{0})
        .with(how.strategy);
  }

  Executor executor_;
  typename Network::tape tape_;
  layer_randomness randomness_{};
};

}  // namespace pergrad::inline v0_1::testing
