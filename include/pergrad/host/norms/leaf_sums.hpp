// SPDX-License-Identifier: Apache-2.0
// pergrad/host/norms/leaf_sums.hpp - what the leaves of a node add to an accumulator's sum for some samples of a tile
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/elementwise_leaves.hpp>
#include <pergrad/host/norms/kept_rooms.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/other_ways.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/tiles.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// One thread's leaves: its workspace, and a buffer for a leaf's gradient or for its scaled deltas, whichever a leaf
/// needs. Samples are those from `begin` to `end - 1` of the tile, `sum` is an accumulator's. Deferred leaves are left
/// out.
template <class Network>
struct leaf_sums {
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  static constexpr const auto& table = program::table;

  const run_request<scalar>& request;
  const scalar* workspace;
  kept_rooms<Network> kept;
  scalar* room;

  /// Weights of one sum for the samples of a tile, one a layer with parameters.
  using weight_table = std::array<scalar, static_cast<std::size_t>(table.tile)>;

  /// The ordinary gradient: the same leaves with every weight 1, one product a block, nothing kept.
  void add_unit_sums(std::size_t node, index begin, index end, scalar* sums) {
    for (std::size_t s = 0; s < request.sum_count; ++s) {
      add_unit_sum(node, begin, end, sums + static_cast<index>(s) * table.lane_size);
    }
  }
  void add_unit_sum(std::size_t node, index begin, index end, scalar* sum) {
    const auto [outer_first, outer_last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t k = outer_first; k < outer_last; ++k) {
      if (table.outer[k].deferred) continue;
      const leaf_kernel<scalar> kernel{table.outer[k], workspace, begin};
      kernel.add_sum(end - begin, sum + table.outer[k].native, room);
    }
    const auto [first, last] = leaves_of(table.elementwise, table.elementwise_count, node);
    for (std::size_t k = first; k < last; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      for (index b = begin; b < end; ++b) {
        instantiate(leaf, workspace, b, room);
        add_to(sum + leaf.native, static_cast<const scalar*>(room), leaf.count);
      }
    }
  }

  /// One sample's gradient of a leaf, or what is left of it on the grid.
  template <class Leaf>
  void add_gradient(const sum_request<scalar>& asked, const Leaf& leaf, scalar weight, const scalar* gradient,
                    scalar* sum) {
    if (asked.integers == nullptr) {
      add_scaled_to(sum + leaf.native, weight, gradient, leaf.native_count());
    } else {
      add_rounded_to(reinterpret_cast<integer_of<scalar>*>(sum) + leaf.native,
                     static_cast<double>(weight) * asked.steps(), gradient, leaf.native_count());
    }
  }

  /// A stretch of the sum stays in the first cache while all samples are added to it, a few in one pass, one after the
  /// other (docs/internals/tricks.md).
  template <class Leaf>
  [[gnu::noinline]] void add_kept(const sum_request<scalar>& asked, const Leaf& leaf, index begin, index end,
                                  const weight_table& weights, scalar* sum) {
    if (asked.integers != nullptr) {
      for (index b = begin; b < end; ++b) {
        const scalar weight = weights[static_cast<std::size_t>(b)];
        if (weight != 0) add_gradient(asked, leaf, weight, kept.gradient(b, leaf), sum);
      }
      return;
    }
    const index native = leaf.native;
    const index count = leaf.native_count();
    std::array<scaled_stretch<scalar>, static_cast<std::size_t>(table.tile)> terms;
    std::size_t term_count = 0;
    for (index b = begin; b < end; ++b) {
      const scalar weight = weights[static_cast<std::size_t>(b)];
      if (weight == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
      terms[term_count++] = {weight, kept.gradient(b, leaf)};
    }
    const auto all = std::span{terms}.first(term_count);
    constexpr index stretch = index{1} << 12;
    for (index first = 0; first < count; first += stretch) {
      const index here = std::min(stretch, count - first);
      scalar* to = sum + native + first;
      if (!asked.squares) {
        add_all_scaled_to<scalar>(to, all, first, here);
        continue;
      }
      for (const scaled_stretch<scalar>& term : all) add_scaled_squares_to(to, term.weight, term.from + first, here);
    }
  }

  void add_weighted_sum(const sum_request<scalar>& asked, std::size_t node, index begin, index end,
                        const weight_table& weights, scalar* sum) {
    const auto add_one_by_one = [&](index native, index count, const auto& instantiate_one) {
      for (index b = begin; b < end; ++b) {
        const scalar weight = weights[static_cast<std::size_t>(b)];
        if (weight == 0) continue;
        instantiate_one(b);
        add_scaled_to(sum + native, weight, static_cast<const scalar*>(room), count);
      }
    };
    const auto [outer_first, outer_last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t k = outer_first; k < outer_last; ++k) {
      const outer_leaf& leaf = table.outer[k];
      if (leaf.deferred) continue;  // the first pass has left its rows
      const leaf_kernel<scalar> kernel{leaf, workspace, begin};
      if (leaf.use.shared()) {  // the first pass kept its gradient, the sum over all uses
        if (leaf.use.first) add_kept(asked, leaf, begin, end, weights, sum);
      } else if (leaf.delta_stride == 1) {
        kernel.add_weighted_sum(end - begin, weights.data() + begin, sum + leaf.native, room);
      } else {
        add_one_by_one(leaf.native, leaf.size(), [&](index b) { kernel.instantiate(b - begin, room); });
      }
    }
    const auto [first, last] = leaves_of(table.elementwise, table.elementwise_count, node);
    for (std::size_t k = first; k < last; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      if (leaf.use.shared()) {
        if (leaf.use.first) add_kept(asked, leaf, begin, end, weights, sum);
        continue;
      }
      add_one_by_one(leaf.native, leaf.count, [&](index b) { instantiate(leaf, workspace, b, room); });
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host
