// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/working_memory.hpp - every byte that evaluating a network's per-sample gradients needs on the host,
// and how a batch is cut so that it is enough
//
// A clipped sum is separable over samples, so a batch is cut into tiles that stay in a core's cache: there is one
// workspace a thread, a few sums a thread and the packed weights. Nothing in it grows with the batch.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/norms/sparse.hpp>
#include <pergrad/host/plan/deferred_rows.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/run/accumulator_ring.hpp>
#include <pergrad/privacy/clip.hpp>

namespace pergrad::inline v0_1::on_host {

/// Stretches of the batch that are summed one after the other, and then with each other in order. Their number
/// depends on the network alone, so that results do not depend on the number of threads. A power of two, as batches and
/// numbers of threads mostly are: of two threads one waits for the other where eight samples are three stretches.
template <class Network>
inline constexpr index accumulator_count = [] {
  constexpr index bytes = std::max<index>(1, program<Network>::table.accumulator_size) *
                          static_cast<index>(sizeof(typename Network::scalar));
  constexpr index fitting = std::clamp<index>((index{64} << 20) / bytes, 2, 16);
  return static_cast<index>(std::bit_ceil(static_cast<std::size_t>(fitting)));
}();

/// Samples of a tile in a batch of `count`: of a small batch fewer than fit into the cache, so that it has tiles for
/// several threads. Depends on the network and the batch alone, as bits do on it.
template <class Network>
[[nodiscard]] constexpr index tile_of_batch(index count) noexcept {
  constexpr const auto& table = program<Network>::table;
  constexpr index few = 2;  // 4 cost dense layers a third more: each tile reads all weights and adds to all of a sum
  return std::clamp<index>((count + few - 1) / few, table.least_tile, table.tile);
}

/// Accumulators that a number of tiles is worth: clearing an accumulator and adding it to the others must cost little
/// next to its tiles. An element of an accumulator counts as 8 multiply-adds inside the L2 cache and as 64 beyond it,
/// and may take a sixteenth of the time.
template <class Network>
[[nodiscard]] constexpr index accumulators_for(index tiles) noexcept {
  constexpr const auto& table = program<Network>::table;
  constexpr index bytes = table.accumulator_size * static_cast<index>(sizeof(typename Network::scalar));
  constexpr index accumulator_cost = (bytes <= (index{1} << 20) ? 8 : 64) * table.accumulator_size;
  constexpr index tile_cost = [] {
    index sum = 1;
    for (std::size_t k = 0; k != table.outer_count; ++k) sum += table.outer[k].size() * table.outer[k].positions();
    return 3 * table.tile * sum;  // forward, input gradient and weight gradient
  }();
  constexpr index tiles_an_accumulator = std::max<index>(1, 16 * accumulator_cost / tile_cost);
  constexpr index few = 4;  // never so few that a small machine idles
  return std::clamp<index>(tiles / tiles_an_accumulator, std::min(few, accumulator_count<Network>),
                           accumulator_count<Network>);
}

/// Samples of a chunk. The sums of a chunk are added to those of the chunks before. Where there are tables or deferred
/// blocks, as many as have their segments and rows in a few megabytes, within limits, and no more than have rows half
/// as large again as the sums that are formed of them. A multiple of the tile; depends on the network alone. Other
/// numbers that were tried: docs/internals/rejected.md.
template <class Network>
inline constexpr index chunk_samples = [] {
  constexpr const auto& table = program<Network>::table;
  if (table.sparse_count == 0 && table.deferred_count == 0) return index{512};
  constexpr auto scalar_bytes = static_cast<index>(sizeof(typename Network::scalar));
  constexpr index bytes = std::max<index>(
      1, table.sparse_integers * 4 + (table.sparse_scalars + table.deferred_x + table.deferred_delta) * scalar_bytes);
  index samples = std::clamp<index>((index{16} << 20) / bytes, 64, 256);
  const index rows = table.deferred_x + table.deferred_delta;
  while (samples > 128 && 2 * samples * rows > 3 * (table.native_size - table.accumulator_size) &&
         table.deferred_count > 0) {
    samples /= 2;
  }
  return std::max<index>(1, samples / table.tile) * table.tile;
}();

/// Of a tape's capacity, which may be any number: no batch has 2^62 samples.
[[nodiscard]] constexpr index samples_within(std::size_t capacity) noexcept {
  return static_cast<index>(std::min(capacity, std::size_t{1} << 62U));
}
/// Samples that a clipped sum adds up before their sum is added to that of others: parts are added up in a chunk, and
/// chunks in the sum. Three short ways instead of a long one, as each addition rounds (privacy/release.hpp).
template <class Network>
[[nodiscard]] constexpr index part_samples(std::size_t capacity) noexcept {
  return std::min(samples_within(capacity), chunk_samples<Network>) < 256 ? 16 : 32;
}
/// Accumulators of a clipped sum's chunk: of no more samples than a part or a tile.
template <class Network>
[[nodiscard]] constexpr index bounded_accumulators_for(index tiles, index tile, std::size_t capacity) noexcept {
  const index tiles_of_part = std::max<index>(1, part_samples<Network>(capacity) / tile);
  return std::min(tiles, std::max(accumulators_for<Network>(tiles), (tiles + tiles_of_part - 1) / tiles_of_part));
}
/// How a clipped sum is added up that comes in evaluations of up to so many samples: in parts, those of an accumulator
/// and those of a deferred sum, and by chunks. The longest way of them all, whatever tile a strategy takes.
template <class Network>
[[nodiscard]] constexpr detail::addition_way way_of_additions(std::size_t capacity) noexcept {
  const index most = samples_within(capacity);
  const index part = part_samples<Network>(capacity);
  if constexpr (program<Network>::table.shares_sums) {  // sample after sample, whatever comes before and behind
    const bool has_chunks = program<Network>::table.deferred_count > 0;
    return {has_chunks ? static_cast<std::size_t>(2 * part) : 0, capacity};
  }
  index inside = 0;
  for (index samples = 1; samples <= std::min(most, chunk_samples<Network>); ++samples) {
    if (program<Network>::table.deferred_count > 0) inside = std::max(inside, part + (samples + part - 1) / part);
    const auto consider = [&](index tile) {
      const index tiles = (samples + tile - 1) / tile;
      const index accumulators = bounded_accumulators_for<Network>(tiles, tile, capacity);
      inside = std::max(inside, (tiles + accumulators - 1) / accumulators * tile + accumulators);
    };
    constexpr const auto& table = program<Network>::table;
    for (index tile = 1; tile <= table.tile; tile *= 2) consider(tile);
    // Those of this batch, and behind chunks of a larger one, where a layer wants more samples together. Not a loop
    // over a list: nvcc 13 writes none that g++ takes.
    consider(table.tile);
    consider(table.cache_tile);
    consider(std::min(table.cache_tile, tile_of_batch<Network>(samples)));
    consider(tile_of_batch<Network>(samples));
  }
  // A chunk is a whole number of tiles, and those grow with the batch up to the largest one.
  index chunks = 0;
  const auto cut = [&](index samples, index tile) {
    const index chunk = std::max(tile, chunk_samples<Network> / tile * tile);
    chunks = std::max(chunks, (samples + chunk - 1) / chunk);
  };
  for (index samples = 1; samples <= std::min(most, 2 * program<Network>::table.tile); ++samples) {
    cut(samples, tile_of_batch<Network>(samples));
    cut(samples, std::min(program<Network>::table.cache_tile, tile_of_batch<Network>(samples)));
  }
  cut(most, tile_of_batch<Network>(most));
  cut(most, std::min(program<Network>::table.cache_tile, tile_of_batch<Network>(most)));
  return {static_cast<std::size_t>(inside), static_cast<std::size_t>(chunks)};
}

/// Sums that fit without thought; a large network has room for one unless more are asked for.
template <class Network>
inline constexpr std::size_t usual_sums =
    accumulator_count<Network>* program<Network>::table.accumulator_size* static_cast<index>(
        sizeof(typename Network::scalar)) <= (index{64} << 20) ||
            program<Network>::table.shares_sums
        ? 2
        : 1;

/// What a tape is on the host.
template <class Network>
struct working_memory {
  using scalar = typename Network::scalar;
  template <class Value>
  using buffer = detail::aligned_buffer<Value>;
  static constexpr const auto& table = program<Network>::table;
  static constexpr index workspace_stride = round_up(table.workspace);
  static constexpr index kept_stride =
      std::max(table.cache_tile * table.native_size, table.tile* table.accumulator_size);
  /// Between chunks, buffers for the time of one call are free: weighted deltas of a stretch of outputs lie there, if
  /// they fit.
  static constexpr index weighted_deltas = table.deferred_count > 0 ? chunk_samples<Network>* deferred_stretch : 0;
  static constexpr bool weighted_in_workspace =
      weighted_deltas <= table.winograd.sample + table.tile * table.scratch.sample;
  static constexpr index room_of_piece = [] {
    index most = shared_piece;
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      most = std::max(most, table.outer[k].by_ids ? table.outer[k].view[2].extent : table.outer[k].outputs);
    }
    return round_up(std::max(
        most, table.streams ? table.classes_together * static_cast<index>(table.nodes.back().map.in_channels) : 0));
  }();
  /// Of logits that are formed where they are read, in elements a sample of the tile: positions, logits of a stretch,
  /// and of a trained matrix what its norm needs.
  static constexpr index streamed_positions =
      table.streams ? table.tile * static_cast<index>(Network::output_shape.e0) : 0;
  static constexpr index stretch_stride = round_up(streamed_positions * table.classes_together);
  static constexpr index dots_stride = [] {
    const bool trained = table.streams && table.nodes.back().parameter_count > 0;
    return trained ? streamed_positions * static_cast<index>(Network::output_shape.e0) : 0;
  }();
  /// For the time of one leaf: a sample's gradient, or the scaled deltas of a tile.
  static constexpr index room_stride = std::max(
      std::max(round_up(table.tile * table.scaled_size), table.shares_sums ? room_of_piece : table.accumulator_size),
      weighted_in_workspace ? index{0} : weighted_deltas);
  static constexpr index finder_stride = segment_finder::size(table.sparse_positions, table.sparse_slots);
  static constexpr index parts_stride =
      round_up(table.tile * static_cast<index>(std::max<std::size_t>(1, table.layer_groups)));

  /// Reserves everything. Throws std::runtime_error if there is no memory.
  [[gnu::noinline]] working_memory(std::size_t of_threads, std::size_t of_batch, std::size_t of_sums)
      : threads{of_threads}, max_batch{of_batch}, max_sums{std::min(of_sums, detail::most_sums)} {
    for (std::size_t thread = 0; thread < threads; ++thread) {
      std::uninitialized_fill_n(workspaces.data() + static_cast<index>(thread) * workspace_stride, table.touched,
                                scalar{0});
    }
  }

  std::size_t threads;    ///< that there are workspaces for
  std::size_t max_batch;  ///< of one evaluation
  std::size_t max_sums;   ///< that one evaluation may form
  buffer<scalar> workspaces{total(workspace_stride, threads), "a tape's workspaces", detail::uninitialised};
  // With shared sums no gradient is kept but biases', unless rows are asked for, and samples have next to no room.
  static constexpr std::size_t hardly_touched = table.shares_sums ? 0 : 1;
  buffer<scalar> kept{total(kept_stride, threads), "a tape's per-sample gradients", detail::uninitialised,
                      hardly_touched};
  buffer<scalar> rooms{total(room_stride, threads), "a tape's room for a gradient", detail::uninitialised,
                       hardly_touched};
  buffer<norm_bound> parts{total(parts_stride, threads), "a tape's norms"};
  buffer<scalar> panels{total(table.panel_size + line, 1), "a tape's packed weights"};
  buffer<scalar> accumulators{
      table.shares_sums
          ? 0
          : total(table.accumulator_size * accumulator_buffers(accumulator_count<Network>, threads), max_sums),
      "a tape's sums", detail::uninitialised, static_cast<std::size_t>(table.accumulator_size)};
  buffer<scalar> noted{
      total(table.shares_sums ? table.tile * static_cast<index>(std::max<std::size_t>(1, table.layer_groups)) : 0,
            threads* max_sums),
      "a tape's weights"};
  buffer<scalar> direction{total(table.native_size, 1), "a tape's direction", detail::uninitialised};
  // What samples of a chunk leave of tables of which they use few rows (table_way.hpp), and what finds it:
  index chunk = std::min(samples_within(max_batch), chunk_samples<Network>);  ///< samples that have room
  buffer<std::int32_t> finders{total(finder_stride, threads), "a tape's hash tables"};
  buffer<std::int32_t> integers{total(table.sparse_integers, chunk), "a tape's segments", detail::uninitialised};
  buffer<scalar> scalars{total(table.sparse_scalars, chunk), "a tape's segments", detail::uninitialised};
  buffer<scalar> table_weights{total(chunk_samples<Network>, table.sparse_count* max_sums), "a tape's weights"};
  buffer<double> additions{total(table.shares_sums ? 0 : table.sparse_size, max_sums), "a tape's sums over tables",
                           detail::uninitialised};
  // And of large blocks (deferred_way.hpp, host/plan/deferred_rows.hpp):
  buffer<scalar> rows{total(table.deferred_x + table.deferred_delta, chunk), "a tape's rows", detail::uninitialised};
  buffer<scalar> deferred_weights{total(chunk_samples<Network>, table.deferred_count* max_sums), "a tape's weights",
                                  detail::uninitialised};

  // And of logits that are formed where they are read (streamed_logits.hpp):
  buffer<streamed_position<scalar>> positions{total(streamed_positions, threads), "a tape's positions"};
  buffer<double> position_squares{total(dots_stride == 0 ? 0 : streamed_positions, threads), "a tape's positions"};
  buffer<double> position_dots{total(dots_stride, threads), "a tape's dots of positions", detail::uninitialised};
  buffer<scalar> at_ids{total(dots_stride == 0 ? 0 : streamed_positions * table.lookups, threads), "a tape's lookups",
                        detail::uninitialised};
  buffer<scalar> stretches{total(stretch_stride, threads), "a tape's stretches of logits", detail::uninitialised};

  /// Weights of one sum and of one table, or one deferred block, one a sample of the chunk.
  [[nodiscard]] scalar* weights_of_table(std::size_t sum, std::size_t number) noexcept {
    return table_weights.data() + static_cast<index>(sum * table.sparse_count + number) * chunk_samples<Network>;
  }
  [[nodiscard]] scalar* weights_of_deferred(std::size_t sum, std::size_t number) noexcept {
    return deferred_weights.data() + static_cast<index>(sum * table.deferred_count + number) * chunk_samples<Network>;
  }
  /// Bytes that a thread writes of all samples that it works on at a time.
  static constexpr std::size_t bytes_at_work =
      sizeof(scalar) * static_cast<std::size_t>(round_up(table.touched) + stretch_stride +
                                                (dots_stride == 0 ? 0 : streamed_positions * table.lookups)) +
      sizeof(double) * static_cast<std::size_t>(dots_stride == 0 ? 0 : dots_stride + streamed_positions) +
      sizeof(streamed_position<scalar>) * static_cast<std::size_t>(streamed_positions);
  /// Bytes reserved. Those for gradients that the plan never forms are reserved but not touched, so they cost no
  /// memory; logits that are never all there are not counted.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return bytes_at_work * threads +
           sizeof(scalar) * (kept.size() + rooms.size() + panels.size() + accumulators.size() + direction.size() +
                             scalars.size() + table_weights.size() + rows.size() + deferred_weights.size()) +
           sizeof(double) * additions.size() + sizeof(std::int32_t) * (finders.size() + integers.size()) +
           sizeof(norm_bound) * parts.size();
  }

  /// Where a chunk's samples leave what deferred sums are formed from.
  [[nodiscard]] deferred_rows<scalar> deferred() noexcept {
    return {rows.data(), rows.data() + chunk * table.deferred_x, chunk, table.deferred_delta, 0};
  }
  /// A thread's room for weighted deltas of a stretch of outputs.
  [[nodiscard]] scalar* weighted_room(std::size_t thread) noexcept {
    const auto number = static_cast<index>(thread);
    return weighted_in_workspace ? workspaces.data() + number * workspace_stride : rooms.data() + number * room_stride;
  }

 private:
  [[nodiscard]] static std::size_t total(index each, auto count) {
    return static_cast<std::size_t>(each) * static_cast<std::size_t>(count);
  }
};

}  // namespace pergrad::inline v0_1::on_host
