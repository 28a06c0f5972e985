// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/layers/held_samples.hpp - small networks: a block takes a sample, or a few, forward and back, with their
// values and the weights of convolutions in shared memory
//
// One launch for what would be one a layer and direction. Norms and sums find in the samples' workspaces what they
// read. Every number has the bits that the launches layer by layer give it: a result is one chain of fma over the depth
// in the same order (kernels/gemm.hpp), from the same start.
//
// A convolution reads its operand where it lies, or, where windows reach beyond it, in a copy with zeros around it.
// Where results, terms and weights lie, tables say (cuda/plan/held_plan.hpp), so that a term costs no arithmetic but
// its address. A fully connected layer uses a weight once a sample: weights pass by in tiles, of which two are on their
// way while one is multiplied, and serve all of a block's samples.
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

/// Copies a few numbers to shared memory, from a place that is a multiple of so many. They are there once the thread
/// that asked has waited for them, and for all others behind a barrier. No register waits for them.
template <int Count = 1, class Scalar>
PERGRAD_HD inline void begin_copy(Scalar* to, const Scalar* from) noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(__cvta_generic_to_global(from)),
                 "n"(Count * sizeof(Scalar))
               : "memory");
#else
  PERGRAD_UNROLL
  for (int i = 0; i < Count; ++i) to[i] = from[i];
#endif
}
/// Ends a group of copies; waits for all groups but the last `Left`.
PERGRAD_HD inline void end_group_of_copies() noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int Left = 0>
PERGRAD_HD inline void wait_for_copies() noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(Left) : "memory");
#endif
}

/// What held_sample_kernel is told besides what a sample kernel is.
struct held_memory {
  const held_product* products = nullptr;  ///< of each node forward and back
  // Scalars of shared memory:
  int weights = 0;
  int copies = 0;  ///< for an operand's copy, or for tiles
  int tile = 0;    ///< for one of three
};

/// A block at the products of its samples.
template <class Block, class Scalar, int Samples>
struct held_worker {
  static constexpr int threads = held_product::threads;
  static constexpr int side = held_product::patch_rows;

  const Block& block;
  const Scalar* weights;  ///< shared memory begins there
  Scalar* copies;         ///< shared
  int tile;
  const Scalar* parameters;
  const int* integers;
  int stretch;
  int count;
  stored_format format;

  /// `bias`: where results begin, or, if `onto`, at what is there.
  PERGRAD_HD void multiply(const held_product& of, const Scalar* operand, Scalar* result, const Scalar* bias,
                           bool onto) const {
    if (of.held < 0) {
      return stream(of, operand, result, bias, onto);
    }
    if constexpr (Samples == 1) convolve(of, operand, result, bias, onto);
  }

 private:
  PERGRAD_HD void convolve(const held_product& of, const Scalar* operand, Scalar* result, const Scalar* bias,
                           bool onto) const {
    if (of.copies != 0) {
      for_each(block, of.channels * of.copy.value(), [&](int e) {
        int channel = e;
        const int from = integers[of.sources + of.copy.divide(channel)];
        copies[e] = from < 0 ? Scalar{0} : operand[channel * of.channel_step + from];
      });
      operand = copies;
    }
    of.back != 0 ? in_patches<true>(of, operand, result, bias, onto)
                 : in_patches<false>(of, operand, result, bias, onto);
  }

  /// A thread takes a patch of results. Threads next to each other take columns next to each
  /// other: they read the same weights.
  template <bool Back>
  PERGRAD_HD void in_patches(const held_product& of, const Scalar* operand, Scalar* result, const Scalar* bias,
                             bool onto) const {
    constexpr std::size_t width = held_product::patch_columns(Back);
    constexpr int columns = width;
    const int across = of.column_patches();
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
      int from[width];  // beyond the last row or column: the last one once more
      int with[side];
      Scalar* to[width];
      PERGRAD_UNROLL
      for (int j = 0; j < columns; ++j) {
        const int number = pixels.first_column + smaller_of(column + j * apart, pixels.columns - 1);
        from[j] = place_of(operand + group * of.operand_group + integers[of.bases + number]);
        to[j] = result + group * of.result_group + integers[of.results + number];
      }
      PERGRAD_UNROLL
      for (int i = 0; i < side; ++i) {
        with[i] =
            place_of(weights + of.held + group * of.weight_group + smaller_of(row + i, of.rows - 1) * of.weight_step);
      }
      Scalar totals[side][width];
      PERGRAD_UNROLL
      for (int i = 0; i < side; ++i) {
        const int r = smaller_of(row + i, of.rows - 1);
        PERGRAD_UNROLL
        for (int j = 0; j < columns; ++j) {
          const bool reads =
              onto && row + i < of.rows && column + j * apart < pixels.columns;  // else another writes it
          totals[i][j] = reads ? to[j][r * of.result_step] : bias == nullptr ? Scalar{0} : bias[group * of.rows + r];
        }
      }
      add_terms<Back, width>(pixels.depth, integers + of.steps + pixels.first_step,
                             integers + of.weight_steps + pixels.first_step, from, with, totals);
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
  /// Of a fully connected layer: forward results are rows of the weights, back columns. A thread takes one result of
  /// every sample, tile by tile of the depth.
  PERGRAD_HD void stream(const held_product& of, const Scalar* operand, Scalar* result, const Scalar* bias,
                         bool onto) const {
    const int depth = of.depth();
    const int tiles = blocks_for(depth, of.depth_of_tile);
    for (int first = 0; first < of.rows; first += of.rows_of_tile) {
      const int rows = smaller_of(of.rows - first, of.rows_of_tile);
      typename Block::template local<registers<Scalar, Samples>> totals;
      // Two rounds before the first, in which two tiles are asked for and nothing is there to multiply.
      for (int number = -2; number < tiles; ++number) {
        block.each([&](int t) {
          begin_tile(of, t, first, number + 2);
          if (number == -2 && t < rows) {
            PERGRAD_UNROLL
            for (int b = 0; b < Samples; ++b) {
              totals[t][b] = onto              ? result[smaller_of(b, count - 1) * stretch + first + t]
                             : bias == nullptr ? Scalar{0}
                                               : bias[first + t];
            }
          }
          if (number >= 0 && t < rows) {
            const int begin = number * of.depth_of_tile;
            add_tile(of, t, smaller_of(depth - begin, of.depth_of_tile), copies + number % 3 * tile, operand + begin,
                     totals[t]);
          }
          wait_for_copies<1>();
          if (format != stored_format::exact && number >= -1) round_tile(of, t, number + 1);
        });
      }
      block.each([&](int t) {
        if (t >= rows) return;
        PERGRAD_UNROLL
        for (int b = 0; b < Samples; ++b) {
          if (b < count) result[b * stretch + first + t] = totals[t][b];
        }
      });
    }
  }
  /// f(place in the tile, output, input) for the pieces of a tile that thread t brings; both from the tile's first on.
  template <class Function>
  PERGRAD_HD void each_of_tile(const held_product& of, int t, Function&& f) const {
    const int outputs = of.back != 0 ? of.depth_of_tile : of.rows_of_tile;
    for (int e = t; e < outputs * of.pieces.value(); e += threads) {
      int output = e;
      const int input = of.pieces.divide(output) * of.together;
      f(output * of.step_of_tile + input, output, input);
    }
  }
  /// A group of copies, which may be empty.
  PERGRAD_HD void begin_tile(const held_product& of, int t, int first, int number) const {
    const int begin = number * of.depth_of_tile;
    const int first_output = of.back != 0 ? begin : first;
    const int first_input = of.back != 0 ? first : begin;
    const int width = of.width.value();
    Scalar* const to = copies + number % 3 * tile;
    const Scalar* const from = parameters + of.weights;
    each_of_tile(of, t, [&](int place, int output, int input) {
      output += first_output;
      input += first_input;
      if (output >= of.all_outputs || input >= width) return;
      constexpr int several = 16 / sizeof(Scalar);
      const Scalar* const at = from + output * width + input;
      of.together == several ? begin_copy<several>(to + place, at) : begin_copy(to + place, at);
    });
    end_group_of_copies();
  }
  PERGRAD_HD void round_tile(const held_product& of, int t, int number) const {
    each_of_tile(of, t, [&](int place, int /*output*/, int /*input*/) {
      for (int i = 0; i < of.together; ++i) {
        Scalar& weight = copies[number % 3 * tile + place + i];
        weight = stored_as(format, weight);
      }
    });
  }
  PERGRAD_HD void add_tile(const held_product& of, int t, int depth, const Scalar* tile_here, const Scalar* operand,
                           registers<Scalar, Samples>& totals) const {
    const int step = of.step_of_tile;
    const Scalar* terms[static_cast<std::size_t>(Samples)];
    PERGRAD_UNROLL
    for (int b = 0; b < Samples; ++b) terms[b] = operand + smaller_of(b, count - 1) * stretch;
    // Four neighbours of a thread's row forward; numbers next to other threads' back.
    const auto add = [&](const Scalar* factors, int apart, auto&& read_four) {
      constexpr int together = 4;
      int k = 0;
      PERGRAD_IN_PAIRS
      for (; k + together <= depth; k += together) {
        const element_group<Scalar, together> four = read_four(factors + k * apart);
        PERGRAD_UNROLL
        for (int b = 0; b < Samples; ++b) {
          const auto with = read_group<together>(terms[b] + k);
          PERGRAD_UNROLL
          for (int i = 0; i < together; ++i) totals[b] = fma(four.v[i], with.v[i], totals[b]);
        }
      }
      PERGRAD_ROLLED
      for (; k < depth; ++k) {
        PERGRAD_UNROLL
        for (int b = 0; b < Samples; ++b) totals[b] = fma(factors[k * apart], terms[b][k], totals[b]);
      }
    };
    if (of.back == 0) return add(tile_here + t * step, 1, [](const Scalar* at) { return read_group<4>(at); });
    add(tile_here + t, step, [&](const Scalar* at) {
      return element_group<Scalar, 4>{{at[0], at[step], at[2 * step], at[3 * step]}};
    });
  }
};

/// Forward, loss and, if wanted, the way back of `Samples` samples a block. Of more than one there are no convolutions.
template <class Scalar, class Loss, class Functions, int Samples>
struct held_sample_kernel : sample_work<Scalar, typename Loss::template target<Scalar>> {
  static constexpr int threads = held_product::threads;
  static constexpr int least_blocks = 2;
  using work_type = sample_work<Scalar, typename Loss::template target<Scalar>>;
  struct shared_type {
    alignas(4 * sizeof(Scalar)) Scalar first[4];
  };
  using work_type::samples, work_type::tables, work_type::parameters, work_type::format, work_type::results;

  held_memory memory;

  [[nodiscard]] std::size_t more_shared_bytes() const noexcept {
    return sizeof(Scalar) * static_cast<std::size_t>(memory.weights + memory.copies + Samples * stretch());
  }

  template <class Block>
  [[gnu::always_inline]] PERGRAD_HD void operator()(const Block& block) const {
    const int first_sample = block.index() * Samples;
    const int count = smaller_of(Samples, static_cast<int>(this->state->count) - first_sample);
    if (count <= 0) return;
    Scalar* const weights = block.template shared<shared_type>().first;
    Scalar* const copies = weights + memory.weights;
    Scalar* const held = copies + memory.copies;
    const auto values_of = [&](int b) {
      Scalar* const workspace = held + b * stretch();
      return sample_values<Scalar>{workspace, workspace + input_at(), tables.integers};
    };
    const auto each_sample = [&](auto&& f) {
      for (int b = 0; b < count; ++b) f(b, values_of(b));
    };
    block.each([&](int t) {
      each_sample([&](int b, const sample_values<Scalar>& values) {
        const Scalar* const input = samples.values(first_sample + b).input;
        Scalar* const to = values.workspace + input_at();
        for (int i = t; i < samples.input_size; i += threads) begin_copy(to + i, input + i);
      });
      for (int i = this->first; i < this->last; ++i) load_weights(memory.products[2 * i], weights, t);
      end_group_of_copies();
      wait_for_copies();
      if (format != stored_format::exact) round_weights(weights, t);
    });
    const int nodes = this->last - this->first;
    // One loop for both ways, so that each kind of product is there once: a block runs through this code once, and
    // waits until it is loaded.
    for (int number = 0; number < nodes + ((this->stages & stage::backward) != 0 ? nodes : 0); ++number) {
      const bool back = number >= nodes;
      const int i = this->first + (back ? 2 * nodes - 1 - number : number);
      const op_row& row = tables.ops[i];
      const bool is_there = row.out_size > 0 && row.taken_along == 0 && (!back || row.backward != 0);
      const bool is_product = is_there && row.kind == node_kind::affine;
      if (is_product && back) {  // what norms and sums read of it
        each_sample([&](int b, const sample_values<Scalar>& values) {
          store(block, values, samples.values(first_sample + b), row.in, row.in_size);
          store(block, values, samples.values(first_sample + b), row.dy, row.out_size);
        });
      }
      if (is_product && (!back || row.input_gradient != 0)) {
        const sample_values<Scalar> values = values_of(0);
        const held_worker<Block, Scalar, Samples> worker{block,           weights,   copies, memory.tile, parameters,
                                                         tables.integers, stretch(), count,  format};
        worker.multiply(memory.products[2 * i + (back ? 1 : 0)], values.at(back ? row.dy : row.in),
                        values.to(back ? row.dx : row.out), back || row.bias < 0 ? nullptr : parameters + row.bias,
                        back && row.accumulate != 0);
      }
      each_sample([&](int /*b*/, const sample_values<Scalar>& values) {
        const joined_node joined = joined_to(i);
        const pointwise_worker<Block, Scalar> pointwise{block, values, tables.scalars};
        if (!back) {
          if (is_there && !is_product) pointwise.template forward<Functions, true>(row, joined);
          if (is_there && row.handed_on != 0) round(block, values.to(row.out), row.out_size);
        } else if (is_there) {
          if (!is_product) pointwise.template backward<Functions, true>(row, joined, format);
          if (row.input_gradient != 0) round(block, values.to(joined.function < 0 ? row.dx : joined.dx), row.in_size);
          if (!is_product && row.input2_gradient != 0) round(block, values.to(row.dx2), row.in2_size);
        }
      });
      if (number + 1 != nodes) continue;
      block.each([&](int t) {
        if (t >= count) return;
        const sample_values<Scalar> values = values_of(t);
        evaluate_loss<Loss>(*this, values, first_sample + t, values.at(this->output), values.to(this->output_gradient));
      });
      each_sample([&](int b, const sample_values<Scalar>& values) {
        round(block, values.to(this->output_gradient), this->output_size);
        if (results.outputs == nullptr) return;
        Scalar* const outputs = results.outputs + std::int64_t{first_sample + b} * this->output_size;
        for_each(block, this->output_size, [&](int k) { outputs[k] = values.at(this->output)[k]; });
      });
    }
  }

 private:
  /// Of the copy of the input, from the workspace on.
  [[nodiscard]] PERGRAD_HD int input_at() const noexcept { return (samples.workspace + 3) / 4 * 4; }
  /// From sample to sample.
  [[nodiscard]] PERGRAD_HD int stretch() const noexcept { return input_at() + (samples.input_size + 3) / 4 * 4; }
  /// The node that this one computes as well.
  [[nodiscard]] PERGRAD_HD joined_node joined_to(int i) const noexcept {
    const op_row* const before = tables.ops + i - 1;
    if (i == 0 || before->taken_along == 0) return {};
    return {before->function, before->in,         before->out,
            before->dx,       before->accumulate, before->handed_on != 0 ? format : stored_format::exact};
  }
  /// f(weight in shared memory, its number) of those of a convolution that thread t brings.
  template <class Function>
  PERGRAD_HD void each_weight(const held_product& of, Scalar* weights, int t, Function&& f) const {
    if (of.held < 0) return;
    const int count = of.all_outputs * of.width.value();
    for (int e = t; e < count; e += threads) {
      int row = e;
      const int k = of.width.divide(row);
      f(weights[of.held + row * of.held_step + k], e);
    }
  }
  PERGRAD_HD void load_weights(const held_product& of, Scalar* weights, int t) const {
    each_weight(of, weights, t, [&](Scalar& to, int e) { begin_copy(&to, parameters + of.weights + e); });
  }
  PERGRAD_HD void round_weights(Scalar* weights, int t) const {
    for (int i = this->first; i < this->last; ++i) {
      each_weight(memory.products[2 * i], weights, t, [&](Scalar& to, int /*e*/) { to = stored_as(format, to); });
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
};

}  // namespace pergrad::inline v0_1::on_device
