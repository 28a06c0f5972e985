// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/chunk_segments.hpp - segments that a chunk's samples leave on the tape, and their weights
//
// The sums over tables are formed when the chunk is complete, so what a sample adds to them must be kept until then.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/sparse.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/passes.hpp>
#include <pergrad/host/run/working_memory.hpp>

namespace pergrad::inline v0_1::on_host {

/// Where the weights of one sum and one table lie, one a sample of the chunk.
template <class Network>
[[nodiscard]] auto* segment_weights(working_memory<Network>& tape, std::size_t sum, std::size_t leaf) noexcept {
  return tape_access::weights(tape) +
         static_cast<index>(sum * program<Network>::table.sparse_count + leaf) * chunk_samples<Network>;
}

/// One thread's way to the segments of a chunk. `first` is the first sample of a tile, `b` a sample of that tile.
template <class Network>
struct chunk_segments {
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  using tape_type = working_memory<Network>;
  static constexpr const auto& table = program::table;

  tape_type& tape;
  std::size_t number = 0;       ///< of the thread
  std::size_t chunk_first = 0;  ///< the first sample of the chunk
  const scalar* workspace = nullptr;

  /// Calls f(leaf) for the tables whose gradient is complete with this node's.
  template <class Function>
  static void for_each_table(std::size_t node, Function&& f) {
    for (std::size_t k = 0; k != table.sparse_count; ++k) {
      if (table.sparse[k].node == node && table.sparse[k].use.first) f(k);
    }
  }
  [[nodiscard]] segments<scalar> of(std::size_t first, std::size_t leaf, index b) const noexcept {
    return {table.sparse[leaf], tape_access::integers(tape) + in_chunk(first, b) * table.sparse_integers,
            tape_access::scalars(tape) + in_chunk(first, b) * table.sparse_scalars};
  }
  /// Finds the segments of one sample and one table, which stay until the chunk's sums are formed.
  segments<scalar> keep(passes<Network>& pass, std::size_t first, std::size_t owner_number, index b) {
    const sparse_leaf& owner = table.sparse[owner_number];
    const segments<scalar> here = of(first, owner_number, b);
    const segment_finder finder{tape_access::finder(tape) + static_cast<index>(number) * tape_type::finder_stride,
                                owner.all_positions};
    segment_maker<scalar> maker{owner, finder};
    const auto for_each_use = [&](auto&& f) {
      for (std::size_t k = owner_number; k != table.sparse_count; ++k) {
        const sparse_leaf& use = table.sparse[k];
        if (use.owner == owner_number) f(use, std::min(use.positions, pass.positions_there(use.slot, b)));
      }
    };
    for_each_use([&](const sparse_leaf& use, index length) { maker.find(use, pass.ids(use.ids, b), length); });
    maker.sort(here);
    if (owner.counted) {
      std::copy_n(workspace + owner.delta.offset + b * owner.delta.sample, owner.width, here.rows);
    } else {
      for_each_use([&](const sparse_leaf& use, index length) {
        maker.add_rows(use, workspace + use.delta.offset + b * use.delta.sample, length, here);
      });
    }
    return here;
  }
  /// The same for samples of a tile, with weight 1 in every sum.
  void keep_unit(passes<Network>& pass, std::size_t first, std::size_t node, index begin, index end,
                 std::size_t sum_count) {
    if constexpr (table.sparse_count > 0) {
      for_each_table(node, [&](std::size_t k) {
        for (index b = begin; b < end; ++b) keep(pass, first, k, b);
        for (std::size_t s = 0; s < sum_count; ++s) {
          for (index b = begin; b < end; ++b) weight(s, k, first, b) = 1;
        }
      });
    }
  }
  /// The weight of a table's segments of one sample in one sum.
  [[nodiscard]] scalar& weight(std::size_t sum, std::size_t leaf, std::size_t first, index b) const noexcept {
    return segment_weights<Network>(tape, sum, leaf)[in_chunk(first, b)];
  }

 private:
  [[nodiscard]] index in_chunk(std::size_t first, index b) const noexcept {
    return static_cast<index>(first - chunk_first) + b;
  }
};

}  // namespace pergrad::inline v0_1::on_host
