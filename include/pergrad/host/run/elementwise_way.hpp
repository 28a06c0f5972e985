// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/elementwise_way.hpp - elementwise blocks: each sample's gradient is kept and added with its weight
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/tile_state.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// Calls f(the first delta of a position) for a leaf's positions in their order.
template <class Scalar, class Function>
inline void for_each_delta(const elementwise_leaf& leaf, const Scalar* delta, Function&& f) noexcept {
  for (index plane = 0; plane < leaf.step_plane.extent; ++plane) {
    for (index i = 0; i < leaf.step[0].extent; ++i) {
      const Scalar* line_of_deltas = delta + plane * leaf.step_plane.delta + i * leaf.step[0].delta;
      for (index j = 0; j < leaf.step[1].extent; ++j) f(line_of_deltas + j * leaf.step[1].delta);
    }
  }
}

/// The sum of deltas over all positions. Sums stay in registers: through memory each addition would wait for the one
/// before (docs/internals/tricks.md). Four vectors of them, as one alone would wait as well.
template <class Scalar>
[[gnu::noinline]] void sum_deltas(const elementwise_leaf& leaf, const Scalar* delta, Scalar* out, bool onto) noexcept {
  constexpr auto width = static_cast<index>(vector_lanes<Scalar>);
  const vector<Scalar> zero = splat(Scalar{0});
  index first = 0;
  for (; first + 4 * width <= leaf.count; first += 4 * width) {
    Scalar* to = out + first;
    vector<Scalar> a = onto ? load(to) : zero;
    vector<Scalar> b = onto ? load(to + width) : zero;
    vector<Scalar> c = onto ? load(to + 2 * width) : zero;
    vector<Scalar> d = onto ? load(to + 3 * width) : zero;
    for_each_delta(leaf, delta + first, [&](const Scalar* here) {
      a += load(here);
      b += load(here + width);
      c += load(here + 2 * width);
      d += load(here + 3 * width);
    });
    store(to, a);
    store(to + width, b);
    store(to + 2 * width, c);
    store(to + 3 * width, d);
  }
  for_each_vector<Scalar>(leaf.count - first, [&](index n, const auto& lanes) {
    vector<Scalar> sum = onto ? lanes.load(out + first + n) : zero;
    for_each_delta(leaf, delta + first + n, [&](const Scalar* here) { sum += lanes.load(here); });
    lanes.store(out + first + n, sum);
  });
}

/// g_b of an elementwise leaf into `out`, or added to it; returns the squared norm of what is there then.
template <class Scalar>
inline double instantiate(const elementwise_leaf& leaf, const Scalar* workspace, index sample, Scalar* out,
                          bool onto = false) noexcept {
  const Scalar* delta = workspace + leaf.delta.offset + sample * leaf.delta.sample;
  const Scalar* other = workspace + leaf.other.offset + sample * leaf.other.sample;
  if (leaf.ones && leaf.delta_stride == 1) {
    sum_deltas(leaf, delta, out, onto);
    return squares(static_cast<const Scalar*>(out), leaf.count);
  }
  if (!onto) std::fill_n(out, leaf.count, Scalar{0});
  for (index plane = 0; plane < leaf.step_plane.extent; ++plane) {
    const Scalar* delta_plane = delta + plane * leaf.step_plane.delta;
    const Scalar* other_plane = other + plane * leaf.step_plane.x;
    for (index i = 0; i < leaf.step[0].extent; ++i) {
      for (index j = 0; j < leaf.step[1].extent; ++j) {
        const Scalar* delta_here = delta_plane + i * leaf.step[0].delta + j * leaf.step[1].delta;
        const Scalar* other_here = other_plane + i * leaf.step[0].x + j * leaf.step[1].x;
        if (!leaf.ones && leaf.delta_stride == 1 && leaf.other_stride == 1) {
          for_each_vector<Scalar>(leaf.count, [&](index n, const auto& lanes) {
            lanes.store(out + n,
                        multiply_add(lanes.load(delta_here + n), lanes.load(other_here + n), lanes.load(out + n)));
          });
          continue;
        }
        for (index n = 0; n < leaf.count; ++n) {
          const Scalar value = delta_here[n * leaf.delta_stride];
          out[n] = leaf.ones ? out[n] + value : multiply_add(value, other_here[n * leaf.other_stride], out[n]);
        }
      }
    }
  }
  return squares(static_cast<const Scalar*>(out), leaf.count);
}

/// See worker.hpp.
template <class Network>
struct elementwise_way {
  using scalar = typename Network::scalar;
  using state = tile_state<Network>;
  static constexpr const auto& table = program<Network>::table;
  static constexpr bool exists = table.elementwise_count > 0;
  static constexpr bool keeps = true;  ///< also where nobody asks for norms, if sums are shared

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
    for (std::size_t s = 0; s < tile.request.sum_count; ++s, sums += table.accumulator_size) {
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

  [[nodiscard]] static constexpr index pieces(std::size_t block) { return block == 0 ? 1 : 0; }
  static void add_piece(const state& tile, std::size_t sum, std::size_t /*block*/, index /*piece*/,
                        std::size_t /*thread*/) {
    for (std::size_t k = 0; k != table.elementwise_count; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      for (index b = 0; leaf.use.first && b < tile.samples; ++b) {
        tile.add_to_shared(sum, leaf, b, tile.gradient(b, leaf), 0, leaf.count);
      }
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
