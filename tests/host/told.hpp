// SPDX-License-Identifier: Apache-2.0
// tests/host/told.hpp - what a network says of made-up records, for tests that compare networks with their twins
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "comparing.hpp"

namespace told_results {

namespace pg = pergrad;

inline constexpr std::size_t records = 7;

/// Makes another type of a network, which may have another plan: an entry without layers.
template <std::size_t Number>
using twin = pg::sequential<pg::frozen<>, pg::repeat<0, pg::linear<Number>>>;

/// Records that are made up. Those with lengths have one each.
template <class Network, class Loss>
struct made_up {
  using scalar = typename Network::scalar;
  std::vector<typename Network::input_value> inputs =
      std::vector<typename Network::input_value>(records * Network::input_shape.size());
  std::vector<pg::target_of<Loss, scalar>> targets =
      std::vector<pg::target_of<Loss, scalar>>(records * Loss::target_count(Network::output_shape));
  std::vector<std::uint32_t> lengths;

  made_up() {
    std::mt19937 random{5};
    const auto fill = [&](auto& values, std::size_t ids, double least) {
      using value = typename std::decay_t<decltype(values)>::value_type;
      for (auto& each : values) {
        each = std::is_integral_v<value> ? static_cast<value>(random() % ids)
                                         : static_cast<value>(std::uniform_real_distribution<double>{least, 1}(random));
      }
    };
    fill(inputs, Network::input_shape.ids, -1);
    fill(targets, Network::output_shape.rank() > 1 ? Network::output_shape.e1 : Network::output_shape.e0, 0);
    for (std::size_t i = 0; i < records && Network::input_shape.varying_axis() != 0; ++i) {
      lengths.push_back(static_cast<std::uint32_t>(1 + i % Network::input_shape.e0));
    }
  }
};

/// Their gradients alone, one a row.
template <class Network, class Loss>
[[nodiscard]] std::vector<typename Network::scalar> rows_of() {
  const pg::host exec{pg::threads{1}};
  const Network net{exec, pg::layer_default{3}};
  const made_up<Network, Loss> of;
  const pg::batch<Network, Loss> batch{of.inputs, of.targets, of.lengths};
  pg::tape<Network> tape{exec, pg::max_batch{records}};
  return pg::unprotected::evaluate(exec, pg::materialise(pg::per_sample_gradients(net, Loss{}, batch, tape)));
}

/// What networks say of made-up records: losses, norms, and sums, ordinary and clipped; gradients themselves, which
/// nothing is kept of otherwise; and parameters after private steps, whose sums are integers without a capacity.
template <class Network, class Loss>
struct told {
  using scalar = typename Network::scalar;
  std::vector<double> losses = std::vector<double>(records);
  std::vector<double> norms = std::vector<double>(records);
  std::vector<scalar> sum = std::vector<scalar>(Network::parameter_count);
  std::vector<scalar> clipped = std::vector<scalar>(Network::parameter_count);
  std::vector<scalar> formed = std::vector<scalar>(Network::parameter_count);
  std::vector<scalar> ghost = std::vector<scalar>(Network::parameter_count);
  std::vector<scalar> means = std::vector<scalar>(Network::parameter_count, scalar{1});
  std::vector<scalar> rows = std::vector<scalar>(records * Network::parameter_count);
  std::vector<double> dots = std::vector<double>(records);
  std::vector<scalar> trained[2];

  explicit told(std::size_t threads) {
    const pg::host exec{pg::threads{threads}};
    Network net{exec, pg::layer_default{3}};
    const made_up<Network, Loss> of;
    const auto& [inputs, targets, lengths] = of;
    const pg::batch<Network, Loss> batch{inputs, targets, lengths};
    pg::tape<Network> tape{exec, pg::max_batch{records}, pg::max_sums{2}};
    const auto g = pg::per_sample_gradients(net, Loss{}, batch, tape);
    pg::unprotected::evaluate_into(exec, pg::assign(std::span{losses}, pg::losses(g)),
                                   pg::assign(std::span{norms}, pg::l2_norms(g)),
                                   pg::assign(std::span{sum}, pg::sum(g)),
                                   pg::assign(std::span{clipped}, pg::sum(pg::clip(g, pg::l2_clip_norm{0.1}))));
    pg::unprotected::evaluate_into(
        exec, pg::assign(std::span{formed}, pg::sum(pg::with_method<pg::norm_method::instantiate>(g))));
    const pg::batch<Network, Loss> first = batch;
    const auto by_ghost = pg::with_strategy<pg::strategy::ghost>(pg::per_sample_gradients(net, Loss{}, first, tape));
    pg::unprotected::evaluate_into(exec,
                                   pg::assign(std::span{ghost}, pg::sum(pg::clip(by_ghost, pg::l2_clip_norm{0.1}))));
    pg::unprotected::evaluate_into(exec, pg::accumulate(std::span{means}, pg::mean(g)));
    pg::unprotected::evaluate_into(exec, pg::assign(std::span{rows}, pg::materialise(g)),
                                   pg::assign(std::span{dots}, pg::dot(g, std::span<const scalar>{sum})));
    for (const bool floating : {false, true}) {
      pg::dp_sgd_options options;
      options.sampling = pg::poisson_sampling{pg::sampling_probability{0.8}};
      options.clip = pg::l2_clip_norm{0.1};
      options.noise = pg::noise_multiplier{0.5};
      options.divisor = pg::expected_batch_size{6};
      options.learning_rate = pg::learning_rate{0.5};
      options.max_batch = pg::max_batch{3};
      options.capacity = pg::record_capacity{floating ? 2048U : 0U};
      const pg::dataset<typename Network::input_value, pg::target_of<Loss, scalar>> all{
          inputs, targets, Network::input_shape, Loss::target_count(Network::output_shape), lengths};
      Network moved{exec, pg::layer_default{3}};
      pg::dp_sgd trainer{exec, moved, Loss{}, options, pg::seeded_generator{9}};
      for (int step = 0; step < 2; ++step) trainer.step(all);
      trained[floating ? 1 : 0].assign(moved.parameters().begin(), moved.parameters().end());
    }
  }
};

}  // namespace told_results
