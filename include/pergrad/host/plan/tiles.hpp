// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/tiles.hpp - how many samples go through a network together
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/graph/layout.hpp>

namespace pergrad::inline v0_1::on_host {

// What these limits gain: docs/internals/tricks.md.

/// The most samples of a tile; twice as many where they are columns of a product (deferred_way.hpp) and stay in the
/// cache.
inline constexpr index most_samples = 16;
/// What a tile may take of a core's L2 cache.
inline constexpr index tile_bytes = index{1} << 20;
/// Two samples go together even where they are this much. They share what is read of the weights, and layers with few
/// positions have rows enough to work with.
inline constexpr index bytes_for_two = index{6} << 20;
/// What a tile may take of the memory where it reads weights that no cache holds.
inline constexpr index wide_tile_bytes = index{64} << 20;

/// Sets the tile of a program's tables: as many samples as stay in the cache, but no fewer than a layer wants together.
///
/// Two samples of a large network whose sums are shared go together, as products of both copy each block of the weights
/// once; where a sample has fewer values than two thirds of the parameters, before they share places by lifetime.
///
/// Each tile reads all weights of the deferred layers. So from the first of them on more samples go together than stay
/// in the cache; the layers before it take them in parts that do.
template <class Tables>
constexpr void choose_tiles(Tables& t, std::size_t scalar_bytes, index parameters) {
  const auto bytes = [&](index samples, index elements) {
    return samples * elements * static_cast<index>(scalar_bytes);
  };
  t.tile = most_samples;
  while (t.tile > 1 && bytes(t.tile, t.sample_size + t.kept_size) > tile_bytes) t.tile /= 2;
  if (t.tile == 1 && bytes(2, t.sample_size + t.kept_size) <= bytes_for_two) t.tile = 2;
  if (t.tile == 1 && t.shares_sums && 3 * t.sample_size <= 2 * parameters) t.tile = 2;
  t.tile = std::max(t.least_tile, t.tile);
  t.cache_tile = t.tile;
  if (t.deferred_count == 0) return;
  while (!t.nodes[t.split].deferred) ++t.split;
  while (t.tile < most_samples && bytes(2 * t.tile, t.sample_size) <= wide_tile_bytes) t.tile *= 2;
  // Forward takes the samples as columns, and one vector of them leaves multiply-adds waiting for loads.
  if (t.tile == most_samples && bytes(2 * t.tile, t.sample_size) <= tile_bytes) t.tile *= 2;
}

}  // namespace pergrad::inline v0_1::on_host
