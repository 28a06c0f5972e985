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

/// The product of `Problem`, which says `rows`, `columns` and `depth` of batch z, its operands `left(z)` and
/// `right(z)`, of what type sums are, where chains begin and what becomes of results. blocks() of them.
///
/// An operand says `line_at(row or column)`, also beyond the last one, `step_at(k)`, `read(line, step)`, and whether
/// threads next to each other should take neighbours of the depth (`depth_first`); perhaps what becomes of an element
/// that has been rounded (`weighted(step, element)`).
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
    const left_operand left = problem.left(z);
    const right_operand right = problem.right(z);
    block.each([&](int t) {
      start(sums[t], z, row + row_of(t), column + column_of(t));
      each_left(t, [&](int i, int /*k*/, int at) {
        if (i < lines_type::left_count) lines[t].left[i] = left.line_at(row + at);
      });
      each_right(t, [&](int i, int /*k*/, int at) {
        if (i < lines_type::right_count) lines[t].right[i] = right.line_at(column + at);
      });
      find_steps(left, right, t, 0, depth, shared.steps[0]);
      find_steps(left, right, t, Sizes::depth, depth, shared.steps[1]);
    });
    // Reads a slice, does something meanwhile, and puts it there.
    const auto move = [&](int t, const step_table& steps, slice& to, auto&& meanwhile) {
      fetched_left from_left;
      fetched_right from_right;
      each_left(t, [&](int i, int k, int /*at*/) {
        from_left[i] = left.read(lines[t].left[smaller_of(i, lines_type::left_count - 1)], steps.left[k]);
      });
      each_right(t, [&](int i, int k, int /*at*/) {
        from_right[i] = right.read(lines[t].right[smaller_of(i, lines_type::right_count - 1)], steps.right[k]);
      });
      meanwhile();
      finish_elements(from_left, from_right, t, steps);
      put(from_left, from_right, t, to);
    };
    if (depth > 0) {
      block.each([&](int t) { move(t, shared.steps[0], shared.slices[0], [] {}); });
    }
    int stage = 0;
    int begin = 0;
    for (; begin + Sizes::depth < depth; begin += Sizes::depth, stage ^= 1) {
      block.each([&](int t) {
        move(t, shared.steps[stage ^ 1], shared.slices[stage ^ 1], [&] {
          find_steps(left, right, t, begin + 2 * Sizes::depth, depth, shared.steps[stage]);
          multiply(sums[t], shared.slices[stage], t);
        });
      });
    }
    block.each([&](int t) { multiply_some(sums[t], shared.slices[stage], t, depth - begin); });
    if constexpr (Problem::squares) {
      typename Block::template local<double> own;
      block.each([&](int t) { own[t] = sum_of_squares(sums[t], row + row_of(t), column + column_of(t)); });
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
  /// Where a thread's elements lie: in as many lines, or all in one.
  struct lines_type {
    static constexpr int left_count = left_operand::depth_first ? left_each : 1;
    static constexpr int right_count = right_operand::depth_first ? right_each : 1;
    typename left_operand::line left[static_cast<std::size_t>(left_count)];
    typename right_operand::line right[static_cast<std::size_t>(right_count)];
  };
  using sums_type = registers<typename Problem::sum_type, Sizes::own_rows * Sizes::own_columns>;
  static constexpr int row_quads = Sizes::rows / Sizes::own_rows;  // quads of rows between a thread's own

  // A thread's rows are own_rows / 4 quads, each `4 * row_quads` rows behind the one before; columns likewise.
  PERGRAD_HD static constexpr int row_of(int t) noexcept { return 4 * (t / Sizes::across); }
  PERGRAD_HD static constexpr int column_of(int t) noexcept { return 4 * (t % Sizes::across); }
  PERGRAD_HD static constexpr int own_row(int i) noexcept { return i / 4 * 4 * row_quads + i % 4; }
  PERGRAD_HD static constexpr int own_column(int j) noexcept { return j / 4 * 4 * Sizes::across + j % 4; }

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
  /// Rounds what was read, and weighs it.
  PERGRAD_HD void finish_elements(fetched_left& left, fetched_right& right, int t,
                                  const step_table& steps) const noexcept {
    if (problem.on.tf32 != 0) {
      each_left(t, [&](int i, int /*k*/, int /*at*/) { left[i] = round_to_tf32(left[i]); });
      each_right(t, [&](int i, int /*k*/, int /*at*/) { right[i] = round_to_tf32(right[i]); });
    }
    if constexpr (requires { left_operand::weighted(steps.left[0], Scalar{}); }) {
      each_left(t, [&](int i, int k, int /*at*/) { left[i] = left_operand::weighted(steps.left[k], left[i]); });
    }
  }
  PERGRAD_HD static void put(const fetched_left& left, const fetched_right& right, int t, slice& to) noexcept {
    each_left(t, [&](int i, int k, int at) { to.left[k][at / 4].v[at % 4] = left[i]; });
    each_right(t, [&](int i, int k, int at) { to.right[k][at / 4].v[at % 4] = right[i]; });
  }
  PERGRAD_HD void multiply(sums_type& sums, const slice& from, int t) const noexcept {
    if constexpr (std::is_integral_v<typename Problem::sum_type>) {  // which wait for conversions, and fill registers
      multiply_some(sums, from, t, Sizes::depth);
    } else {
      PERGRAD_UNROLL
      for (int k = 0; k < Sizes::depth; ++k) multiply_one(sums, from, row_of(t) / 4, column_of(t) / 4, k);
    }
  }
  /// Of the last slice: adding products of zeros to fill it would turn -0 into 0.
  PERGRAD_HD void multiply_some(sums_type& sums, const slice& from, int t, int count) const noexcept {
    PERGRAD_ROLLED
    for (int k = 0; k < count; ++k) multiply_one(sums, from, row_of(t) / 4, column_of(t) / 4, k);
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
  PERGRAD_HD double sum_of_squares(const sums_type& sums, int row, int column) const noexcept {
    double total = 0;
    each_result(sums, row, column, [&](int /*r*/, int /*c*/, auto sum) {
      const auto value = static_cast<double>(sum);
      total = fma(value, value, total);
    });
    return total;
  }
};

}  // namespace pergrad::inline v0_1::on_device
