// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/rows.hpp - samples' gradients, written out in PyTorch's order
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/norms/sparse.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/passes.hpp>
#include <pergrad/host/run/worker.hpp>

namespace pergrad::inline v0_1::on_host {

/// Writes a sample's kept gradient, and its segments of tables, times `weight_of(node)` if `weighted`. A weight of 0 is
/// chosen, not multiplied.
template <class Network, class SegmentsOf, class WeightOf>
void write_row(const typename Network::scalar* kept, const SegmentsOf& segments_of, bool weighted,
               const WeightOf& weight_of, typename Network::scalar* row) {
  using scalar = typename Network::scalar;
  constexpr const auto& table = program<Network>::table;
  for (std::size_t k = 0; k != table.outer_count; ++k) {
    const outer_leaf& leaf = table.outer[k];
    if (!leaf.use.first) continue;
    const auto weight = weight_of(leaf.node);
    for_each_parameter(leaf, 0, leaf.groups * leaf.view_width(),
                       [&](index p, index n) { row[p] = weighted && weight == 0 ? scalar{0} : weight * kept[n]; });
  }
  for (std::size_t k = 0; k != table.elementwise_count; ++k) {
    const elementwise_leaf& leaf = table.elementwise[k];
    if (!leaf.use.first) continue;
    const auto weight = weight_of(leaf.node);
    for (index i = 0; i < leaf.count; ++i) {
      row[leaf.parameters + i] = weighted && weight == 0 ? scalar{0} : weight * kept[leaf.native + i];
    }
  }
  for (std::size_t k = 0; k != table.sparse_count; ++k) {
    const sparse_leaf& leaf = table.sparse[k];
    if (leaf.use.first) write_segments(leaf, segments_of(k), weight_of(leaf.node), row + leaf.parameters);
  }
}

/// The rows of samples begin .. end - 1 of a tile, as `run_request::write_rows` is called.
template <class Network>
void write_rows(void* of_worker, void* of_passes, std::size_t first, index begin, index end) {
  using scalar = typename Network::scalar;
  constexpr const auto& table = program<Network>::table;
  auto& state = *static_cast<worker<Network>*>(of_worker);
  auto& pass = *static_cast<passes<Network>*>(of_passes);
  const run_request<scalar>& request = state.request;
  for (index b = begin; b < end; ++b) {
    scalar* row = request.rows + static_cast<index>(first - request.first + static_cast<std::size_t>(b)) *
                                     static_cast<index>(Network::parameter_count);
    std::array<scalar, std::max<std::size_t>(1, table.layer_groups)> weights{};
    const bool weighted = request.row_weights != nullptr;
    if (weighted) state.weigh(pass, *request.row_weights, first, b, weights.data());
    const auto weight_of = [&](std::size_t node) {
      return weighted ? weights[request.row_weights->per_layer ? table.layer_group[node] : 0] : scalar{1};
    };
    write_row<Network>(
        state.kept.of_sample(b), [&](std::size_t leaf) { return state.sparse.of(first, leaf, b); }, weighted, weight_of,
        row);
  }
}

}  // namespace pergrad::inline v0_1::on_host
