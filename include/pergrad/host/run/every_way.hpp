// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/every_way.hpp - all ways to norms and sums, for expressions that do not leave the choice to the plan
#pragma once

#include <cstddef>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/leaf_sums.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/other_ways.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/run/passes.hpp>
#include <pergrad/host/run/worker.hpp>

namespace pergrad::inline v0_1::on_host {

/// naive and multi send one sample after the other through the whole network; only what is kept differs.
template <class Network>
void collect_one_by_one(worker<Network>& state, passes<Network>& pass, std::size_t first, index samples) {
  state.clear_parts(samples);
  for (index b = 0; b < samples; ++b) {
    pass.forward(b, b + 1);
    state.evaluate_loss(pass, first, b, b + 1);
    pass.backward(b, b + 1, [](std::size_t, index, index) {});
    for (std::size_t node = program<Network>::size; node-- > 0;) state.collect(pass, first, node, b, b + 1);
  }
}

/// Ghost clipping's second pass. It is the first one again, bit by bit; the weights meet the factors, not the losses
/// as in the papers: a loss times w makes a backward pass that rounds in its own way, and the clip bound would only
/// hold about.
template <class Network>
void second_pass_sum(worker<Network>& state, passes<Network>& pass,
                     const sum_request<typename Network::scalar>& request_sum, std::size_t first, index begin,
                     index end, typename Network::scalar* sum) {
  constexpr const auto& table = program<Network>::table;
  typename leaf_sums<Network>::weight_table weights{};
  for (index b = begin; b < end; ++b) state.weigh(pass, request_sum, first, b, &weights[static_cast<std::size_t>(b)]);
  pass.forward(begin, end);
  state.evaluate_loss(pass, first, begin, end);
  pass.backward(begin, end, [&](std::size_t node, index, index) {
    for (index b = begin; b < end; ++b) {
      if (table.nodes[node].parameter_count == 0 || weights[static_cast<std::size_t>(b)] != 0) continue;
      if (!state.finite(pass, first, b)) pass.erase(node, b);
    }
    state.leaves.add_weighted_sum(request_sum, node, begin, end, weights, sum);
  });
}

/// For an expression that may take any of them.
template <class Network>
inline constexpr other_ways<Network> every_way{
    .gram = [](const leaf_kernel<typename Network::scalar>& kernel, index sample) { return kernel.gram(sample); },
    .direct = [](const leaf_kernel<typename Network::scalar>& kernel, index sample) { return kernel.direct(sample); },
    .one_by_one = &collect_one_by_one<Network>,
    .second_pass = &second_pass_sum<Network>};

}  // namespace pergrad::inline v0_1::on_host
