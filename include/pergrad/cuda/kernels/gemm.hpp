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
// bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// How results are cut. `threads` = (Rows / OwnRows) (Columns / OwnColumns).
template <int Rows, int Columns, int Depth, int OwnRows, int OwnColumns>
struct gemm_block {
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  static constexpr int depth = Depth;
  static constexpr int own_rows = OwnRows;
  static constexpr int own_columns = OwnColumns;
  static constexpr int across = Columns / OwnColumns;
  static constexpr int threads = Rows / OwnRows * across;
  static_assert(OwnRows % 4 == 0 && OwnColumns % 4 == 0 && Rows % OwnRows == 0 && Columns % OwnColumns == 0);
  static_assert(Rows * Depth % threads == 0 && Columns * Depth % threads == 0);
};
using narrow_block = gemm_block<32, 128, 8, 4, 8>;  ///< of few rows: 128 threads
using square_block = gemm_block<64, 64, 16, 4, 4>;  ///< 256 threads
using large_block = gemm_block<128, 128, 8, 8, 8>;  ///< 256 threads

template <class Scalar>
struct alignas(4 * sizeof(Scalar)) quad {
  Scalar v[4];
};

/// The product of `Problem`, which says `rows`, `columns` and `depth` of batch z, `left(z, row, k)`, `right(z, k,
/// column)`, of what type sums are, where chains begin and what becomes of results. blocks() of them.
template <class Scalar, class Problem, class Sizes>
struct gemm_kernel {
  static constexpr int threads = Sizes::threads;
  // Blocks that registers leave room for, as far as nothing spills: integers take two for a sum.
  static constexpr int least_blocks = [] {
    if (sizeof(typename Problem::sum_type) > sizeof(Scalar) || Sizes::own_rows * Sizes::own_columns > 32) return 1;
    return threads < 256 ? 3 : 2;
  }();
  static constexpr int padding = 4;  // a slice's rows meet other banks
  struct slice {
    quad<Scalar> left[Sizes::depth][(Sizes::rows + padding) / 4];
    quad<Scalar> right[Sizes::depth][(Sizes::columns + padding) / 4];
  };
  struct shared_type {
    slice slices[2];
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
    block.each([&](int t) {
      start(sums[t], z, row + row_of(t), column + column_of(t));
      fetched_left left;
      fetched_right right;
      fetch(left, right, t, z, row, column, 0, depth);
      put(left, right, t, shared.slices[0]);
    });
    int stage = 0;
    for (int begin = 0; begin < depth; begin += Sizes::depth, stage ^= 1) {
      const int next = begin + Sizes::depth;
      block.each([&](int t) {
        fetched_left left;
        fetched_right right;
        if (next < depth) fetch(left, right, t, z, row, column, next, depth);
        multiply(sums[t], shared.slices[stage], row_of(t) / 4, column_of(t) / 4,
                 smaller_of(static_cast<int>(Sizes::depth), depth - begin));
        if (next < depth) put(left, right, t, shared.slices[stage ^ 1]);
      });
    }
    if constexpr (Problem::squares) {
      typename Block::template local<double> own;
      block.each([&](int t) { own[t] = sum_of_squares(sums[t]); });
      const double total = block.sum(own, shared.partial);
      block.once([&] { problem.store_square(z, row_block + row_blocks() * column_block, total); });
    } else {
      block.each([&](int t) { finish(sums[t], z, row + row_of(t), column + column_of(t)); });
    }
  }

 private:
  /// Does the problem say how a term joins a sum? Else by fma.
  static constexpr bool adds_terms = requires(const Problem& it, typename Problem::sum_type& sum, Scalar factor) {
    it.add_term(sum, factor, factor);
  };
  static constexpr int left_each = Sizes::rows * Sizes::depth / threads;
  static constexpr int right_each = Sizes::columns * Sizes::depth / threads;
  using fetched_left = registers<Scalar, left_each>;
  using fetched_right = registers<Scalar, right_each>;
  using sums_type = registers<typename Problem::sum_type, Sizes::own_rows * Sizes::own_columns>;
  static constexpr int row_quads = Sizes::rows / Sizes::own_rows;  // quads of rows between a thread's own

  // A thread's rows are own_rows / 4 quads, each `4 * row_quads` rows behind the one before; columns likewise.
  PERGRAD_HD static constexpr int row_of(int t) noexcept { return 4 * (t / Sizes::across); }
  PERGRAD_HD static constexpr int column_of(int t) noexcept { return 4 * (t % Sizes::across); }
  PERGRAD_HD static constexpr int own_row(int i) noexcept { return i / 4 * 4 * row_quads + i % 4; }
  PERGRAD_HD static constexpr int own_column(int j) noexcept { return j / 4 * 4 * Sizes::across + j % 4; }

  /// Calls f(i, k, at) for the `Count` numbers that thread t moves: number i is `k` deep in the slice, at row or column
  /// `at` of the block. Threads next to each other read along the operand's own order.
  template <bool DepthFirst, int Width, int Count, class Function>
  PERGRAD_HD static void each_moved(int t, Function&& f) noexcept {
    PERGRAD_UNROLL
    for (int i = 0; i < Count; ++i) {
      const int number = t + i * threads;
      f(i, DepthFirst ? number % Sizes::depth : number / Width, DepthFirst ? number / Sizes::depth : number % Width);
    }
  }
  template <class Function>
  PERGRAD_HD static void each_left(int t, Function&& f) noexcept {
    each_moved<Problem::left_depth_first, Sizes::rows, left_each>(t, f);
  }
  template <class Function>
  PERGRAD_HD static void each_right(int t, Function&& f) noexcept {
    each_moved<Problem::right_depth_first, Sizes::columns, right_each>(t, f);
  }

  PERGRAD_HD void fetch(fetched_left& left, fetched_right& right, int t, int z, int row, int column, int begin,
                        int depth) const noexcept {
    each_left(t, [&](int i, int k, int at) {
      left[i] = begin + k < depth && row + at < problem.rows() ? problem.left(z, row + at, begin + k) : Scalar{0};
    });
    each_right(t, [&](int i, int k, int at) {
      right[i] =
          begin + k < depth && column + at < problem.columns() ? problem.right(z, begin + k, column + at) : Scalar{0};
    });
  }
  PERGRAD_HD static void put(const fetched_left& left, const fetched_right& right, int t, slice& to) noexcept {
    each_left(t, [&](int i, int k, int at) { to.left[k][at / 4].v[at % 4] = left[i]; });
    each_right(t, [&](int i, int k, int at) { to.right[k][at / 4].v[at % 4] = right[i]; });
  }
  // `count` is below the slice's depth at the end only: adding products of zeros there would turn -0 into 0.
  PERGRAD_HD void multiply(sums_type& sums, const slice& from, int row_quad, int column_quad,
                           int count) const noexcept {
    if constexpr (std::is_integral_v<typename Problem::sum_type>) {  // which wait for conversions, and fill registers
      PERGRAD_ROLLED
      for (int k = 0; k < count; ++k) multiply_one(sums, from, row_quad, column_quad, k);
    } else if (count == Sizes::depth) {
      PERGRAD_UNROLL
      for (int k = 0; k < Sizes::depth; ++k) multiply_one(sums, from, row_quad, column_quad, k);
    } else {
      for (int k = 0; k < count; ++k) multiply_one(sums, from, row_quad, column_quad, k);
    }
  }
  PERGRAD_HD void multiply_one(sums_type& sums, const slice& from, int row_quad, int column_quad,
                               int k) const noexcept {
    quad<Scalar> down[Sizes::own_rows / 4];
    quad<Scalar> across[Sizes::own_columns / 4];
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::own_rows / 4; ++i) down[i] = from.left[k][row_quad + i * row_quads];
    PERGRAD_UNROLL
    for (int j = 0; j < Sizes::own_columns / 4; ++j) across[j] = from.right[k][column_quad + j * Sizes::across];
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
  /// Calls f(row, column, sum) for a thread's results, of which the first is at (row, column), that exist.
  template <class Sums, class Function>
  PERGRAD_HD void each_result(Sums& sums, int row, int column, Function&& f) const noexcept {
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::own_rows; ++i) {
      PERGRAD_UNROLL
      for (int j = 0; j < Sizes::own_columns; ++j) {
        const int r = row + own_row(i);
        const int c = column + own_column(j);
        if (r < problem.rows() && c < problem.columns()) f(r, c, sums[i * Sizes::own_columns + j]);
      }
    }
  }
  PERGRAD_HD void start(sums_type& sums, int z, int row, int column) const noexcept {
    sums = {};
    each_result(sums, row, column, [&](int r, int c, auto& sum) { sum = problem.before(z, r, c); });
  }
  PERGRAD_HD void finish(const sums_type& sums, int z, int row, int column) const noexcept {
    each_result(sums, row, column, [&](int r, int c, auto sum) { problem.store(z, r, c, sum); });
  }
  PERGRAD_HD static double sum_of_squares(const sums_type& sums) noexcept {
    double total = 0;
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::own_rows * Sizes::own_columns; ++i) {
      const auto value = static_cast<double>(sums[i]);
      total = fma(value, value, total);
    }
    return total;
  }
};

}  // namespace pergrad::inline v0_1::on_device
