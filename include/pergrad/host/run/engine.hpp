// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/engine.hpp - one pass over a batch: tiles into accumulators in parallel, then their in-order
// reduction
//
//   pack weights
//   accumulators in parallel, each: [ tile: load, forward, loss, backward + leaves, facts, weighted sums ]*
//   add up accumulators
//
// A tile never leaves the core that works on it. Each accumulator, `lane` in the code, adds its tiles up in order,
// accumulators are added up in order, and so are chunks, so the bits of a sum do not depend on the number of threads.
// Accumulators that are done free their buffers for others: lane_ring.hpp.
//
// Of a table of which a sample uses few rows, no accumulator has a copy. Samples leave their segments (sparse.hpp) on
// the tape; after a chunk of samples, buckets of rows are summed up in parallel, each sample after sample. So it is
// with large blocks that have one position: see deferred.hpp.
//
// A clipped sum has a proven bound of what its additions round (privacy/release.hpp), so the way of an addend to it is
// short (tape.hpp, `way_of_additions`), or every sample's share is rounded to an integer by itself and accumulators add
// those.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/panels.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/other_ways.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/norms/sparse.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/run/chunk_segments.hpp>
#include <pergrad/host/run/deferred.hpp>
#include <pergrad/host/run/gather.hpp>
#include <pergrad/host/run/lane_ring.hpp>
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
class engine {
 public:
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  using tape_type = working_memory<Network>;
  static constexpr const auto& table = program::table;

  static void run(const detail::thread_pool& pool, const Network& network, tape_type& tape,
                  const sample_source<scalar>& source, const run_request<scalar>& request,
                  const other_ways<Network>* others = nullptr) {
    if (request.sum_count > tape.sum_capacity()) throw_too_many_sums(request.sum_count, tape.sum_capacity());
    if (pool.thread_count() > tape.worker_count()) {
      throw_too_many_threads(pool.thread_count(), tape.worker_count());
    }
    const auto count = static_cast<index>(request.count);
    const bool one_by_one = request.strategy == strategy_kind::naive || request.strategy == strategy_kind::multi;
    // Gradients of large blocks that someone wants formed fill the memory: fewer samples at a time.
    const index most = worker<Network>::forms_deferred(request) ? table.cache_tile : table.tile;
    const index tile = request.strategy == strategy_kind::naive ? 1 : std::min(most, tile_of_batch<Network>(count));
    const index chunk =
        std::max(tile, std::min(chunk_samples<Network>, most_samples_of_integers(request)) / tile * tile);
    const lane_plan plan{request.sum_count > 0, request.has_weights(), tile, tape.capacity()};

    pack_panels(pool, network, tape_access::panels(tape), request.backward);
    if (request.direction != nullptr) to_native(request.direction, tape_access::direction(tape));

    index chunk_first = 0;
    do {
      const index samples = std::min(chunk, count - chunk_first);
      ring lanes{plan.lanes(samples), lane_buffers(lane_count<Network>, pool.thread_count())};
      run_chunk(pool, network, tape, source, request, others, plan, lanes, chunk_first, samples, one_by_one);
      for (std::size_t k = 0; k < request.sum_count; ++k) gather(pool, tape, request, k, lanes, chunk_first > 0);
      if constexpr (table.sparse_count > 0) {
        sum_tables(pool, tape, request, chunk_first, samples);
      }
      if constexpr (table.deferred_count > 0) {
        sum_deferred(pool, tape, request, chunk_first, samples);
      }
      chunk_first += samples;
    } while (chunk_first < count);
  }

 private:
  using ring = lane_ring<lane_count<Network>>;

  /// How a chunk is cut: depends on the network, the request and the number of samples only.
  struct lane_plan {
    bool forms_sums = true;
    bool is_weighted = true;
    index tile = 1;
    std::size_t capacity = 0;  ///< of the tape
    [[nodiscard]] index tiles(index samples) const noexcept { return (samples + tile - 1) / tile; }
    /// Each of them has a tile at least.
    [[nodiscard]] index lanes(index samples) const noexcept {
      const index count = tiles(samples);
      if (!forms_sums) return std::min(count, lane_count<Network>);
      return std::min(count,
                      is_weighted ? bounded_lanes_for<Network>(count, tile, capacity) : lanes_for<Network>(count));
    }
  };

  /// The accumulators' part of one chunk.
  static void run_chunk(const detail::thread_pool& pool, const Network& network, tape_type& tape,
                        const sample_source<scalar>& source, const run_request<scalar>& request,
                        const other_ways<Network>* others, const lane_plan& plan, ring& ring_of_lanes,
                        index chunk_first, index count, bool one_by_one) {
    const index lanes = plan.lanes(count);
    const index tiles = plan.tiles(count);
    pool.parallel(static_cast<std::size_t>(lanes), [&](std::size_t lane_number, std::size_t thread) {
      const auto lane = static_cast<index>(lane_number);
      worker<Network> state{
          network, tape, source, request, others, thread, static_cast<std::size_t>(chunk_first) + request.first};
      const auto process = [&](scalar* sums) {
        for (index t = lane * tiles / lanes; t < (lane + 1) * tiles / lanes; ++t) {
          const index first = t * plan.tile;
          const index samples = std::min(plan.tile, count - first);
          state.process(static_cast<std::size_t>(chunk_first + first) + request.first, samples, one_by_one, sums);
        }
      };
      if (request.sum_count == 0) {
        process(nullptr);
        return;
      }
      const index stride = buffer_stride(request);
      scalar* const buffers = tape_access::lanes(tape);
      const auto finish = [&] {
        ring_of_lanes.finish(
            lane, [&](index to, index from) { move_lane(request, buffers + to * stride, buffers + from * stride); });
      };
      ring_of_lanes.begin(lane);
      scalar* const sums = buffers + ring_of_lanes.buffer_of(lane) * stride;
      if (!ring_of_lanes.was_used_before(lane)) std::fill_n(sums, stride, scalar{0});
      try {
        process(sums);
      } catch (...) {
        finish();  // lest others wait for its buffer
        throw;
      }
      finish();
    });
  }

  /// Is the sum over tables formed in double, elsewhere, before it goes where it belongs? So it is where it is added to
  /// something; and in a clipped sum, where a row may have as many addends as there are samples.
  [[nodiscard]] static bool sums_in_double(const sum_request<scalar>& sum) { return sum.accumulate || !sum.is_plain; }
  static double* sum_of_table(tape_type& tape, std::size_t which, std::size_t number) {
    double* to = tape_access::additions(tape) + static_cast<index>(which) * table.sparse_size;
    for (std::size_t k = 0; k < number; ++k) to += table.sparse[k].use.first ? table.sparse[k].size() : 0;
    return to;
  }
  /// Sets the sums over tables to zero, in long stretches: row by row, as buckets have them, it takes longer than
  /// all that follows (docs/internals/tricks.md).
  static void clear_tables(const detail::thread_pool& pool, tape_type& tape, const run_request<scalar>& request) {
    constexpr index stretch = (index{1} << 17) / static_cast<index>(sizeof(scalar));
    constexpr auto stretches = [](const sparse_leaf& leaf) {
      return leaf.use.first ? (leaf.size() + stretch - 1) / stretch : 0;
    };
    constexpr index tasks = [stretches] {
      index count = 0;
      for (std::size_t k = 0; k != table.sparse_count; ++k) count += stretches(table.sparse[k]);
      return count;
    }();
    pool.parallel(request.sum_count * static_cast<std::size_t>(tasks), [&](std::size_t number, std::size_t) {
      const std::size_t which = number / static_cast<std::size_t>(tasks);
      auto task = static_cast<index>(number % static_cast<std::size_t>(tasks));
      std::size_t k = 0;
      for (; task >= stretches(table.sparse[k]); ++k) task -= stretches(table.sparse[k]);
      const sum_request<scalar>& sum = request.sums[which];
      const index first = task * stretch;
      const index count = std::min(stretch, table.sparse[k].size() - first);
      if (sum.integers != nullptr) return;
      if (sums_in_double(sum)) {
        std::fill_n(sum_of_table(tape, which, k) + first, count, 0.0);
      } else {
        std::fill_n(sum.out + table.sparse[k].parameters + first, count, scalar{0});
      }
    });
  }

  /// Adds the segments of a chunk's samples up, sample after sample, in buckets of rows.
  static void sum_tables(const detail::thread_pool& pool, tape_type& tape, const run_request<scalar>& request,
                         index chunk_first, index count) {
    if (chunk_first == 0) clear_tables(pool, tape, request);
    const bool is_last = chunk_first + count == static_cast<index>(request.count);
    constexpr std::size_t tasks = table.sparse_count * static_cast<std::size_t>(sparse_buckets);
    pool.parallel(request.sum_count * tasks, [&](std::size_t task, std::size_t) {
      const sum_request<scalar>& sum = request.sums[task / tasks];
      const std::size_t number = task % tasks / static_cast<std::size_t>(sparse_buckets);
      const auto bucket = static_cast<index>(task % static_cast<std::size_t>(sparse_buckets));
      const sparse_leaf& leaf = table.sparse[number];
      if (!leaf.use.first) return;
      const scalar* weights = segment_weights<Network>(tape, task / tasks, number);
      const auto for_each_sample = [&](const auto& add) {
        for (index b = 0; b < count; ++b) {
          if (weights[b] == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
          const segments<scalar> here{leaf, tape_access::integers(tape) + b * table.sparse_integers,
                                      tape_access::scalars(tape) + b * table.sparse_scalars};
          add(here, here.first_of[bucket], here.first_of[bucket + 1], weights[b]);
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
      const auto scale = static_cast<scalar>(sum.scale);
      if (!sums_in_double(sum)) {
        for_each_sample([&](const segments<scalar>& here, index first, index last, scalar weight) {
          add_segments(leaf, here, first, last, scale * weight, sum.squares, out);
        });
        return;
      }
      double* const to = sum_of_table(tape, task / tasks, number);
      for_each_sample([&](const segments<scalar>& here, index first, index last, scalar weight) {
        add_segments(leaf, here, first, last, scale * weight, sum.squares, to);
      });
      if (!is_last) return;
      for_each_stretch_of_bucket(leaf, bucket, [&](index at, index size) {
        for (index i = at; i < at + size; ++i)
          out[i] = (sum.accumulate ? out[i] : scalar{0}) + static_cast<scalar>(to[i]);
      });
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

  static constexpr index chunk_elements = index{1} << 13;
  [[nodiscard]] static index rows_per_chunk(const outer_leaf& leaf) {
    return std::max<index>(1, chunk_elements / leaf.outputs);
  }

  /// From one buffer of an accumulator's sums to the next. They lie side by side, whatever more the tape has room for:
  /// pages stay untouched.
  [[nodiscard]] static index buffer_stride(const run_request<scalar>& request) {
    return static_cast<index>(request.sum_count) * table.lane_size;
  }
  /// Adds the sums of an accumulator to others, and leaves zeros.
  static void move_lane(const run_request<scalar>& request, scalar* to, scalar* lane) {
    using integer = integer_of<scalar>;
    for (std::size_t k = 0; k < request.sum_count; ++k, to += table.lane_size, lane += table.lane_size) {
      if (request.sums[k].integers == nullptr) {
        move_onto(to, lane, table.lane_size);
      } else {
        move_integers_onto(reinterpret_cast<integer*>(to), reinterpret_cast<integer*>(lane), table.lane_size);
      }
    }
  }
  /// Adds the total and the accumulators that are left up in order and puts the sum into PyTorch's order; with `onto`
  /// it is added to what is there.
  static void gather(const detail::thread_pool& pool, tape_type& tape, const run_request<scalar>& request,
                     std::size_t number, const ring& lanes, bool onto) {
    const sum_request<scalar>& sum = request.sums[number];
    std::array<const scalar*, static_cast<std::size_t>(lane_count<Network>)> used{};
    std::size_t used_count = 0;
    const auto use = [&](index buffer) {
      used[used_count++] =
          tape_access::lanes(tape) + buffer * buffer_stride(request) + static_cast<index>(number) * table.lane_size;
    };
    if (lanes.count() > 0) use(0);
    for (index lane = lanes.folded_in_the_end(); lane < lanes.count(); ++lane) use(lanes.buffer_of(lane));
    const lane_sum<scalar> lane_sum{std::span{used}.first(used_count), static_cast<scalar>(sum.scale), sum.out,
                                    sum.accumulate || onto};
    const lane_sum_of_integers<scalar> sum_of_integers{lane_sum.lanes, sum.integers};
    index chunks = 0;
    for (std::size_t k = 0; k != table.outer_count; ++k) chunks += chunks_of(table.outer[k]);
    pool.parallel(static_cast<std::size_t>(chunks) + (table.elementwise_count > 0 ? 1 : 0),
                  [&](std::size_t task, std::size_t) {
                    auto chunk = static_cast<index>(task);
                    for (std::size_t k = 0; k != table.outer_count; ++k) {
                      const outer_leaf& leaf = table.outer[k];
                      if (chunk < chunks_of(leaf)) {
                        const index rows_count = leaf.groups * leaf.view_width();
                        const index first = chunk * rows_per_chunk(leaf);
                        const index last = std::min(rows_count, first + rows_per_chunk(leaf));
                        if (sum.integers == nullptr) {
                          gather_rows(leaf, first, last, lane_sum);
                        } else {
                          for_each_parameter(leaf, first, last, [&](index p, index n) { sum_of_integers.add(p, n); });
                        }
                        return;
                      }
                      chunk -= chunks_of(leaf);
                    }
                    for (std::size_t k = 0; k != table.elementwise_count; ++k) {
                      const elementwise_leaf& leaf = table.elementwise[k];
                      for (index i = 0; i < (leaf.use.first ? leaf.count : 0); ++i) {
                        if (sum.integers == nullptr) {
                          lane_sum.finish(leaf.parameters + i, leaf.native + i);
                        } else {
                          sum_of_integers.add(leaf.parameters + i, leaf.native + i);
                        }
                      }
                    }
                  });
  }
  [[nodiscard, gnu::noinline]] static index chunks_of(const outer_leaf& leaf) {
    if (!leaf.use.first || leaf.deferred) return 0;
    return (leaf.groups * leaf.view_width() + rows_per_chunk(leaf) - 1) / rows_per_chunk(leaf);
  }
};

}  // namespace pergrad::inline v0_1::on_host
