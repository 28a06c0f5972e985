// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/deferred.hpp - sums of large blocks, formed from what a chunk of samples leaves on the tape
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
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/deferred_rows.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/working_memory.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// Puts the deltas of a node's blocks into their samples' rows, from `first` of the chunk on, for samples [begin, end)
/// of a tile: the forward pass has left x there.
template <class Network>
void keep_deltas(working_memory<Network>& tape, const typename Network::scalar* workspace, std::size_t node,
                 index first, index begin, index end) noexcept {
  constexpr const auto& table = program<Network>::table;
  if constexpr (table.deferred_count > 0) {
    if (!table.nodes[node].deferred) return;
    const auto [outer_first, outer_last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t k = outer_first; k < outer_last; ++k) {
      const outer_leaf& leaf = table.outer[k];
      const leaf_kernel<typename Network::scalar> kernel{leaf, workspace};
      for (index b = begin; b < end; ++b) {
        std::copy_n(kernel.delta(b, 0), leaf.outputs, tape_access::rows(tape).delta(leaf.row_delta, first + b));
      }
    }
  }
}
/// Where the weights of one sum and one block lie, one a sample of the chunk. `number` counts deferred blocks.
template <class Network>
[[nodiscard]] auto* deferred_weights(working_memory<Network>& tape, std::size_t sum, std::size_t number) noexcept {
  return tape_access::row_weights(tape) +
         static_cast<index>(sum * program<Network>::table.deferred_count + number) * chunk_samples<Network>;
}

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
      if (onto) {
        product(shape, static_cast<const Scalar*>(room), x, to, epilogue::add{});
      } else {
        product(shape, static_cast<const Scalar*>(room), x, to, epilogue::store{});
      }
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
            lanes.store(to + k + i, lanes.load(to + k + i) + factor * (value * value));
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
      if (b == 0) {
        product(shape, deltas, x, sums, epilogue::store{});
      } else {
        product(shape, deltas, x + b * x_step, sums, epilogue::add{});
      }
    }
    for (index n = 0; n < count; ++n) {
      const Scalar* const from = sums + n * panel_block;
      if (onto) {
        add_to(to + n * leaf.view_width(), from, columns);
      } else {
        std::copy_n(from, columns, to + n * leaf.view_width());
      }
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

/// Adds the rows of a chunk's samples to all sums.
template <class Network>
void sum_deferred(const detail::thread_pool& pool, working_memory<Network>& tape,
                  const run_request<typename Network::scalar>& request, index chunk_first, index samples) {
  using scalar = typename Network::scalar;
  constexpr const auto& table = program<Network>::table;
  constexpr auto stretches = [](const outer_leaf& leaf) {
    return leaf.deferred ? (leaf.outputs + stretch_of(leaf) - 1) / stretch_of(leaf) : 0;
  };
  constexpr index tasks = [stretches] {
    index count = 0;
    for (std::size_t k = 0; k != table.outer_count; ++k) count += stretches(table.outer[k]);
    return count;
  }();
  const deferred_rows<scalar> rows = tape_access::rows(tape);
  // Sums with weight 1 first: they want what others leave out.
  for (const bool unit : {true, false}) {
    for (std::size_t s = 0; s < request.sum_count; ++s) {
      const sum_request<scalar>& sum = request.sums[s];
      if (sum.is_plain != unit) continue;
      for (std::size_t k = 0; !unit && k != table.outer_count; ++k) {
        const outer_leaf& leaf = table.outer[k];
        if (!leaf.deferred) continue;
        clear_left_out(leaf, rows, samples, static_cast<const scalar*>(deferred_weights(tape, s, leaf.number)));
      }
      pool.parallel(static_cast<std::size_t>(tasks), [&](std::size_t task_number, std::size_t worker) {
        auto task = static_cast<index>(task_number);
        std::size_t k = 0;
        for (; task >= stretches(table.outer[k]); ++k) task -= stretches(table.outer[k]);
        const outer_leaf& leaf = table.outer[k];
        const index first = task * stretch_of(leaf);
        const index count = std::min(stretch_of(leaf), leaf.outputs - first);
        const deferred_sum<scalar> form{leaf,
                                        rows,
                                        samples,
                                        unit ? samples : part_samples<Network>(tape.capacity()),
                                        unit ? nullptr : deferred_weights(tape, s, leaf.number),
                                        static_cast<scalar>(sum.scale),
                                        sum.accumulate || chunk_first > 0,
                                        sum.out == nullptr ? nullptr : sum.out + leaf.parameters,
                                        tape_access::weighted_room(tape, worker)};
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

}  // namespace pergrad::inline v0_1::on_host
