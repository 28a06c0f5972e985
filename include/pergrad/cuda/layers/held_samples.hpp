// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/layers/held_samples.hpp - small convolutional networks: a block takes a sample forward and back, its
// values and the weights of convolutions in shared memory
//
// One launch for what would be one a layer and direction. Norms and sums find in the sample's workspace what they read.
// Every number has the bits that the launches layer by layer give it: a result is one chain of fma over the depth in
// the same order (kernels/gemm.hpp), from the same start.
//
// A product reads its operand where it lies, or, where windows reach beyond it, in a copy with zeros around it. Where
// results, terms and weights lie, tables say (cuda/plan/held_plan.hpp), so that a term costs no arithmetic but its
// address. Fully connected layers use a weight once a sample: theirs pass by, in tiles of which the next is read
// while one is multiplied.
#pragma once

#include <cstddef>
#include <type_traits>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/functions.hpp>
#include <pergrad/cuda/kernels/pointwise.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/samples.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// Copies one number to shared memory; it is there once finish_copies() returns to the thread that asked for it, and
/// for all others behind a barrier. No register waits for it.
template <class Scalar>
PERGRAD_HD inline void begin_copy(Scalar* to, const Scalar* from) noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(__cvta_generic_to_global(from)),
                 "n"(sizeof(Scalar))
               : "memory");
#else
  *to = *from;
#endif
}
PERGRAD_HD inline void finish_copies() noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// What held_sample_kernel is told besides what a sample kernel is.
struct held_memory {
  const held_product* products = nullptr;  ///< of each node forward and back
  int weights = 0;                         ///< scalars of shared memory for weights
  int copies = 0;                          ///< and for an operand's copy, or tiles
};

/// Forward, loss and, if wanted, the way back of one sample a block.
template <class Scalar, class Loss, class Functions>
struct held_sample_kernel : sample_work<Scalar, typename Loss::template target<Scalar>> {
  static constexpr int threads = 256;
  static constexpr int least_blocks = 2;
  using work_type = sample_work<Scalar, typename Loss::template target<Scalar>>;
  struct shared_type {
    alignas(4 * sizeof(Scalar)) Scalar first[4];
  };
  using work_type::samples, work_type::tables, work_type::parameters, work_type::format, work_type::results;

  held_memory memory;

  [[nodiscard]] std::size_t more_shared_bytes() const noexcept {
    return sizeof(Scalar) * static_cast<std::size_t>(input_at() + samples.input_size + memory.weights + memory.copies);
  }

  template <class Block>
  [[gnu::always_inline]] PERGRAD_HD void operator()(const Block& block) const {
    const int sample = block.index();
    if (static_cast<std::uint32_t>(sample) >= this->state->count) return;
    Scalar* const weights = block.template shared<shared_type>().first;
    Scalar* const copies = weights + memory.weights;
    Scalar* const workspace = copies + memory.copies;
    const sample_values<Scalar> stored = samples.values(sample);
    const sample_values<Scalar> values{workspace, workspace + input_at(), stored.integers, stored.length};
    const worker<Block> work{block, values, weights, copies, parameters, format};
    block.each([&](int t) {
      for (int i = t; i < samples.input_size; i += threads) begin_copy(workspace + input_at() + i, stored.input + i);
      for (int i = this->first; i < this->last; ++i) load_weights(memory.products[2 * i], weights, t);
      finish_copies();
    });
    const pointwise_worker<Block, Scalar> pointwise{block, values, tables.scalars};
    const int nodes = this->last - this->first;
    // One loop for both ways, so that each kind of product is there once: a block runs through this code once, and
    // waits until it is loaded.
    for (int number = 0; number < nodes + ((this->stages & stage::backward) != 0 ? nodes : 0); ++number) {
      const bool back = number >= nodes;
      const int i = this->first + (back ? 2 * nodes - 1 - number : number);
      const op_row& row = tables.ops[i];
      const bool is_there = row.out_size > 0 && row.taken_along == 0 && (!back || row.backward != 0);
      if (is_there && row.kind == node_kind::affine) {
        if (back) {  // what norms and sums read of it
          store(block, values, stored, row.in, row.in_size);
          store(block, values, stored, row.dy, row.out_size);
        }
        if (!back || row.input_gradient != 0) {
          work.multiply(memory.products[2 * i + (back ? 1 : 0)], values.at(back ? row.dy : row.in),
                        values.to(back ? row.dx : row.out), back || row.bias < 0 ? nullptr : parameters + row.bias,
                        back && row.accumulate != 0);
          if (back) round(block, values.to(row.dx), row.in_size);
        }
      } else if (is_there) {
        const joined_node joined = joined_to(i);
        if (!back) {
          pointwise.template forward<Functions, true>(row, joined);
        } else {
          pointwise.template backward<Functions, true>(row, joined, format);
          if (row.input_gradient != 0) round(block, values.to(joined.function < 0 ? row.dx : joined.dx), row.in_size);
          if (row.input2_gradient != 0) round(block, values.to(row.dx2), row.in2_size);
        }
      }
      if (back) continue;
      if (is_there && row.handed_on != 0) round(block, values.to(row.out), row.out_size);
      if (number + 1 < nodes) continue;
      block.once([&] {
        evaluate_loss<Loss>(*this, values, sample, values.at(this->output), values.to(this->output_gradient));
      });
      round(block, values.to(this->output_gradient), this->output_size);
      if (results.outputs != nullptr) {
        Scalar* const outputs = results.outputs + std::int64_t{sample} * this->output_size;
        for_each(block, this->output_size, [&](int k) { outputs[k] = values.at(this->output)[k]; });
      }
    }
  }

 private:
  /// Of the copy of the input, from the workspace on.
  [[nodiscard]] PERGRAD_HD int input_at() const noexcept { return (samples.workspace + 3) / 4 * 4; }
  /// The node that this one computes as well.
  [[nodiscard]] PERGRAD_HD joined_node joined_to(int i) const noexcept {
    const op_row* const before = tables.ops + i - 1;
    if (i == 0 || before->taken_along == 0) return {};
    return {before->function, before->in,         before->out,
            before->dx,       before->accumulate, before->handed_on != 0 ? format : stored_format::exact};
  }
  /// What thread t brings of a product's weights.
  PERGRAD_HD void load_weights(const held_product& of, Scalar* weights, int t) const {
    if (of.held < 0) return;
    const Scalar* const from = parameters + of.weights;
    const int count = of.all_outputs * of.width.value();
    for (int e = t; e < count; e += threads) {
      int row = e;
      const int k = of.width.divide(row);
      begin_copy(weights + of.held + row * of.held_step + k, from + e);
    }
    if (format == stored_format::exact) return;
    finish_copies();
    for (int e = t; e < count; e += threads) {
      int row = e;
      const int k = of.width.divide(row);
      Scalar& weight = weights[of.held + row * of.held_step + k];
      weight = stored_as(format, weight);
    }
  }
  template <class Block>
  PERGRAD_HD void round(const Block& block, Scalar* at, int count) const {
    if (format == stored_format::exact) return;
    for_each(block, count, [&](int i) { at[i] = stored_as(format, at[i]); });
  }
  template <class Block>
  PERGRAD_HD void store(const Block& block, const sample_values<Scalar>& values, const sample_values<Scalar>& to,
                        int place, int count) const {
    if (place < 0) return;
    Scalar* const at = to.to(place);
    for_each(block, count, [&](int i) { at[i] = values.at(place)[i]; });
  }

  /// A block at the products of its sample.
  template <class Block>
  struct worker {
    const Block& block;
    const sample_values<Scalar>& values;
    const Scalar* weights;  ///< shared memory begins there
    Scalar* copies;         ///< shared
    const Scalar* parameters;
    stored_format format;

    /// `bias`: where results begin, or, if `onto`, at what is there.
    PERGRAD_HD void multiply(const held_product& of, const Scalar* operand, Scalar* result, const Scalar* bias,
                             bool onto) const {
      if (of.held < 0) {
        of.back != 0 ? adjoint_of_matrix(of, operand, result, onto) : matrix(of, operand, result, bias, onto);
        return;
      }
      if (of.copies != 0) {
        for_each(block, of.channels * of.copy.value(), [&](int e) {
          int channel = e;
          const int from = values.integers[of.sources + of.copy.divide(channel)];
          copies[e] = from < 0 ? Scalar{0} : operand[channel * of.channel_step + from];
        });
        operand = copies;
      }
      const bool is_large = of.patch_columns(threads) == held_product::large;
      if (of.back != 0) {
        is_large ? in_patches<true, held_product::large>(of, operand, result, bias, onto)
                 : in_patches<true, held_product::small>(of, operand, result, bias, onto);
      } else {
        is_large ? in_patches<false, held_product::large>(of, operand, result, bias, onto)
                 : in_patches<false, held_product::small>(of, operand, result, bias, onto);
      }
    }

   private:
    static constexpr int side = held_product::side;

    /// A thread takes held_product::side rows of Columns results. Threads next to each other take columns next to each
    /// other: they read the same weights.
    template <bool Back, std::size_t Columns>
    PERGRAD_HD void in_patches(const held_product& of, const Scalar* operand, Scalar* result, const Scalar* bias,
                               bool onto) const {
      constexpr int columns = Columns;
      const int across = of.column_patches(columns);
      const int down = blocks_for(of.rows, side);
      for_each(block, of.groups * down * across, [&](int e) {
        int column = e % across;
        const int row = e / across % down * side;
        const int group = e / across / down;
        int kind = 0;
        while (column >= blocks_for(of.classes[kind].columns, columns)) {
          column -= blocks_for(of.classes[kind].columns, columns);
          ++kind;
        }
        const held_product::pixel_class& pixels = of.classes[kind];
        const int apart = blocks_for(pixels.columns, columns);
        int from[Columns];  // beyond the last row or column: the last one once more
        int with[side];
        Scalar* to[Columns];
        PERGRAD_UNROLL
        for (int j = 0; j < columns; ++j) {
          const int number = pixels.first_column + smaller_of(column + j * apart, pixels.columns - 1);
          from[j] = place_of(operand + group * of.operand_group + values.integers[of.bases + number]);
          to[j] = result + group * of.result_group + values.integers[of.results + number];
        }
        PERGRAD_UNROLL
        for (int i = 0; i < side; ++i) {
          with[i] =
              place_of(weights + of.held + group * of.weight_group + smaller_of(row + i, of.rows - 1) * of.weight_step);
        }
        Scalar totals[side][Columns];
        PERGRAD_UNROLL
        for (int i = 0; i < side; ++i) {
          const int r = smaller_of(row + i, of.rows - 1);
          PERGRAD_UNROLL
          for (int j = 0; j < columns; ++j) {
            totals[i][j] = onto ? to[j][r * of.result_step] : bias == nullptr ? Scalar{0} : bias[group * of.rows + r];
          }
        }
        add_terms<Back, Columns>(pixels.depth, values.integers + of.steps + pixels.first_step,
                                 values.integers + of.weight_steps + pixels.first_step, from, with, totals);
        PERGRAD_UNROLL
        for (int i = 0; i < side; ++i) {
          PERGRAD_UNROLL
          for (int j = 0; j < columns; ++j) {
            if (row + i < of.rows && column + j * apart < pixels.columns) {
              to[j][(row + i) * of.result_step] = totals[i][j];
            }
          }
        }
      });
    }
    /// Bytes from the beginning of shared memory, as one number: an address is one addition then.
    [[nodiscard]] PERGRAD_HD int place_of(const Scalar* value) const noexcept {
      int bytes = static_cast<int>((value - weights) * static_cast<std::ptrdiff_t>(sizeof(Scalar)));
#ifdef __CUDA_ARCH__
      asm("" : "+r"(bytes));
#endif
      return bytes;
    }
    [[nodiscard]] PERGRAD_HD const Scalar* at(int place) const noexcept {
      return reinterpret_cast<const Scalar*>(reinterpret_cast<const unsigned char*>(weights) + place);
    }
    /// totals[i][j] += sum_k with[i][w_k] from[j][s_k], in order. Forward w_k is k, and four of them are read at once.
    template <bool Back, std::size_t Columns>
    PERGRAD_HD void add_terms(int depth, const int* steps, const int* weight_steps, const int (&from)[Columns],
                              const int (&with)[side], Scalar (&totals)[side][Columns]) const {
      constexpr int columns = Columns;
      constexpr int together = 4;
      const auto add = [&](int step, auto&& weight) {
        Scalar terms[Columns];
        PERGRAD_UNROLL
        for (int j = 0; j < columns; ++j) terms[j] = *at(from[j] + step);
        PERGRAD_UNROLL
        for (int i = 0; i < side; ++i) {
          const Scalar factor = weight(i);
          PERGRAD_UNROLL
          for (int j = 0; j < columns; ++j) totals[i][j] = fma(factor, terms[j], totals[i][j]);
        }
      };
      int k = 0;
      auto next = read_group<together>(steps);
      PERGRAD_ROLLED
      for (; k + together <= depth; k += together) {
        const auto four = next;
        next = read_group<together>(steps + k + together);  // beyond the last one lies something
        if constexpr (Back) {
          const auto places = read_group<together>(weight_steps + k);
          PERGRAD_UNROLL
          for (int s = 0; s < together; ++s) add(four.v[s], [&](int i) { return *at(with[i] + places.v[s]); });
        } else {
          element_group<Scalar, together> factors[side];
          PERGRAD_UNROLL
          for (int i = 0; i < side; ++i) factors[i] = read_group<together>(at(with[i]) + k);
          PERGRAD_UNROLL
          for (int s = 0; s < together; ++s) add(four.v[s], [&](int i) { return factors[i].v[s]; });
        }
      }
      PERGRAD_ROLLED
      for (; k < depth; ++k) {
        add(steps[k], [&](int i) { return Back ? *at(with[i] + weight_steps[k]) : at(with[i])[k]; });
      }
    }

    /// result[row] = start + sum_k W[row, k] operand[k]: a thread a row, tile by tile of the weights.
    PERGRAD_HD void matrix(const held_product& of, const Scalar* operand, Scalar* result, const Scalar* bias,
                           bool onto) const {
      using fetched = registers<Scalar, held_product::tile_of_thread>;
      const int width = of.width.value();
      const int deep = of.tile.value();
      const int step = held_product::padded(deep);
      const Scalar* const matrix = parameters + of.weights;
      for (int first = 0; first < of.rows; first += held_product::rows_of_tile) {
        const int rows = smaller_of(of.rows - first, held_product::rows_of_tile);
        typename Block::template local<Scalar> totals;
        typename Block::template local<fetched> next;
        const auto each_of_tile = [&](int t, auto&& f) {  // f(number, row, k)
          PERGRAD_UNROLL
          for (int i = 0; i < held_product::tile_of_thread; ++i) {
            int row = t + i * threads;
            const int k = of.tile.divide(row);
            if (row < rows) f(i, row, k);
          }
        };
        const auto fetch = [&](int t, int begin) {
          each_of_tile(t, [&](int i, int row, int k) {
            if (begin + k < width) next[t][i] = matrix[(first + row) * width + begin + k];
          });
        };
        const auto put = [&](int t, Scalar* tile) {
          each_of_tile(t, [&](int i, int row, int k) { tile[row * step + k] = stored_as(format, next[t][i]); });
        };
        block.each([&](int t) {
          fetch(t, 0);
          put(t, copies);
          if (t < rows) {
            totals[t] = onto ? result[first + t] : bias == nullptr ? Scalar{0} : bias[first + t];
          }
        });
        Scalar* tile = copies;
        Scalar* other = copies + held_product::tile_room;
        for (int begin = 0; begin < width; begin += deep) {
          const int count = smaller_of(deep, width - begin);
          block.overlap(
              [&](int t) {
                if (begin + deep < width) fetch(t, begin + deep);
                if (t >= rows) return;
                constexpr int together = 4;
                const Scalar* const factors = tile + t * step;
                Scalar total = totals[t];
                int k = 0;
                for (; k + together <= count; k += together) {
                  const auto four = read_group<together>(factors + k);
                  const auto terms = read_group<together>(operand + begin + k);
                  PERGRAD_UNROLL
                  for (int s = 0; s < together; ++s) total = fma(four.v[s], terms.v[s], total);
                }
                PERGRAD_ROLLED
                for (; k < count; ++k) total = fma(factors[k], operand[begin + k], total);
                totals[t] = total;
              },
              [] {},
              [&](int t) {
                if (begin + deep < width) put(t, other);
              });
          Scalar* const same = tile;
          tile = other;
          other = same;
        }
        block.each([&](int t) {
          if (t < rows) result[first + t] = totals[t];
        });
      }
    }
    /// result[k] = start + sum_row W[row, k] operand[row]: each weight is read once, next to its neighbours.
    PERGRAD_HD void adjoint_of_matrix(const held_product& of, const Scalar* operand, Scalar* result, bool onto) const {
      constexpr int together = 8;
      const int width = of.width.value();
      const int depth = of.all_outputs;
      const bool rounds = format != stored_format::exact;
      const Scalar* const matrix = parameters + of.weights;
      for_each(block, width, [&](int k) {
        Scalar total = onto ? result[k] : Scalar{0};
        int row = 0;
        PERGRAD_ROLLED
        for (; row + together <= depth; row += together) {
          Scalar factors[together];
          PERGRAD_UNROLL
          for (int i = 0; i < together; ++i) factors[i] = matrix[(row + i) * width + k];
          if (rounds) {
            PERGRAD_UNROLL
            for (int i = 0; i < together; ++i) factors[i] = stored_as(format, factors[i]);
          }
          PERGRAD_UNROLL
          for (int i = 0; i < together; ++i) total = fma(factors[i], operand[row + i], total);
        }
        PERGRAD_ROLLED
        for (; row < depth; ++row) total = fma(stored_as(format, matrix[row * width + k]), operand[row], total);
        result[k] = total;
      });
    }
  };
};

}  // namespace pergrad::inline v0_1::on_device
