// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/elementwise_way.hpp - elementwise blocks: each sample's gradient is kept and added with its weight
#pragma once

#include <cstddef>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/elementwise_leaves.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/tile_state.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// See ways.hpp.
template <class Network>
struct elementwise_way {
  using scalar = typename Network::scalar;
  using state = tile_state<Network>;
  static constexpr const auto& table = program<Network>::table;
  static constexpr bool exists = table.elementwise_count > 0;

  static void collect(state& tile, std::size_t node, index begin, index end) {
    const auto [first, last] = leaves_of(table.elementwise, table.elementwise_count, node);
    for (std::size_t k = first; k < last; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      for (index b = begin; b < end; ++b) {
        const double squared = instantiate(leaf, tile.workspace, b, tile.gradient(b, leaf), !leaf.use.last);
        if (!leaf.use.first) continue;
        tile.part(b, node).squared += squared;
        tile.project(b, leaf);
      }
    }
  }

  static void add_unit(state& tile, std::size_t node, index begin, index end, scalar* sums) {
    const auto [first, last] = leaves_of(table.elementwise, table.elementwise_count, node);
    for (std::size_t s = 0; s < tile.request.sum_count; ++s, sums += table.lane_size) {
      for (std::size_t k = first; k < last; ++k) {
        const elementwise_leaf& leaf = table.elementwise[k];
        for (index b = begin; b < end; ++b) {
          instantiate(leaf, tile.workspace, b, tile.room);
          add_to(sums + leaf.native, static_cast<const scalar*>(tile.room), leaf.count);
        }
      }
    }
  }

  static void add_weighted(state& tile, std::size_t sum, const typename state::weights& weights, index begin, index end,
                           scalar* to) {
    for (std::size_t k = 0; k != table.elementwise_count; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      if (leaf.use.first) tile.add_kept(tile.request.sums[sum], leaf, weights.of(leaf.node), begin, end, to);
    }
  }

  static void write_row(state& tile, index b, const typename state::weights& weights, scalar* row) {
    for (std::size_t k = 0; k != table.elementwise_count; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      if (!leaf.use.first) continue;
      const scalar weight = weights.of(leaf.node)[b];
      const scalar* const gradient = tile.gradient(b, leaf);
      for (index i = 0; i < leaf.count; ++i) row[leaf.parameters + i] = weight == 0 ? scalar{0} : weight * gradient[i];
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host
