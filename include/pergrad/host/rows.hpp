// SPDX-License-Identifier: Apache-2.0
// pergrad/host/rows.hpp - one sample's gradient, written out in PyTorch's order
#pragma once

#include <cstddef>

#include <pergrad/detail/layout.hpp>
#include <pergrad/host/leaves.hpp>
#include <pergrad/host/program.hpp>
#include <pergrad/host/sparse.hpp>
#include <pergrad/host/tables.hpp>

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

}  // namespace pergrad::inline v0_1::on_host
