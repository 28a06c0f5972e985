// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/deferred_way.hpp - sums of large blocks, formed from what a chunk of samples leaves on the tape
//
// Of a block with one position, G_b = delta_b (x) x_b. A sample leaves x in PyTorch's order and delta, of all
// such blocks (deferred_rows.hpp). After a chunk the sum over its samples is one product, (diag(w) Delta)^T X, that is
// written straight into the result, in parallel over stretches of outputs. Each element is one chain of multiply-adds
// over the chunk's samples in their order, so its bits do not depend on the number of threads (book-keeping, Bu et al.
// 2022, arXiv:2210.00038). A clipped sum is formed in parts of few samples, which are then added up: its way of
// additions is to be short (tape.hpp).
//
// w delta is rounded once, as everywhere (privacy/clip.hpp). A sample of weight 0 is a row of zeros, x included where
// it is not finite: nothing is multiplied by 0 that could give anything else.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/kernels.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/deferred_rows.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/outer_way.hpp>
#include <pergrad/host/run/tile_state.hpp>
#include <pergrad/host/run/working_memory.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// The sum over one chunk of one block.
template <class Scalar>
struct deferred_sum {
  const outer_leaf& leaf;
  const deferred_rows<Scalar>& rows;
  index samples;          ///< of the chunk
  index part;             ///< samples that are summed up in one product
  const Scalar* weights;  ///< of the samples; null: all are 1
  Scalar scale;
  bool onto;     ///< add to what is there
  Scalar* out;   ///< of the block
  Scalar* room;  ///< for weighted deltas of a stretch of outputs

  [[nodiscard]] Scalar weight(index b) const noexcept { return weights == nullptr ? Scalar{1} : weights[b]; }

  /// Outputs [first, first + count).
  void form(index first, index count) const noexcept {
    for (index b = 0; b < samples; ++b) {
      const Scalar* delta = rows.delta(leaf.row_delta, b) + first;
      Scalar* to = room + b * deferred_stretch;
      if (weight(b) == 0) {
        std::fill_n(to, count, Scalar{0});
        continue;
      }
      const Scalar factor = scale * weight(b);  // of a clipped sum the weight itself: its scale is 1
      for_each_vector<Scalar>(
          count, [&](index n, const auto& lanes) { lanes.store(to + n, splat(factor) * lanes.load(delta + n)); });
    }
    const index width = leaf.view_width();
    for (index k = 0; k < width; k += rows.panel()) {
      const index columns = rows.columns(width, k);
      const Scalar* const x = rows.x(leaf.row_x, width, k, 0);
      Scalar* const to = out + first * width + k;
      if (samples > part) {
        for (index c = 0; c < columns; c += panel_block) {
          add_parts(count, std::min(panel_block, columns - c), x + c, rows.x_step(width, k), to + c);
        }
        continue;
      }
      product_shape shape = shape_of(count, columns, samples, rows.x_step(width, k), width);
      if (k + rows.panel() < width) shape.next_right = rows.x(leaf.row_x, width, k + rows.panel(), 0) - x;
      write_product<Scalar>(shape, room, x, to, nullptr, onto);
    }
  }

  /// The same for sum_b w_b G_b², element by element.
  void form_squares(index first, index count) const noexcept {
    const index width = leaf.view_width();
    for (index n = first; n < first + count; ++n) {
      Scalar* to = out + n * width;
      if (!onto) std::fill_n(to, width, Scalar{0});
      for (index b = 0; b < samples; ++b) {
        if (weight(b) == 0) continue;
        const vector<Scalar> delta = splat(*rows.delta(leaf.row_delta + n, b));
        const vector<Scalar> factor = splat(scale * weight(b));
        for (index k = 0; k < width; k += rows.panel()) {
          const Scalar* x = rows.x(leaf.row_x, width, k, b);
          for_each_vector<Scalar>(rows.columns(width, k), [&](index i, const auto& lanes) {
            const vector<Scalar> value = delta * lanes.load(x + i);
            lanes.store(to + k + i, multiply_add(factor, value * value, lanes.load(to + k + i)));
          });
        }
      }
    }
  }
  /// Outputs [first, first + count) of sum_b round(w_b G_b / g), each sample's share rounded by itself.
  void add_rounded(index first, index count, double steps, std::int64_t* to) const noexcept {
    const index width = leaf.view_width();
    for (index n = first; n < first + count; ++n) {
      for (index k = 0; k < width; k += rows.panel()) {
        for (index b = 0; b < samples; ++b) {
          if (weight(b) == 0) continue;
          const Scalar factor = weight(b) * *rows.delta(leaf.row_delta + n, b);
          add_rounded_to(to + n * width + k, static_cast<double>(factor) * steps,
                         static_cast<const Scalar*>(rows.x(leaf.row_x, width, k, b)), rows.columns(width, k));
        }
      }
    }
  }

 private:
  [[nodiscard]] static product_shape shape_of(index count, index columns, index terms, index x_step, index to_step) {
    return {{{}, {}, {count, 1, to_step}}, {{}, {}, {terms, deferred_stretch, x_step}}, columns};
  }
  /// A few columns, the samples in parts.
  void add_parts(index count, index columns, const Scalar* x, index x_step, Scalar* to) const noexcept {
    alignas(64) Scalar sums[deferred_stretch * panel_block];
    for (index b = 0; b < samples; b += part) {
      const product_shape shape = shape_of(count, columns, std::min(part, samples - b), x_step, panel_block);
      const Scalar* const deltas = room + b * deferred_stretch;
      write_product<Scalar>(shape, deltas, x + b * x_step, sums, nullptr, b > 0);
    }
    for (index n = 0; n < count; ++n) {
      copy_strided<Scalar>(sums + n * panel_block, 1, to + n * leaf.view_width(), 1, columns, onto);
    }
  }
};

/// Sets x to zero in the rows that a sum leaves out, where it is not finite: it will be multiplied by 0.
template <class Scalar>
inline void clear_left_out(const outer_leaf& leaf, const deferred_rows<Scalar>& rows, index samples,
                           const Scalar* weights) noexcept {
  const index width = leaf.view_width();
  for (index b = 0; b < samples; ++b) {
    if (weights[b] != 0) continue;
    for (index k = 0; k < width; k += rows.panel()) {
      Scalar* x = rows.x(leaf.row_x, width, k, b);
      if (!std::isfinite(squares(static_cast<const Scalar*>(x), rows.columns(width, k)))) {
        std::fill_n(x, rows.columns(width, k), Scalar{0});
      }
    }
  }
}

/// See worker.hpp.
template <class Network>
struct deferred_way {
  using scalar = typename Network::scalar;
  using state = tile_state<Network>;
  static constexpr const auto& table = program<Network>::table;
  static constexpr bool exists = table.deferred_count > 0;

  static void collect(state& tile, std::size_t node, index begin, index end) {
    for_each_leaf(node, [&](const outer_leaf& leaf) {
      keep_deltas(tile, leaf, begin, end);
      outer_way<Network>::collect_block(tile, leaf, begin, end);
    });
  }
  static void add_unit(state& tile, std::size_t node, index begin, index end, scalar* /*sums*/) {
    for_each_leaf(node, [&](const outer_leaf& leaf) { keep_deltas(tile, leaf, begin, end); });
  }
  static void add_weighted(state& tile, std::size_t sum, const typename state::weights& weights, index begin, index end,
                           scalar* /*to*/) {
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      const outer_leaf& leaf = table.outer[k];
      if (!leaf.deferred) continue;
      std::copy(weights.of(leaf.node) + begin, weights.of(leaf.node) + end,
                tile.tape.weights_of_deferred(sum, leaf.number) + tile.in_chunk + begin);
    }
  }
  /// Those of all outer products are written together.
  static void write_row(state& /*tile*/, index /*b*/, const typename state::weights& /*weights*/, scalar* /*row*/) {}

  /// Adds the rows of a chunk's samples to all sums.
  static void finish_chunk(const detail::thread_pool& pool, working_memory<Network>& tape,
                           const run_request<scalar>& request, index chunk_first, index samples) {
    constexpr auto stretches = [](const outer_leaf& leaf) {
      return leaf.deferred ? (leaf.outputs + stretch_of(leaf) - 1) / stretch_of(leaf) : 0;
    };
    constexpr index tasks = count_pieces(table.outer, table.outer_count, stretches);
    const deferred_rows<scalar> rows = tape.deferred();
    // Sums with weight 1 first: they want what others leave out.
    for (const bool unit : {true, false}) {
      for (std::size_t s = 0; s < request.sum_count; ++s) {
        const sum_request<scalar>& sum = request.sums[s];
        if (sum.is_plain != unit) continue;
        for (std::size_t k = 0; !unit && k != table.outer_count; ++k) {
          const outer_leaf& leaf = table.outer[k];
          if (!leaf.deferred) continue;
          clear_left_out<scalar>(leaf, rows, samples, tape.weights_of_deferred(s, leaf.number));
        }
        pool.parallel(static_cast<std::size_t>(tasks), [&](std::size_t task, std::size_t worker) {
          const auto [k, piece] = find_piece(table.outer, static_cast<index>(task), stretches);
          const outer_leaf& leaf = table.outer[k];
          const index first = piece * stretch_of(leaf);
          const index count = std::min(stretch_of(leaf), leaf.outputs - first);
          const deferred_sum<scalar> form{leaf,
                                          rows,
                                          samples,
                                          unit ? samples : part_samples<Network>(tape.max_batch),
                                          unit ? nullptr : tape.weights_of_deferred(s, leaf.number),
                                          static_cast<scalar>(sum.scale),
                                          sum.accumulate || chunk_first > 0,
                                          sum.out == nullptr ? nullptr : sum.out + leaf.parameters,
                                          tape.weighted_room(worker)};
          if (sum.integers != nullptr) {
            form.add_rounded(first, count, sum.steps(), sum.integers + leaf.parameters);
          } else if (sum.squares) {
            form.form_squares(first, count);
          } else {
            form.form(first, count);
          }
        });
      }
    }
  }

 private:
  static void for_each_leaf(std::size_t node, auto&& f) {
    if (!table.nodes[node].deferred) return;
    const auto [first, last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t k = first; k < last; ++k) f(table.outer[k]);
  }
  /// Puts the deltas of a block into their samples' rows: the forward pass has left x there.
  static void keep_deltas(state& tile, const outer_leaf& leaf, index begin, index end) noexcept {
    const leaf_kernel<scalar> kernel{leaf, tile.workspace};
    for (index b = begin; b < end; ++b) {
      std::copy_n(kernel.delta(b, 0), leaf.outputs, tile.tape.deferred().delta(leaf.row_delta, tile.in_chunk + b));
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host
