// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/streamed_logits.hpp - logits y = W h that are never all there: they are formed a stretch of classes
// at a time, wherever they are read, and so is their gradient
//
//   loss          every stretch of y, of which a position keeps the largest logit and the sum of exponentials
//   h's gradient  every stretch of y again, made dL/dy in place, times W; at the same time <delta_t, delta_s>, which is
//                 all that the norm of W's gradient needs, and delta at the ids that look rows of W up (uses.hpp)
//   W's sum       every stretch again, and its rows of the gradient at once
//
// That is two products of W with all positions more than where logits are kept, and no 2 x positions x vocabulary
// numbers a sample. A stretch has the same bits every time, so what is summed is what the norm was found of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <pergrad/concepts.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/affine.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/tile_state.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// For a network whose table says `streams`, and a tile whose source says what the loss is of a stretch.
template <class Network>
struct streamed_logits {
  using scalar = typename Network::scalar;
  using state = tile_state<Network>;
  using memory = working_memory<Network>;
  static constexpr const auto& table = program<Network>::table;
  static constexpr auto positions = static_cast<index>(Network::output_shape.e0);
  static constexpr std::size_t node = program<Network>::size - 1;
  static constexpr auto classes = static_cast<index>(table.nodes[node].map.out_channels);
  static constexpr auto inputs = static_cast<index>(table.nodes[node].map.in_channels);

  /// The losses of samples begin .. end - 1.
  static void evaluate(state& tile, index begin, index end) {
    const sample_source<scalar>& source = *tile.streamed;
    for (index b = begin; b < end; ++b) std::ranges::fill(positions_of(tile, b), streamed_position<scalar>{});
    for_each_stretch([&](index first, index count) {
      scalar* const y = form(tile, begin, end - begin, first, count, tile.thread);
      for (index b = begin; b < end; ++b) {
        source.streamed->see(source.context, number(tile, b), positions_of(tile, b),
                             y + (b - begin) * positions * count, first, count, there(tile, b));
      }
    });
    for (index b = begin; b < end; ++b) {
      tile.losses[static_cast<std::size_t>(b)] =
          source.streamed->finish(source.context, number(tile, b), positions_of(tile, b), there(tile, b));
    }
  }

  /// The gradients of h, and of a trained W what its norm asks for.
  static void backward(state& tile, index begin, index end) {
    const bool wants_norm = row().parameter_count > 0 && tile.norms_wanted && tile.facts_wanted;
    if (wants_norm) {
      std::fill(dots_of(tile, begin), dots_of(tile, end), 0.0);
      std::fill(squares_of(tile, begin), squares_of(tile, end), 0.0);
    }
    const slot& in = table.slots[row().in];
    const images<scalar> dx{in.gradient_layout, tile.workspace + in.gradient.offset + begin * in.gradient.sample,
                            in.gradient.sample};
    for_each_stretch([&](index first, index count) {
      scalar* const delta = form(tile, begin, end - begin, first, count, tile.thread);
      for (index b = begin; b < end; ++b) {
        scalar* const here = delta + (b - begin) * positions * count;
        differentiate(tile, b, here, first, count);
        if (wants_norm) collect(tile, b, here, first, count);
      }
      if (!row().input_gradient) return;
      const layout of = lay_out_stretch(count);
      through_pixels(map_of(count), weights(tile) + first * inputs, end - begin,
                     images<const scalar>{of, delta, positions * count}, dx, nullptr, true,
                     row().accumulate || first > 0);
    });
  }

  [[nodiscard]] static streamed_deltas<scalar> deltas_of(const state& tile) {
    return {dots_of(tile, 0), squares_of(tile, 0), at_ids_of(tile, 0), table.lookups};
  }

  /// A stretch of a sample's dL/dy, [position][class], in the space of thread `thread`.
  [[nodiscard]] static const scalar* form_gradient(const state& tile, index b, index first, index count,
                                                   std::size_t thread) {
    scalar* const delta = form(tile, b, 1, first, count, thread);
    differentiate(tile, b, delta, first, count);
    return delta;
  }

 private:
  /// The projection's. A function: nvcc 13 takes a reference for initialised twice.
  [[nodiscard]] static constexpr const node_row& row() { return table.nodes[node]; }
  static void for_each_stretch(auto&& f) {
    for (index first = 0; first < classes; first += table.classes_together) {
      f(first, std::min(table.classes_together, classes - first));
    }
  }
  [[nodiscard]] static scalar* form(const state& tile, index begin, index samples, index first, index count,
                                    std::size_t thread) {
    const slot& in = table.slots[row().in];
    const layout of = lay_out_stretch(count);
    scalar* const y = tile.tape.stretches.data() + static_cast<index>(thread) * memory::stretch_stride;
    through_pixels(map_of(count), weights(tile) + first * inputs, samples,
                   images<const scalar>{in.value_layout, tile.workspace + in.value.offset + begin * in.value.sample,
                                        in.value.sample},
                   images<scalar>{of, y, positions * count}, nullptr, false, false);
    return y;
  }
  static void differentiate(const state& tile, index b, scalar* y, index first, index count) {
    const sample_source<scalar>& source = *tile.streamed;
    source.streamed->differentiate(source.context, number(tile, b), positions_of(tile, b), y, first, count);
  }
  /// Adds what a stretch of delta has to say of a norm.
  static void collect(const state& tile, index b, const scalar* delta, index first, index count) {
    constexpr index side = 64;
    double* const dots = dots_of(tile, b);
    for (index t = 0; t < positions; t += side) {
      for (index s = 0; s <= t; s += side) {
        add_dots(std::min(side, positions - t), std::min(side, positions - s), count, count, delta + t * count,
                 delta + s * count, dots + t * positions + s, positions);
      }
    }
    for (index t = 0; t < positions; ++t) squares_of(tile, b)[t] += squares(delta + t * count, count);
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      const outer_leaf& use = table.outer[k];
      if (!use.by_ids || use.parameters != row().parameters) continue;
      const auto* const ids = static_cast<const std::int32_t*>(
          static_cast<const void*>(tile.workspace + use.delta.offset + b * use.delta.sample));
      for (index i = 0; i < use.positions(); ++i) {
        const index column = ids[i] - first;
        if (column < 0 || column >= count) continue;
        scalar* const to = at_ids_of(tile, b) + (use.lookups + i) * positions;
        for (index s = 0; s < positions; ++s) to[s] = delta[s * count + column];
      }
    }
  }

  /// The projection, of so many classes.
  [[nodiscard]] static affine_map map_of(index count) {
    affine_map map = row().map;
    map.out_channels = static_cast<std::size_t>(count);
    return map;
  }
  [[nodiscard]] static layout lay_out_stretch(index count) {
    arrangement values = table.slots[row().out].value_layout.values;
    values.channels = count;
    return lay_out(values, {});
  }
  [[nodiscard]] static const scalar* weights(const state& tile) {
    return tile.network.parameters().data() + row().parameters;
  }
  /// Of the batch.
  [[nodiscard]] static std::size_t number(const state& tile, index b) {
    return tile.first + static_cast<std::size_t>(b);
  }
  [[nodiscard]] static index there(const state& tile, index b) {
    return tile.pass.positions_there(program<Network>::size, b);
  }
  [[nodiscard]] static std::span<streamed_position<scalar>> positions_of(const state& tile, index b) {
    return {tile.tape.positions.data() + static_cast<index>(tile.thread) * memory::streamed_positions + b * positions,
            static_cast<std::size_t>(positions)};
  }
  [[nodiscard]] static double* dots_of(const state& tile, index b) {
    return tile.tape.position_dots.data() + static_cast<index>(tile.thread) * memory::dots_stride +
           b * positions * positions;
  }
  [[nodiscard]] static double* squares_of(const state& tile, index b) {
    return tile.tape.position_squares.data() + static_cast<index>(tile.thread) * memory::streamed_positions +
           b * positions;
  }
  [[nodiscard]] static scalar* at_ids_of(const state& tile, index b) {
    return tile.tape.at_ids.data() +
           (static_cast<index>(tile.thread) * memory::streamed_positions + b * positions) * table.lookups;
  }
};

}  // namespace pergrad::inline v0_1::on_host
