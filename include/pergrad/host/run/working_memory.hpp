// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/working_memory.hpp - every byte that evaluating a network's per-sample gradients needs on the host,
// and how a batch is cut so that it is enough
//
// A clipped sum is separable over samples, so a batch is cut into tiles that stay in a core's cache: there is one
// workspace a thread, a few sums a thread and the packed weights. Nothing in it grows with the batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/sparse.hpp>
#include <pergrad/host/plan/deferred_rows.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/run/lane_ring.hpp>
#include <pergrad/privacy/clip.hpp>

namespace pergrad::inline v0_1::on_host {

template <class Network>
struct worker;
template <class Network>
struct chunk_segments;
struct tape_access;

/// Each stretch of the batch is summed, sample after sample, into an accumulator of its own, and these are added up in
/// order. Their number depends on the network alone, so that results do not depend on the number of threads.
template <class Network>
inline constexpr index lane_count = [] {
  constexpr index bytes =
      std::max<index>(1, program<Network>::table.lane_size) * static_cast<index>(sizeof(typename Network::scalar));
  return std::clamp<index>((index{64} << 20) / bytes, 2, 16);
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
[[nodiscard]] constexpr index lanes_for(index tiles) noexcept {
  constexpr const auto& table = program<Network>::table;
  constexpr index bytes = table.lane_size * static_cast<index>(sizeof(typename Network::scalar));
  constexpr index lane_cost = (bytes <= (index{1} << 20) ? 8 : 64) * table.lane_size;
  constexpr index tile_cost = [] {
    index sum = 1;
    for (std::size_t k = 0; k != table.outer_count; ++k) sum += table.outer[k].size() * table.outer[k].positions();
    return 3 * table.tile * sum;  // forward, input gradient and weight gradient
  }();
  constexpr index tiles_a_lane = std::max<index>(1, 16 * lane_cost / tile_cost);
  constexpr index few = 4;  // never so few that a small machine idles
  return std::clamp<index>(tiles / tiles_a_lane, std::min(few, lane_count<Network>), lane_count<Network>);
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
  while (samples > 128 && 2 * samples * rows > 3 * (table.native_size - table.lane_size) && table.deferred_count > 0) {
    samples /= 2;
  }
  return std::max<index>(1, samples / table.tile) * table.tile;
}();

/// Samples that a clipped sum adds up before their sum is added to that of others: parts are added up in a chunk, and
/// chunks in the sum. Three short ways instead of a long one, as each addition rounds (privacy/release.hpp).
template <class Network>
[[nodiscard]] constexpr index part_samples(std::size_t capacity) noexcept {
  return std::min(static_cast<index>(capacity), chunk_samples<Network>) < 256 ? 16 : 32;
}
/// Accumulators of a clipped sum's chunk: of no more samples than a part or a tile.
template <class Network>
[[nodiscard]] constexpr index bounded_lanes_for(index tiles, index tile, std::size_t capacity) noexcept {
  const index tiles_of_part = std::max<index>(1, part_samples<Network>(capacity) / tile);
  return std::min(tiles, std::max(lanes_for<Network>(tiles), (tiles + tiles_of_part - 1) / tiles_of_part));
}
/// How a clipped sum is added up that comes in evaluations of up to so many samples: in parts, those of an accumulator
/// and those of a deferred sum, and by chunks. The longest way of them all, whatever tile a strategy takes.
template <class Network>
[[nodiscard]] constexpr detail::addition_way way_of_additions(std::size_t capacity) noexcept {
  const auto most = static_cast<index>(capacity);
  const index part = part_samples<Network>(capacity);
  index inside = 0;
  for (index samples = 1; samples <= std::min(most, chunk_samples<Network>); ++samples) {
    if (program<Network>::table.deferred_count > 0) inside = std::max(inside, part + (samples + part - 1) / part);
    for (index tile = 1; tile <= program<Network>::table.tile; tile *= 2) {
      const index tiles = (samples + tile - 1) / tile;
      const index lanes = bounded_lanes_for<Network>(tiles, tile, capacity);
      inside = std::max(inside, (tiles + lanes - 1) / lanes * tile + lanes);
    }
  }
  return {static_cast<std::size_t>(inside),
          static_cast<std::size_t>((most + chunk_samples<Network> - 1) / chunk_samples<Network>)};
}

/// Sums that fit without thought; a large network has room for one unless more are asked for.
template <class Network>
inline constexpr std::size_t usual_sums = lane_count<Network>* program<Network>::table.lane_size* static_cast<index>(
                                              sizeof(typename Network::scalar)) <= (index{64} << 20)
                                              ? 2
                                              : 1;

/// What a tape is on the host.
template <class Network>
class working_memory {
 public:
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;

  /// Reserves everything. Throws std::runtime_error if there is no memory.
  [[gnu::noinline]] working_memory(std::size_t threads, std::size_t max_batch, std::size_t max_sums)
      : max_batch_{max_batch}, max_sums_{max_sums}, workers_{threads} {
    const auto total = [](index each, std::size_t count) { return static_cast<std::size_t>(each) * count; };
    workspaces_ = {total(workspace_stride, workers_), "a tape's workspaces"};
    kept_ = {total(kept_stride, workers_), "a tape's per-sample gradients", detail::uninitialised};
    rooms_ = {total(room_stride, workers_), "a tape's room for a gradient", detail::uninitialised};
    parts_ = {total(parts_stride, workers_), "a tape's norms"};
    panels_ = {total(program::table.panel_size + line, 1), "a tape's packed weights"};
    const auto buffers = static_cast<std::size_t>(lane_buffers(lane_count<Network>, workers_));
    lanes_ = {total(program::table.lane_size, buffers * max_sums), "a tape's sums", detail::uninitialised,
              static_cast<std::size_t>(program::table.lane_size)};
    if constexpr (program::table.sparse_count > 0) {
      const auto chunk = std::min(max_batch, static_cast<std::size_t>(chunk_samples<Network>));
      finders_ = {total(finder_stride, workers_), "a tape's hash tables"};
      integers_ = {total(program::table.sparse_integers, chunk), "a tape's segments", detail::uninitialised};
      scalars_ = {total(program::table.sparse_scalars, chunk), "a tape's segments", detail::uninitialised};
      weights_ = {total(chunk_samples<Network>, program::table.sparse_count * max_sums), "a tape's weights"};
      additions_ = {total(program::table.sparse_size, max_sums), "a tape's sums over tables", detail::uninitialised};
    }
    if constexpr (program::table.deferred_count > 0) {
      const auto chunk = std::min(max_batch, static_cast<std::size_t>(chunk_samples<Network>));
      row_capacity_ = static_cast<index>(chunk);
      rows_ = {total(table.deferred_x + table.deferred_delta, chunk), "a tape's rows", detail::uninitialised};
      row_weights_ = {total(chunk_samples<Network>, program::table.deferred_count * max_sums), "a tape's weights",
                      detail::uninitialised};
    }
    direction_ = {total(program::table.native_size, 1), "a tape's direction", detail::uninitialised};
  }

  /// The largest batch of one evaluation.
  [[nodiscard]] std::size_t capacity() const noexcept { return max_batch_; }
  /// Sums that one evaluation may form.
  [[nodiscard]] std::size_t sum_capacity() const noexcept { return max_sums_; }
  /// Bytes reserved. Those for gradients that the plan never forms are reserved but not touched, so they cost no
  /// memory.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return sizeof(scalar) *
               (workspaces_.size() + kept_.size() + rooms_.size() + panels_.size() + lanes_.size() + direction_.size() +
                scalars_.size() + weights_.size() + rows_.size() + row_weights_.size()) +
           sizeof(double) * additions_.size() + sizeof(std::int32_t) * (finders_.size() + integers_.size()) +
           sizeof(norm_bound) * parts_.size();
  }

  /// Threads that there are workspaces for.
  [[nodiscard]] std::size_t worker_count() const noexcept { return workers_; }

 private:
  friend struct tape_access;
  friend struct worker<Network>;
  friend struct chunk_segments<Network>;
  static constexpr const auto& table = program::table;
  static constexpr index workspace_stride = round_up(table.workspace);
  static constexpr index kept_stride = std::max(table.cache_tile * table.native_size, table.tile* table.lane_size);
  /// Between chunks, buffers for the time of one call are free: weighted deltas of a stretch of outputs lie there, if
  /// they fit.
  static constexpr index weighted_deltas = table.deferred_count > 0 ? chunk_samples<Network>* deferred_stretch : 0;
  static constexpr bool weighted_in_workspace =
      weighted_deltas <= table.winograd.sample + table.tile * table.scratch.sample;
  /// For the time of one leaf: a sample's gradient, or the scaled deltas of a tile.
  static constexpr index room_stride = std::max(std::max(round_up(table.tile * table.scaled_size), table.lane_size),
                                                weighted_in_workspace ? index{0} : weighted_deltas);
  static constexpr index finder_stride = segment_finder::size(table.sparse_positions, table.sparse_slots);
  static constexpr index parts_stride =
      round_up(table.tile * static_cast<index>(std::max<std::size_t>(1, table.layer_groups)));

  std::size_t max_batch_;
  std::size_t max_sums_;
  std::size_t workers_;
  detail::aligned_buffer<scalar> workspaces_;
  detail::aligned_buffer<scalar> kept_;
  detail::aligned_buffer<scalar> rooms_;
  detail::aligned_buffer<norm_bound> parts_;
  detail::aligned_buffer<scalar> panels_;
  detail::aligned_buffer<scalar> lanes_;
  detail::aligned_buffer<scalar> direction_;
  // Of networks with tables of which a sample uses few rows:
  detail::aligned_buffer<std::int32_t> finders_;
  detail::aligned_buffer<std::int32_t> integers_;
  detail::aligned_buffer<scalar> scalars_;
  detail::aligned_buffer<scalar> weights_;    ///< [sum][table][sample of the chunk]
  detail::aligned_buffer<double> additions_;  ///< sums over tables that go where they belong once they are whole
  // Of networks with large blocks whose sums are formed a chunk at a time:
  detail::aligned_buffer<scalar> rows_;         ///< see host/plan/deferred_rows.hpp
  index row_capacity_ = 0;                      ///< samples that have room there
  detail::aligned_buffer<scalar> row_weights_;  ///< [sum][block][sample of the chunk]
};

/// The engine's way to a tape's memory.
struct tape_access {
  // clang-format off
  [[nodiscard]] static auto* workspace(auto& tape) noexcept { return tape.workspaces_.data(); }
  [[nodiscard]] static auto* kept(auto& tape) noexcept { return tape.kept_.data(); }
  [[nodiscard]] static auto* room(auto& tape) noexcept { return tape.rooms_.data(); }
  [[nodiscard]] static auto* parts(auto& tape) noexcept { return tape.parts_.data(); }
  [[nodiscard]] static auto* panels(auto& tape) noexcept { return tape.panels_.data(); }
  [[nodiscard]] static auto* lanes(auto& tape) noexcept { return tape.lanes_.data(); }
  [[nodiscard]] static auto* direction(auto& tape) noexcept { return tape.direction_.data(); }
  [[nodiscard]] static auto* finder(auto& tape) noexcept { return tape.finders_.data(); }
  [[nodiscard]] static auto* integers(auto& tape) noexcept { return tape.integers_.data(); }
  [[nodiscard]] static auto* scalars(auto& tape) noexcept { return tape.scalars_.data(); }
  [[nodiscard]] static auto* weights(auto& tape) noexcept { return tape.weights_.data(); }
  [[nodiscard]] static auto* additions(auto& tape) noexcept { return tape.additions_.data(); }
  /// Where a chunk's samples leave what deferred sums are formed from.
  [[nodiscard]] static auto rows(auto& tape) noexcept {
    const index samples = tape.row_capacity_;
    auto* const first = tape.rows_.data();
    return deferred_rows<std::remove_pointer_t<decltype(first)>>{first, first + samples * tape.table.deferred_x, samples,
                                                                 tape.table.deferred_delta, 0};
  }
  [[nodiscard]] static auto* row_weights(auto& tape) noexcept { return tape.row_weights_.data(); }
  /// A thread's space for weighted deltas of a stretch of outputs.
  [[nodiscard]] static auto* weighted_room(auto& tape, std::size_t worker) noexcept {
    const auto number = static_cast<index>(worker);
    return tape.weighted_in_workspace ? tape.workspaces_.data() + number * tape.workspace_stride
                                      : tape.rooms_.data() + number * tape.room_stride;
  }
  // clang-format on
};

}  // namespace pergrad::inline v0_1::on_host
