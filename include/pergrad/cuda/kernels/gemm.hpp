// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/gemm.hpp - the matrix products of affine layers: one blocked kernel, operands that are views
//
//   forward     y_b[o, t]  = bias[o] + sum_k W[o, k] view_t(x_b)[k]
//   adjoint     x_b[c, i]  = bias[c] + sum_(o,tap) W[o, c, tap] y_b[o, t]     t: its view has pixel i at that tap
//   sums        sum[o, k] += sum_b (w_b delta_b[o]) view(x_b)[k]               b: an accumulator's, in order
//   partials    p_bc[o, k] = sum_t delta_b[o, t] view_t(x_b)[k]                t: chunk c of the positions, in order
//   squares     n_b        = sum_(o,k) (sum_t delta_b[o, t] view_t(x_b)[k])²
//
// No operand is copied out first (implicit im2col). A block owns Rows x Columns results, a thread OwnRows x OwnColumns
// of them in registers; slices of Depth go through shared memory twice buffered, so a slice costs one barrier and is
// read from memory while the one before is multiplied. Each result is one chain of fma over the depth in ascending
// order, from what is there before: neither block sizes nor the cut of a logical batch into physical ones changes a
// bit. Where TF32 is allowed tensor cores add eight terms at a time, in that order too, as a function of the result's
// own row and column: the same holds as far as their hardware does not care where in a block a result lies.
//
// An element of an operand lies where a *line*, of its row or column, and a *step*, of its place in the depth, say. All
// divisions are in these: a thread finds its lines once, and one thread of a block finds a step, two slices ahead of
// its use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// Where an element lies among the quads of a slice.
struct slice_place {
  int quad;
  int number;
};

/// How results are cut. `threads` = (Rows / OwnRows) (Columns / OwnColumns). A thread's first result is at
/// (row_of(t), column_of(t)) of the block, its others own_row(i) and own_column(j) behind it.
template <int Rows, int Columns, int Depth, int OwnRows, int OwnColumns>
struct gemm_block {
  static constexpr bool on_tensor_cores = false;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  static constexpr int depth = Depth;
  static constexpr int own_rows = OwnRows;
  static constexpr int own_columns = OwnColumns;
  static constexpr int across = Columns / OwnColumns;
  static constexpr int threads = Rows / OwnRows * across;
  static_assert(OwnRows % 4 == 0 && OwnColumns % 4 == 0 && Rows % OwnRows == 0 && Columns % OwnColumns == 0);
  static_assert(Rows * Depth % threads == 0 && Columns * Depth % threads == 0);

  // A thread's rows are own_rows / 4 quads, as far apart as all threads' quads take; columns likewise.
  PERGRAD_HD static constexpr int row_of(int t) noexcept { return 4 * (t / across); }
  PERGRAD_HD static constexpr int column_of(int t) noexcept { return 4 * (t % across); }
  PERGRAD_HD static constexpr int own_row(int i) noexcept { return i / 4 * 4 * (Rows / OwnRows) + i % 4; }
  PERGRAD_HD static constexpr int own_column(int j) noexcept { return j / 4 * 4 * across + j % 4; }
  // Where a slice has an element: neighbours are a quad, and lines meet other banks.
  static constexpr int together = 4;
  static constexpr int left_quads = Depth * (Rows / 4 + 1);
  static constexpr int right_quads = Depth * (Columns / 4 + 1);
  PERGRAD_HD static constexpr slice_place left_at(int k, int row) noexcept {
    return {k * (Rows / 4 + 1) + row / 4, row % 4};
  }
  PERGRAD_HD static constexpr slice_place right_at(int k, int column) noexcept {
    return {k * (Columns / 4 + 1) + column / 4, column % 4};
  }
};
using narrow_block = gemm_block<32, 128, 8, 4, 8>;  ///< of few rows: 128 threads
using square_block = gemm_block<64, 64, 16, 4, 4>;  ///< 256 threads
using large_block = gemm_block<128, 128, 8, 8, 8>;  ///< 256 threads

/// The same on tensor cores (device/tensor.hpp): warps of 16 RowPairs x 32 results.
template <int Rows, int Columns, int RowPairs>
struct tensor_block {
  static constexpr bool on_tensor_cores = true;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  static constexpr int depth = 8;
  static constexpr int row_pairs = RowPairs;
  static constexpr int own_rows = 2 * RowPairs;
  static constexpr int own_columns = 8;
  static constexpr int warps_across = Columns / 32;
  static constexpr int threads = Rows / (16 * RowPairs) * warps_across * warp_size;
  static_assert(Rows % (16 * RowPairs) == 0 && Columns % 32 == 0);

  // What fragments call rows g and g + 8, and columns g of two products, are neighbours.
  PERGRAD_HD static constexpr int row_of(int t) noexcept {
    return t / warp_size / warps_across * 16 * RowPairs + t % warp_size / 4 * 2;
  }
  PERGRAD_HD static constexpr int first_column(int t) noexcept { return t / warp_size % warps_across * 32; }
  PERGRAD_HD static constexpr int column_of(int t) noexcept { return first_column(t) + t % 4 * 4; }
  PERGRAD_HD static constexpr int own_row(int i) noexcept { return i / 2 * 16 + i % 2; }
  PERGRAD_HD static constexpr int own_column(int j) noexcept { return j / 4 * 16 + j % 4; }
  // Two neighbours at depths k and k + 4 are a quad, in the order of a thread's registers. Lines of them begin in other
  // banks: eight threads that read quads, two of each of four lines, meet in none, nor do threads that write neighbours
  // of the depth.
  static constexpr int together = 2;
  static constexpr int left_quads = 4 * (Rows / 2 + 2);
  static constexpr int right_quads = 4 * (Columns / 2 + 2);
  PERGRAD_HD static constexpr slice_place left_at(int k, int row) noexcept {
    return {k % 4 * (Rows / 2 + 2) + row / 2, k / 4 * 2 + row % 2};
  }
  PERGRAD_HD static constexpr slice_place right_at(int k, int column) noexcept {
    return {k % 4 * (Columns / 2 + 2) + column / 2, column % 2 * 2 + k / 4};
  }
};
/// The blocks of the same results.
using narrow_tensor_block = tensor_block<32, 128, 2>;  ///< 128 threads
using square_tensor_block = tensor_block<64, 64, 2>;   ///< 128 threads
using large_tensor_block = tensor_block<128, 128, 4>;  ///< 256 threads
using wide_tensor_block = tensor_block<64, 128, 4>;    ///< of many columns: 128 threads
using vast_tensor_block = tensor_block<128, 256, 8>;   ///< and many rows: 256 threads

template <class Scalar>
struct alignas(4 * sizeof(Scalar)) quad {
  Scalar v[4];
};

/// The product of `Problem`, which says `rows`, `columns` and `depth` of batch z, its operands `left(z)` and
/// `right(z)`, of what type sums are, where chains begin and what becomes of results: `before` and `store` get a row
/// and what `column_of(results(z), column)` finds out once for all of a column's. blocks() of them.
///
/// An operand says `line_at(row or column)`, also beyond the last one, `step_at(k)`, `read(line, step)`, and whether
/// threads next to each other should take neighbours of the depth (`depth_first`); perhaps what becomes of an element
/// that has been rounded (`weighted(step, element)`).
template <class Scalar, class Problem, class Sizes>
struct gemm_kernel {
  static constexpr int threads = Sizes::threads;
  // Blocks that registers leave room for, as far as nothing spills: integers take two for a sum.
  static constexpr int least_blocks = [] {
    if (Sizes::on_tensor_cores) return threads >= 256 ? 1 : Sizes::own_rows > 4 ? 3 : 4;
    if (sizeof(typename Problem::sum_type) > sizeof(Scalar) || Sizes::own_rows * Sizes::own_columns > 32) return 1;
    return threads < 256 ? 3 : 2;
  }();
  struct slice {
    quad<Scalar> left[static_cast<std::size_t>(Sizes::left_quads)];
    quad<Scalar> right[static_cast<std::size_t>(Sizes::right_quads)];
  };
  using left_operand = decltype(std::declval<const Problem&>().left(0));
  using right_operand = decltype(std::declval<const Problem&>().right(0));
  struct step_table {
    typename left_operand::step left[Sizes::depth];
    typename right_operand::step right[Sizes::depth];
  };
  struct shared_type {
    slice slices[2];
    step_table steps[2];
    double partial[static_cast<std::size_t>(threads / warp_size)];
  };

  Problem problem;

  [[nodiscard]] PERGRAD_HD int row_blocks() const noexcept { return blocks_for(problem.rows(), Sizes::rows); }
  [[nodiscard]] PERGRAD_HD int column_blocks() const noexcept { return blocks_for(problem.columns(), Sizes::columns); }
  [[nodiscard]] int blocks() const noexcept { return row_blocks() * column_blocks() * problem.batches(); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    // Rows first: blocks that run together share the columns' view.
    int number = block.index();
    const int row_count = row_blocks();
    const int column_count = column_blocks();
    const int row_block = number % row_count;
    number /= row_count;
    const int column_block = number % column_count;
    const int z = number / column_count;
    if (!problem.wanted(z, column_block * Sizes::columns)) return;
    const int depth = problem.depth(z);
    const int row = row_block * Sizes::rows;
    const int column = column_block * Sizes::columns;
    auto& shared = block.template shared<shared_type>();
    typename Block::template local<sums_type> sums;
    typename Block::template local<lines_type> lines;
    typename Block::template local<fetched_type> next;
    const left_operand left = problem.left(z);
    const right_operand right = problem.right(z);
    block.each([&](int t) {
      start(sums[t], z, row + Sizes::row_of(t), column + Sizes::column_of(t));
      each_left(t, [&](int i, int /*k*/, int at) {
        if (i < lines_type::left_count) lines[t].left[i] = left.line_at(row + at);
      });
      each_right(t, [&](int i, int /*k*/, int at) {
        if (i < lines_type::right_count) lines[t].right[i] = right.line_at(column + at);
      });
      find_steps(left, right, t, 0, depth, shared.steps[0]);
      find_steps(left, right, t, Sizes::depth, depth, shared.steps[1]);
    });
    const auto fetch = [&](int t, const step_table& steps) {
      each_left(t, [&](int i, int k, int /*at*/) {
        next[t].left[i] = left.read(lines[t].left[smaller_of(i, lines_type::left_count - 1)], steps.left[k]);
      });
      each_right(t, [&](int i, int k, int /*at*/) {
        next[t].right[i] = right.read(lines[t].right[smaller_of(i, lines_type::right_count - 1)], steps.right[k]);
      });
    };
    if (depth > 0) {
      block.each([&](int t) {
        fetch(t, shared.steps[0]);
        put(next[t], t, shared.steps[0], depth, shared.slices[0]);
      });
    }
    int stage = 0;
    int begin = 0;
    for (; begin + Sizes::depth < depth; begin += Sizes::depth, stage ^= 1) {
      block.overlap(
          [&](int t) {
            fetch(t, shared.steps[stage ^ 1]);
            find_steps(left, right, t, begin + 2 * Sizes::depth, depth, shared.steps[stage]);
            if constexpr (!Sizes::on_tensor_cores) multiply(sums[t], shared.slices[stage], t);
          },
          [&] {
            if constexpr (Sizes::on_tensor_cores) multiply_by_warps(block, sums, shared.slices[stage]);
          },
          [&](int t) {
            put(next[t], t, shared.steps[stage ^ 1], depth - begin - Sizes::depth, shared.slices[stage ^ 1]);
          });
    }
    if constexpr (Sizes::on_tensor_cores) {
      if (depth > 0) multiply_by_warps(block, sums, shared.slices[stage]);
    } else {
      block.each([&](int t) { multiply_some(sums[t], shared.slices[stage], t, depth - begin); });
    }
    if constexpr (Problem::squares) {
      typename Block::template local<double> own;
      block.each(
          [&](int t) { own[t] = sum_of_squares(sums[t], row + Sizes::row_of(t), column + Sizes::column_of(t)); });
      const double total = block.sum(own, shared.partial);
      block.once([&] { problem.store_square(z, row_block + row_blocks() * column_block, total); });
    } else {
      block.each([&](int t) { finish(sums[t], z, row + Sizes::row_of(t), column + Sizes::column_of(t)); });
    }
  }

 private:
  /// Does the problem say how a term joins a sum? Else by fma.
  static constexpr bool adds_terms = requires(const Problem& it, typename Problem::sum_type& sum, Scalar factor) {
    it.add_term(sum, factor, factor);
  };
  static constexpr int left_each = Sizes::rows * Sizes::depth / threads;
  static constexpr int right_each = Sizes::columns * Sizes::depth / threads;
  struct fetched_type {
    registers<Scalar, left_each> left;
    registers<Scalar, right_each> right;
  };
  /// Where a thread's elements lie: in as many lines, or all in one.
  struct lines_type {
    static constexpr int left_count = left_operand::depth_first ? left_each : 1;
    static constexpr int right_count = right_operand::depth_first ? right_each : 1;
    typename left_operand::line left[static_cast<std::size_t>(left_count)];
    typename right_operand::line right[static_cast<std::size_t>(right_count)];
  };
  using sums_type = registers<typename Problem::sum_type, Sizes::own_rows * Sizes::own_columns>;

  /// Calls f(i, k, at) for the `Count` numbers that thread t moves: number i is `k` deep in the slice, at row or column
  /// `at` of the block. Threads next to each other read along the operand's own order; all k, or all `at`, are one.
  template <bool DepthFirst, int Width, int Count, class Function>
  PERGRAD_HD static void each_moved(int t, Function&& f) noexcept {
    static_assert(threads % (DepthFirst ? Sizes::depth : Width) == 0);
    PERGRAD_UNROLL
    for (int i = 0; i < Count; ++i) {
      if constexpr (DepthFirst) {
        f(i, t % Sizes::depth, t / Sizes::depth + i * (threads / Sizes::depth));
      } else {
        f(i, t / Width + i * (threads / Width), t % Width);
      }
    }
  }
  template <class Function>
  PERGRAD_HD static void each_left(int t, Function&& f) noexcept {
    each_moved<left_operand::depth_first, Sizes::rows, left_each>(t, f);
  }
  template <class Function>
  PERGRAD_HD static void each_right(int t, Function&& f) noexcept {
    each_moved<right_operand::depth_first, Sizes::columns, right_each>(t, f);
  }

  /// The steps of the slice that begins there, a thread one of them; beyond the depth the last one again.
  PERGRAD_HD static void find_steps(const left_operand& left, const right_operand& right, int t, int begin, int depth,
                                    step_table& to) noexcept {
    static_assert(threads >= 2 * Sizes::depth);
    if (t >= 2 * Sizes::depth || begin >= depth) return;
    const int k = t % Sizes::depth;
    const int number = smaller_of(begin + k, depth - 1);
    if (t < Sizes::depth) {
      to.left[k] = left.step_at(number);
    } else {
      to.right[k] = right.step_at(number);
    }
  }
  /// Rounds what was read, weighs it, and puts it there. Tensor cores multiply whole slices: what is beyond the first
  /// `count` of the depth is zero for them.
  PERGRAD_HD void put(fetched_type& from, int t, const step_table& steps, int count, slice& to) const noexcept {
    if (Sizes::on_tensor_cores || problem.on.tf32 != 0) {
      each_left(t, [&](int i, int /*k*/, int /*at*/) { from.left[i] = round_to_tf32(from.left[i]); });
      each_right(t, [&](int i, int /*k*/, int /*at*/) { from.right[i] = round_to_tf32(from.right[i]); });
    }
    if constexpr (requires { left_operand::weighted(steps.left[0], Scalar{}); }) {
      each_left(t,
                [&](int i, int k, int /*at*/) { from.left[i] = left_operand::weighted(steps.left[k], from.left[i]); });
    }
    if (Sizes::on_tensor_cores && count < Sizes::depth) {
      each_left(t, [&](int i, int k, int /*at*/) { from.left[i] = k < count ? from.left[i] : Scalar{0}; });
      each_right(t, [&](int i, int k, int /*at*/) { from.right[i] = k < count ? from.right[i] : Scalar{0}; });
    }
    // Addresses of a thread's elements differ by constants.
    each_left(t, [&](int i, int k, int at) {
      const int apart = left_operand::depth_first ? i * (threads / Sizes::depth) : 0;
      const slice_place first = Sizes::left_at(k, at - apart);
      to.left[first.quad + apart / Sizes::together].v[first.number] = from.left[i];
    });
    each_right(t, [&](int i, int k, int at) {
      const int apart = right_operand::depth_first ? i * (threads / Sizes::depth) : 0;
      const slice_place first = Sizes::right_at(k, at - apart);
      to.right[first.quad + apart / Sizes::together].v[first.number] = from.right[i];
    });
  }
  template <class Block>
  PERGRAD_HD static void multiply_by_warps(const Block& block, typename Block::template local<sums_type>& sums,
                                           const slice& from) noexcept {
    block.multiply_tf32(sums, [&](int t) {
      tf32_fragments<Sizes::row_pairs> own;
      const auto copy = [](const quad<Scalar>& four, float(&to)[4]) {
        PERGRAD_UNROLL
        for (int i = 0; i < 4; ++i) to[i] = four.v[i];
      };
      const int row = Sizes::left_at(t % 4, Sizes::row_of(t)).quad;
      const int column = Sizes::right_at(t % 4, Sizes::first_column(t) + t % warp_size / 4 * 2).quad;
      PERGRAD_UNROLL
      for (int i = 0; i < own.row_pairs; ++i) copy(from.left[row + 8 * i], own.left[i]);
      PERGRAD_UNROLL
      for (int j = 0; j < own.column_pairs; ++j) copy(from.right[column + 8 * j], own.right[j]);
      return own;
    });
  }
  PERGRAD_HD void multiply(sums_type& sums, const slice& from, int t) const noexcept {
    if constexpr (std::is_integral_v<typename Problem::sum_type>) {  // which wait for conversions, and fill registers
      multiply_some(sums, from, t, Sizes::depth);
    } else {
      PERGRAD_UNROLL
      for (int k = 0; k < Sizes::depth; ++k) multiply_one(sums, from, t, k);
    }
  }
  /// Of the last slice: adding products of zeros to fill it would turn -0 into 0.
  PERGRAD_HD void multiply_some(sums_type& sums, const slice& from, int t, int count) const noexcept {
    PERGRAD_ROLLED
    for (int k = 0; k < count; ++k) multiply_one(sums, from, t, k);
  }
  PERGRAD_HD void multiply_one(sums_type& sums, const slice& from, int t, int k) const noexcept {
    quad<Scalar> down[Sizes::own_rows / 4];
    quad<Scalar> across[Sizes::own_columns / 4];
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::own_rows / 4; ++i) {
      down[i] = from.left[Sizes::left_at(k, Sizes::row_of(t) + Sizes::own_row(4 * i)).quad];
    }
    PERGRAD_UNROLL
    for (int j = 0; j < Sizes::own_columns / 4; ++j) {
      across[j] = from.right[Sizes::right_at(k, Sizes::column_of(t) + Sizes::own_column(4 * j)).quad];
    }
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::own_rows; ++i) {
      PERGRAD_UNROLL
      for (int j = 0; j < Sizes::own_columns; ++j) {
        auto& sum = sums[i * Sizes::own_columns + j];
        if constexpr (adds_terms) {
          problem.add_term(sum, down[i / 4].v[i % 4], across[j / 4].v[j % 4]);
        } else {
          sum = fma(down[i / 4].v[i % 4], across[j / 4].v[j % 4], sum);
        }
      }
    }
  }
  /// Calls f(where of its column, row, sum) for a thread's results, of which the first is at (row, column), that exist.
  /// What all results of a column share is found once.
  template <class Sums, class Function>
  PERGRAD_HD void each_placed(Sums& sums, int z, int row, int column, Function&& f) const noexcept {
    const auto results = problem.results(z);
    PERGRAD_UNROLL
    for (int j = 0; j < Sizes::own_columns; ++j) {
      const int c = column + Sizes::own_column(j);
      if (c >= problem.columns()) continue;
      const auto where = problem.column_of(results, c);
      PERGRAD_UNROLL
      for (int i = 0; i < Sizes::own_rows; ++i) {
        const int r = row + Sizes::own_row(i);
        if (r < problem.rows()) f(where, r, sums[i * Sizes::own_columns + j]);
      }
    }
  }
  PERGRAD_HD void start(sums_type& sums, int z, int row, int column) const noexcept {
    sums = {};
    if constexpr (!Problem::squares) {
      each_placed(sums, z, row, column, [&](const auto& where, int r, auto& sum) { sum = problem.before(where, r); });
    }
  }
  PERGRAD_HD void finish(const sums_type& sums, int z, int row, int column) const noexcept {
    each_placed(sums, z, row, column, [&](const auto& where, int r, auto sum) { problem.store(where, r, sum); });
  }
  PERGRAD_HD double sum_of_squares(const sums_type& sums, int row, int column) const noexcept {
    double total = 0;
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::own_rows; ++i) {
      PERGRAD_UNROLL
      for (int j = 0; j < Sizes::own_columns; ++j) {
        if (row + Sizes::own_row(i) >= problem.rows() || column + Sizes::own_column(j) >= problem.columns()) continue;
        const auto value = static_cast<double>(sums[i * Sizes::own_columns + j]);
        total = fma(value, value, total);
      }
    }
    return total;
  }
};

}  // namespace pergrad::inline v0_1::on_device
