// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/engine.hpp - one pass over a batch: tiles into accumulators in parallel, then their in-order
// reduction
//
//   pack weights
//   accumulators in parallel, each: [ tile: load, forward, loss, backward + leaves, facts, weighted sums ]*
//   add up accumulators
//
// A tile never leaves the core that works on it. Each accumulator adds its tiles up in order, accumulators are added up
// in order, and so are chunks, so the bits of a sum do not depend on the number of threads. Accumulators that are done
// free their buffers for others: accumulator_ring.hpp.
//
// Of a table of which a sample uses few rows, no accumulator has a copy; what samples leave on the tape is added up
// after a chunk of samples (table_way.hpp). So it is with large blocks that have one position (deferred_way.hpp).
//
// Sums of a large network are *shared* where they can be: a round of as many tiles as there are threads goes through
// the network, then all threads add its samples to the sum where it is wanted, each thread to other elements, sample
// after sample. So there is one copy of a sum instead of one a thread and one more, and it is read and written once a
// round; what that takes is a place for each tile of the round, which is there, and norms for which no gradient is
// kept. Each element is one chain of additions over the samples, whatever a round is.
//
// A clipped sum has a proven bound of what its additions round (privacy/release.hpp), so the way of an addend to it is
// short (tape.hpp, `way_of_additions`), or every sample's share is rounded to an integer by itself and accumulators add
// those.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/panels.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/run/accumulator_ring.hpp>
#include <pergrad/host/run/gather.hpp>
#include <pergrad/host/run/tile_state.hpp>
#include <pergrad/host/run/worker.hpp>
#include <pergrad/host/run/working_memory.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

// Not in the template: of a list that asks a tape for numbers there, nvcc 13 makes an expression with commas.
[[noreturn]] inline void throw_too_many_sums(std::size_t sums, std::size_t room) {
  detail::throw_invalid_argument({"pergrad: this evaluation forms ", sums, " sums, the tape has room for ", room,
                                  ": construct it with pergrad::max_sums{", sums, "}"});
}
[[noreturn]] inline void throw_too_many_threads(std::size_t threads, std::size_t workers) {
  detail::throw_invalid_argument(
      {"pergrad: the tape was made for an executor with ", workers, " threads, this one has ", threads});
}

/// Runs requests for one network. Inputs and losses come through small function tables, so that one engine serves every
/// loss.
template <class Network>
struct engine {
  using scalar = typename Network::scalar;
  static constexpr const auto& table = program<Network>::table;

  const detail::thread_pool& pool;
  const Network& network;
  working_memory<Network>& tape;
  const sample_source<scalar>& source;
  const run_request<scalar>& request;
  const other_norms<scalar>* others;

  void run() const {
    if (request.sum_count > tape.max_sums) throw_too_many_sums(request.sum_count, tape.max_sums);
    if (pool.thread_count() > tape.threads) throw_too_many_threads(pool.thread_count(), tape.threads);
    const auto count = static_cast<index>(request.count);
    const bool one_by_one = request.strategy == strategy_kind::naive || request.strategy == strategy_kind::multi;
    // Gradients of large blocks that someone wants formed fill the memory: fewer samples at a time.
    const index most = tile_state<Network>::forms_deferred(request) ? table.cache_tile : table.tile;
    const index at_once = most_samples_of_integers(request);  // a tile has one accumulator at least
    const index tile =
        request.strategy == strategy_kind::naive ? 1 : std::min({most, tile_of_batch<Network>(count), at_once});
    const index chunk = std::max(tile, std::min(chunk_samples<Network>, at_once) / tile * tile);

    pack_panels(pool, network, tape.panels.data(), request.backward);
    if (request.direction != nullptr) to_native(request.direction, tape.direction.data());

    index chunk_first = 0;
    do {
      const index samples = std::min(chunk, count - chunk_first);
      bool shared = false;
      if constexpr (table.shares_sums) {
        shared = request.sum_count > 0;
        if (shared) run_rounds(chunk_first, samples, tile, one_by_one);
      }
      if (!shared) {
        ring accumulators{accumulators_of(samples, tile),
                          accumulator_buffers(accumulator_count<Network>, pool.thread_count())};
        run_chunk(accumulators, chunk_first, samples, tile, one_by_one);
        for (std::size_t k = 0; k < request.sum_count; ++k) gather(k, accumulators, chunk_first > 0);
      }
      for_each_way<Network>([&](auto way) {
        if constexpr (requires { &decltype(way)::finish_chunk; }) {
          way.finish_chunk(pool, tape, request, chunk_first, samples);
        }
      });
      chunk_first += samples;
    } while (chunk_first < count);
  }

 private:
  /// Are logits formed where they are read? Where somebody wants them, or gradients as such, they are all there.
  [[nodiscard]] const sample_source<scalar>* streamed() const {
    const bool may = table.streams && source.streamed != nullptr && !request.outputs &&
                     request.strategy == strategy_kind::book_keeping && request.method == norm_method::automatic &&
                     !request.needs_every_gradient();
    return may ? &source : nullptr;
  }
  using ring = accumulator_ring<accumulator_count<Network>>;

  /// Accumulators of a chunk, each of one tile at least: depends on the network, the request and the number of samples
  /// only.
  [[nodiscard]] index accumulators_of(index samples, index tile) const {
    const index tiles = (samples + tile - 1) / tile;
    if (request.sum_count == 0) return std::min(tiles, accumulator_count<Network>);
    return std::min(tiles, request.has_weights() ? bounded_accumulators_for<Network>(tiles, tile, tape.max_batch)
                                                 : accumulators_for<Network>(tiles));
  }

  /// One chunk of shared sums.
  void run_rounds(index chunk_first, index count, index tile, bool one_by_one) const {
    const auto whole = static_cast<index>(Network::parameter_count);
    if (chunk_first == 0) {
      constexpr index stretch = index{1} << 16;
      pool.parallel(static_cast<std::size_t>((whole + stretch - 1) / stretch), [&](std::size_t task, std::size_t) {
        const index first = static_cast<index>(task) * stretch;
        for (std::size_t s = 0; s < request.sum_count; ++s) {
          const sum_request<scalar>& sum = request.sums[s];
          if (sum.accumulate || sum.integers != nullptr) continue;
          std::fill_n(sum.out + first, std::min(stretch, whole - first), scalar{0});
        }
      });
    }
    const auto threads = static_cast<index>(pool.thread_count());
    for (index round = 0; round < count; round += threads * tile) {
      const index tiles = std::min(threads, (count - round + tile - 1) / tile);
      const auto tile_of = [&](index t) {
        const index first = round + t * tile;
        return tile_state<Network>{network,
                                   tape,
                                   request,
                                   others,
                                   static_cast<std::size_t>(t),
                                   static_cast<std::size_t>(chunk_first + first) + request.first,
                                   first,
                                   std::min(tile, count - first),
                                   streamed()};
      };
      pool.parallel(static_cast<std::size_t>(tiles), [&](std::size_t t, std::size_t) {
        worker<Network>{source, request, tile_of(static_cast<index>(t)), nullptr}.process(one_by_one);
      });
      for (std::size_t block = 0; block <= program<Network>::plan::recomputed_count; ++block) {
        if (block > 1 && outer_way<Network>::reads_factors(tile_of(0), block)) {  // the first one is still there
          pool.parallel(static_cast<std::size_t>(tiles), [&](std::size_t t, std::size_t) {
            tile_state<Network> state = tile_of(static_cast<index>(t));
            state.pass.recall(source, state.first, state.samples);
            state.bring(block, 0, state.samples);
          });
        }
        for_each_way<Network>([&](auto way) {
          if constexpr (requires { &decltype(way)::add_piece; }) {
            const auto pieces = static_cast<std::size_t>(way.pieces(block));
            pool.parallel(request.sum_count * pieces, [&](std::size_t task, std::size_t thread) {
              for (index t = 0; t < tiles; ++t) {
                way.add_piece(tile_of(t), task / pieces, block, static_cast<index>(task % pieces), thread);
              }
            });
          }
        });
      }
    }
  }

  /// The accumulators' part of one chunk.
  void run_chunk(ring& order, index chunk_first, index count, index tile, bool one_by_one) const {
    const index accumulators = order.count();
    const index tiles = (count + tile - 1) / tile;
    pool.parallel(static_cast<std::size_t>(accumulators), [&](std::size_t task, std::size_t thread) {
      const auto accumulator = static_cast<index>(task);
      const auto process = [&](scalar* sums) {
        for (index t = accumulator * tiles / accumulators; t < (accumulator + 1) * tiles / accumulators; ++t) {
          const index first = t * tile;
          const index samples = std::min(tile, count - first);
          worker<Network>{source,
                          request,
                          {network, tape, request, others, thread,
                           static_cast<std::size_t>(chunk_first + first) + request.first, first, samples, streamed()},
                          sums}
              .process(one_by_one);
        }
      };
      if (request.sum_count == 0) {
        process(nullptr);
        return;
      }
      const auto finish = [&] {
        order.finish(accumulator, [&](index to, index from) { move_accumulator(buffer(to), buffer(from)); });
      };
      order.begin(accumulator);
      scalar* const sums = buffer(order.buffer_of(accumulator));
      if (!order.was_used_before(accumulator)) std::fill_n(sums, buffer(1) - buffer(0), scalar{0});
      try {
        process(sums);
      } catch (...) {
        finish();  // lest others wait for its buffer
        throw;
      }
      finish();
    });
  }

  static void to_native(const scalar* parameters, scalar* native) {
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      const outer_leaf& leaf = table.outer[k];
      for_each_parameter(leaf, 0, leaf.groups * leaf.view_width(),
                         [&](index p, index n) { native[n] = parameters[p]; });
    }
    for (std::size_t k = 0; k != table.elementwise_count; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      std::copy_n(parameters + leaf.parameters, leaf.count, native + leaf.native);
    }
  }

  /// Rows of a leaf that one task gathers.
  [[nodiscard]] static index rows_of_piece(const outer_leaf& leaf) {
    return std::max<index>(1, (index{1} << 13) / leaf.outputs);
  }

  /// A buffer of an accumulator's sums. They lie side by side, whatever more the tape has room for: pages stay
  /// untouched.
  [[nodiscard]] scalar* buffer(index number) const {
    return tape.accumulators.data() + number * static_cast<index>(request.sum_count) * table.accumulator_size;
  }
  /// Adds the sums of an accumulator to others, and leaves zeros.
  void move_accumulator(scalar* to, scalar* accumulator) const {
    using integer = integer_of<scalar>;
    for (std::size_t k = 0; k < request.sum_count;
         ++k, to += table.accumulator_size, accumulator += table.accumulator_size) {
      if (request.sums[k].integers == nullptr) {
        move_onto(to, accumulator, table.accumulator_size);
      } else {
        move_integers_onto(reinterpret_cast<integer*>(to), reinterpret_cast<integer*>(accumulator),
                           table.accumulator_size);
      }
    }
  }
  /// Adds the total and the accumulators that are left up in order, puts the sum into PyTorch's order; with `onto` it
  /// is added to what is there.
  void gather(std::size_t number, const ring& accumulators, bool onto) const {
    const sum_request<scalar>& sum = request.sums[number];
    std::array<const scalar*, static_cast<std::size_t>(accumulator_count<Network>)> used{};
    std::size_t used_count = 0;
    const auto use = [&](index which) {
      used[used_count++] = buffer(which) + static_cast<index>(number) * table.accumulator_size;
    };
    if (accumulators.count() > 0) use(0);
    for (index accumulator = accumulators.folded_in_the_end(); accumulator < accumulators.count(); ++accumulator)
      use(accumulators.buffer_of(accumulator));
    const partial_sums<scalar> parts{std::span{used}.first(used_count), static_cast<scalar>(sum.scale), sum.out,
                                     sum.integers, sum.accumulate || onto};
    const index pieces = count_pieces(table.outer, table.outer_count, pieces_of);
    pool.parallel(static_cast<std::size_t>(pieces) + (table.elementwise_count > 0 ? 1 : 0),
                  [&](std::size_t task, std::size_t) {
                    if (static_cast<index>(task) < pieces) {
                      const auto [k, piece] = find_piece(table.outer, static_cast<index>(task), pieces_of);
                      const outer_leaf& leaf = table.outer[k];
                      const index first = piece * rows_of_piece(leaf);
                      const index last = std::min(leaf.groups * leaf.view_width(), first + rows_of_piece(leaf));
                      gather_rows(leaf, first, last, parts);
                      return;
                    }
                    for (std::size_t k = 0; k != table.elementwise_count; ++k) {
                      const elementwise_leaf& leaf = table.elementwise[k];
                      for (index i = 0; i < (leaf.use.first ? leaf.count : 0); ++i) {
                        parts.finish(leaf.parameters + i, leaf.native + i);
                      }
                    }
                  });
  }
  [[nodiscard, gnu::noinline]] static index pieces_of(const outer_leaf& leaf) {
    if (!leaf.use.first || leaf.deferred) return 0;
    return (leaf.groups * leaf.view_width() + rows_of_piece(leaf) - 1) / rows_of_piece(leaf);
  }
};

}  // namespace pergrad::inline v0_1::on_host
