// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/table_way.hpp - tables of which a sample uses few rows
//
// No accumulator has a copy of a table. Samples leave their segments (sparse.hpp) and their weights on the tape; after
// a chunk of samples, buckets of rows are summed up in parallel, each sample after sample.
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/norms/sparse.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/segment_sizes.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/tile_state.hpp>
#include <pergrad/host/run/working_memory.hpp>

namespace pergrad::inline v0_1::on_host {

/// See worker.hpp.
template <class Network>
struct table_way {
  using scalar = typename Network::scalar;
  using state = tile_state<Network>;
  using tape_type = working_memory<Network>;
  static constexpr const auto& table = program<Network>::table;
  static constexpr bool exists = table.sparse_count > 0;

  static void collect(state& tile, std::size_t node, index begin, index end) {
    for (std::size_t k = 0; k != table.sparse_count; ++k) {
      const sparse_leaf& leaf = table.sparse[k];
      if (leaf.node != node || !leaf.use.first) continue;
      for (index b = begin; b < end; ++b) {
        const segments<scalar> here = keep(tile, k, b);
        tile.part(b, node).squared += squares_of(leaf, here);
        if (tile.request.direction == nullptr) continue;
        tile.projections[static_cast<std::size_t>(b)] +=
            dot_segments(leaf, here, tile.request.direction + leaf.parameters);
      }
    }
  }

  static void add_unit(state& tile, std::size_t node, index begin, index end, scalar* /*sums*/) {
    for (std::size_t k = 0; k != table.sparse_count; ++k) {
      if (table.sparse[k].node != node || !table.sparse[k].use.first) continue;
      for (index b = begin; b < end; ++b) keep(tile, k, b);
    }
  }

  static void add_weighted(state& tile, std::size_t sum, const typename state::weights& weights, index begin, index end,
                           scalar* /*to*/) {
    for (std::size_t k = 0; k != table.sparse_count; ++k) {
      std::copy(weights.of(table.sparse[k].node) + begin, weights.of(table.sparse[k].node) + end,
                tile.tape.weights_of_table(sum, k) + tile.in_chunk + begin);
    }
  }

  static void write_row(state& tile, index b, const typename state::weights& weights, scalar* row) {
    for (std::size_t k = 0; k != table.sparse_count; ++k) {
      const sparse_leaf& leaf = table.sparse[k];
      if (!leaf.use.first) continue;
      write_segments(leaf, segments_of(tile.tape, leaf, tile.in_chunk + b), weights.of(leaf.node)[b],
                     row + leaf.parameters);
    }
  }

  /// Adds the segments of a chunk's samples up, sample after sample, in buckets of rows.
  static void finish_chunk(const detail::thread_pool& pool, tape_type& tape, const run_request<scalar>& request,
                           index chunk_first, index count) {
    if (chunk_first == 0 && !table.shares_sums) clear(pool, tape, request);
    const bool is_last = chunk_first + count == static_cast<index>(request.count);
    constexpr std::size_t tasks = table.sparse_count * static_cast<std::size_t>(sparse_buckets);
    pool.parallel(request.sum_count * tasks, [&](std::size_t task, std::size_t) {
      const sum_request<scalar>& sum = request.sums[task / tasks];
      const std::size_t number = task % tasks / static_cast<std::size_t>(sparse_buckets);
      const auto bucket = static_cast<index>(task % static_cast<std::size_t>(sparse_buckets));
      const sparse_leaf& leaf = table.sparse[number];
      if (!leaf.use.first) return;
      const scalar* const weights = tape.weights_of_table(task / tasks, number);
      const auto for_each_sample = [&](const auto& add) {
        for (index b = 0; b < count; ++b) {
          const scalar weight = sum.is_plain ? scalar{1} : weights[b];
          if (weight == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
          const segments<scalar> here = segments_of(tape, leaf, b);
          add(here, here.first_of[bucket], here.first_of[bucket + 1], weight);
        }
      };
      if (sum.integers != nullptr) {
        for_each_sample([&](const segments<scalar>& here, index first, index last, scalar weight) {
          add_rounded_segments(leaf, here, first, last, static_cast<double>(weight) * sum.steps(),
                               sum.integers + leaf.parameters);
        });
        return;
      }
      scalar* const out = sum.out + leaf.parameters;
      const auto add_all = [&](auto* to) {
        const auto scale = static_cast<scalar>(sum.scale);
        for_each_sample([&](const segments<scalar>& here, index first, index last, scalar weight) {
          add_segments(leaf, here, first, last, scale * weight, sum.squares, to);
        });
      };
      if (!sums_in_double(sum)) {
        add_all(out);
        return;
      }
      double* const to = sum_in_double(tape, task / tasks, number);
      add_all(to);
      if (!is_last) return;
      for_each_stretch_of_bucket(leaf, bucket, [&](index at, index size) {
        round_to(out + at, static_cast<const double*>(to + at), sum.accumulate, size);
      });
    });
  }

 private:
  /// The segments of a sample of the chunk.
  [[nodiscard]] static segments<scalar> segments_of(tape_type& tape, const sparse_leaf& leaf, index sample) noexcept {
    return {leaf, tape.integers.data() + sample * table.sparse_integers,
            tape.scalars.data() + sample * table.sparse_scalars};
  }
  /// Finds the segments of one sample of the tile and one table, which stay until the chunk's sums are formed.
  static segments<scalar> keep(state& tile, std::size_t owner_number, index b) {
    const sparse_leaf& owner = table.sparse[owner_number];
    const segments<scalar> here = segments_of(tile.tape, owner, tile.in_chunk + b);
    // In the same places for all tables: what one leaves behind is not to lie where another one wants zeros.
    const segment_finder finder{tile.tape.finders.data() + static_cast<index>(tile.thread) * tape_type::finder_stride,
                                table.sparse_positions};
    segment_maker<scalar> maker{owner, finder};
    const auto for_each_use = [&](auto&& f) {
      for (std::size_t k = owner_number; k != table.sparse_count; ++k) {
        const sparse_leaf& use = table.sparse[k];
        if (use.owner == owner_number) f(use, std::min(use.positions, tile.pass.positions_there(use.slot, b)));
      }
    };
    for_each_use([&](const sparse_leaf& use, index length) { maker.find(use, tile.pass.ids(use.ids, b), length); });
    maker.sort(here);
    if (owner.counted) {
      std::copy_n(tile.workspace + owner.delta.offset + b * owner.delta.sample, owner.width, here.rows);
    } else {
      for_each_use([&](const sparse_leaf& use, index length) {
        maker.add_rows(use, tile.workspace + use.delta.offset + b * use.delta.sample, length, here);
      });
    }
    return here;
  }

  /// Is the sum over tables formed in double, elsewhere, before it goes where it belongs? So it is where it is added to
  /// something; and in a clipped sum, where a row may have as many addends as there are samples. A shared sum is one
  /// chain over the samples in any case, and its bound knows that (`way_of_additions`).
  [[nodiscard]] static bool sums_in_double(const sum_request<scalar>& sum) {
    return !table.shares_sums && (sum.accumulate || !sum.is_plain);
  }
  static double* sum_in_double(tape_type& tape, std::size_t which, std::size_t number) {
    double* to = tape.additions.data() + static_cast<index>(which) * table.sparse_size;
    for (std::size_t k = 0; k < number; ++k) to += table.sparse[k].use.first ? table.sparse[k].size() : 0;
    return to;
  }
  /// Sets the sums to zero, in long stretches: row by row, as buckets have them, it takes longer than all that follows
  /// (docs/internals/tricks.md). Shared sums begin with the round.
  static void clear(const detail::thread_pool& pool, tape_type& tape, const run_request<scalar>& request) {
    constexpr index stretch = (index{1} << 17) / static_cast<index>(sizeof(scalar));
    constexpr auto stretches = [](const sparse_leaf& leaf) {
      return leaf.use.first ? (leaf.size() + stretch - 1) / stretch : 0;
    };
    constexpr index tasks = count_pieces(table.sparse, table.sparse_count, stretches);
    pool.parallel(request.sum_count * static_cast<std::size_t>(tasks), [&](std::size_t number, std::size_t) {
      const std::size_t which = number / static_cast<std::size_t>(tasks);
      const auto [k, piece] =
          find_piece(table.sparse, static_cast<index>(number % static_cast<std::size_t>(tasks)), stretches);
      const sum_request<scalar>& sum = request.sums[which];
      const index first = piece * stretch;
      const index count = std::min(stretch, table.sparse[k].size() - first);
      if (sum.integers != nullptr) return;
      if (sums_in_double(sum)) {
        std::fill_n(sum_in_double(tape, which, k) + first, count, 0.0);
      } else {
        std::fill_n(sum.out + table.sparse[k].parameters + first, count, scalar{0});
      }
    });
  }
};

}  // namespace pergrad::inline v0_1::on_host
