// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/gemm.hpp - the matrix products of affine layers: one blocked kernel, operands that are views
//
//   forward     y_b[o, t]  = bias[o] + sum_k W[o, k] view_t(x_b)[k]
//   adjoint     x_b[c, i]  = bias[c] + sum_(o,tap) W[o, c, tap] y_b[o, t]     t: its view has pixel i at that tap
//   sums        sum[o, k] += sum_b (w_b delta_b[o]) view(x_b)[k]               b: an accumulator's, in order
//   shares      sum[o, k] += sum_b round(w_b sum_t delta_b[o, t] view_t(x_b)[k])   integers
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

/// Where an element lies among the groups of a slice.
struct slice_place {
  int group;
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
  static constexpr int of_word = 1;  ///< numbers that are stored as one
  static constexpr int own_rows = OwnRows;
  static constexpr int own_columns = OwnColumns;
  static constexpr int across = Columns / OwnColumns;
  static constexpr int threads = Rows / OwnRows * across;
  /// Instructions for 100 multiply-adds of a product over samples, about, by machine code.
  static constexpr int cost = [] {
    constexpr int own = OwnRows * OwnColumns;
    if (own >= 32) return own >= 64 ? 125 : 145;
    return own < 16 ? 415 : Depth >= 32 ? 155 : 180;
  }();
  /// Elements that lie together and are read at once.
  static constexpr int together = OwnRows < 2 || OwnColumns < 2 ? 1 : OwnRows < 4 || OwnColumns < 4 ? 2 : 4;
  static constexpr int group = together;  ///< of a slice's elements, that are one type
  static_assert(OwnRows % together == 0 && OwnColumns % together == 0 && Rows % OwnRows == 0 &&
                Columns % OwnColumns == 0);
  static_assert(Rows * Depth % threads == 0 && Columns * Depth % threads == 0);

  // A thread's rows are own_rows / together groups, as far apart as all threads' groups take; columns likewise.
  PERGRAD_HD static constexpr int row_of(int t) noexcept { return together * (t / across); }
  PERGRAD_HD static constexpr int column_of(int t) noexcept { return together * (t % across); }
  PERGRAD_HD static constexpr int own_row(int i) noexcept {
    return i / together * together * (Rows / OwnRows) + i % together;
  }
  PERGRAD_HD static constexpr int own_column(int j) noexcept { return j / together * together * across + j % together; }
  // Where a slice has an element: neighbours are a group, and lines meet other banks.
  static constexpr int left_groups = Depth * (Rows / together + 1);
  static constexpr int right_groups = Depth * (Columns / together + 1);
  PERGRAD_HD static constexpr slice_place left_at(int k, int row) noexcept {
    return {k * (Rows / together + 1) + row / together, row % together};
  }
  PERGRAD_HD static constexpr slice_place right_at(int k, int column) noexcept {
    return {k * (Columns / together + 1) + column / together, column % together};
  }
};
using strip_block = gemm_block<16, 64, 16, 4, 4>;    ///< of few rows and columns: 64 threads
using slim_block = gemm_block<16, 128, 16, 4, 4>;    ///< of very few rows: 128 threads
using narrow_block = gemm_block<32, 128, 16, 4, 8>;  ///< of few rows: 128 threads
using square_block = gemm_block<64, 128, 16, 8, 8>;  ///< 128 threads
using double_block = gemm_block<64, 128, 8, 8, 4>;   ///< the same of doubles or 64-bit sums: 256 threads
using small_block = gemm_block<32, 32, 32, 4, 4>;    ///< of few results: 64 threads, deep slices
using tiny_block = gemm_block<16, 8, 32, 2, 1>;      ///< of few columns: 64 threads

/// The same on tensor cores (device/tensor.hpp): warps of 16 RowPairs x 16 ColumnPairs results. The squarer these are,
/// the less is read of shared memory for one. A slice is as deep as so many instructions: where a warp has few results,
/// two, as there are few blocks then, which wait for every slice.
template <int Rows, int Columns, int RowPairs, int ColumnPairs, class Format = tf32_format, int Instructions = 1>
struct tensor_block {
  using format = Format;
  static constexpr bool on_tensor_cores = true;
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  static constexpr int instructions = Instructions;
  static constexpr int depth = Instructions * Format::depth;
  static constexpr int of_word = Format::together;
  static constexpr int row_pairs = RowPairs;
  static constexpr int column_pairs = ColumnPairs;
  static constexpr int own_rows = 2 * RowPairs;
  static constexpr int own_columns = 4 * ColumnPairs;
  static constexpr int warps_across = Columns / (16 * ColumnPairs);
  static constexpr int threads = Rows / (16 * RowPairs) * warps_across * warp_size;
  static_assert(Rows % (16 * RowPairs) == 0 && Columns % (16 * ColumnPairs) == 0);

  // What fragments call rows g and g + 8, and columns g of two products, are neighbours.
  PERGRAD_HD static constexpr int row_of(int t) noexcept {
    return t / warp_size / warps_across * 16 * RowPairs + t % warp_size / 4 * 2;
  }
  PERGRAD_HD static constexpr int first_column(int t) noexcept {
    return t / warp_size % warps_across * 16 * ColumnPairs;
  }
  PERGRAD_HD static constexpr int column_of(int t) noexcept { return first_column(t) + t % 4 * 4; }
  PERGRAD_HD static constexpr int own_row(int i) noexcept { return i / 2 * 16 + i % 2; }
  PERGRAD_HD static constexpr int own_column(int j) noexcept { return j / 4 * 16 + j % 4; }
  // k counts words, eight of an instruction. Two neighbours at depths k and k + 4 are a quad, in the order of a
  // thread's registers. Lines of them begin in other banks: eight threads that read quads, two of each of four lines,
  // meet in none, nor do threads that write neighbours of the depth.
  static constexpr int group = 4;
  static constexpr int together = 2;  ///< of a group's elements: those of one depth
  static constexpr int left_groups = Instructions * 4 * (Rows / 2 + 2);
  static constexpr int right_groups = Instructions * 4 * (Columns / 2 + 2);
  PERGRAD_HD static constexpr slice_place left_at(int k, int row) noexcept {
    return {(k / 8 * 4 + k % 4) * (Rows / 2 + 2) + row / 2, k / 4 % 2 * 2 + row % 2};
  }
  PERGRAD_HD static constexpr slice_place right_at(int k, int column) noexcept {
    return {(k / 8 * 4 + k % 4) * (Columns / 2 + 2) + column / 2, column % 2 * 2 + k / 4 % 2};
  }
};
/// The blocks of the same results.
template <class Format>
struct tensor_blocks {
  static constexpr int deep = Format::together == 1 ? 2 : 1;  ///< those of BF16 are as deep as two of TF32
  using strip = tensor_block<32, 64, 2, 2, Format, deep>;     ///< 64 threads
  using narrow = tensor_block<32, 128, 2, 4, Format, deep>;   ///< 64 threads
  using square = tensor_block<64, 64, 2, 2, Format, deep>;    ///< 128 threads
  using large = tensor_block<128, 128, 4, 4, Format>;         ///< 128 threads
  /// Of many columns: 64 threads, or 128, as packing BF16 takes registers.
  using wide = tensor_block<64, 128, 4, Format::together == 1 ? 4 : 2, Format>;
  using broad = tensor_block<64, 256, 4, 4, Format>;  ///< and more, of TF32: 128 threads
  using vast = tensor_block<128, 256, 4, 4, Format>;  ///< and many rows: 256 threads
  // Of shares, whose threads have as many integers as sums; the large ones have those in shared memory.
  using wide_of_shares = tensor_block<64, 128, 4, 2, Format>;    ///< 128 threads
  using narrow_of_shares = tensor_block<32, 128, 2, 2, Format>;  ///< 128 threads
  using square_of_shares = tensor_block<64, 64, 2, 2, Format>;   ///< 128 threads
};

/// Is a problem one over samples of one position? There are as many columns as samples, and blocks are small.
template <class Problem>
inline constexpr bool one_position = requires {
  requires Problem::one_position;
};

/// Of what type totals are, where a problem adds shares.
template <class Problem>
struct total_of_shares {
  using type = std::uint32_t;
};
template <class Problem>
requires requires { Problem::adds_shares; }
struct total_of_shares<Problem> {
  using type = typename Problem::total_type;
};

/// The product of `Problem`, which says `rows`, `columns` and `depth` of batch z, its operands `left(z)` and
/// `right(z)`, of what type sums are, where chains begin and what becomes of results: `before` and `store` get a row
/// and what `column_of(results(z), column)` finds out once for all of a column's; products over samples say where these
/// lie. blocks() of them.
///
/// An operand says `line_at(row or column)`, also beyond the last one, `step_at(k)`, `read(line, step)`, and whether
/// threads next to each other should take neighbours of the depth (`depth_first`); perhaps what becomes of an element
/// that was read (`weighted(step, element)`). Parameters say that they are (`is_weights`). A right one that tensor
/// cores multiply by says `leave_out(step)`: it reads 0 there.
template <class Scalar, class Problem, class Sizes>
struct gemm_kernel {
  static constexpr int threads = Sizes::threads;
  /// Is the depth that of several samples, each of which adds its share to a sum of integers?
  static constexpr bool adds_shares = requires { Problem::adds_shares; };
  using total_type = typename total_of_shares<Problem>::type;
  static constexpr int own_results = Sizes::own_rows * Sizes::own_columns;
  // Blocks that registers leave room for, as far as nothing spills: integers of 64 bits take two for a sum. From
  // compute capability 9.0 on ptxas needs a few more for 64 x 64 floats, for 11.0 for all.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  static constexpr int blocks_of_small_shares = !Sizes::on_tensor_cores && Sizes::own_columns > 4 ? 2 : 3;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr int blocks_of_small_shares = !Sizes::on_tensor_cores && Sizes::own_rows > 4 ? 3 : 4;
#else
  static constexpr int blocks_of_small_shares = 4;
#endif
  static constexpr int least_blocks = [] {
    if (adds_shares) {
      if (threads >= 256) return 1;
      if (sizeof(total_type) > sizeof(Scalar) || own_results > 32) return 2;
      return Sizes::of_word > 1 ? 3 : blocks_of_small_shares;
    }
    if (own_results > 64) return smaller_of(256 / threads, 2);
    if (Sizes::on_tensor_cores) return Sizes::own_rows > 4 ? 3 : 4;
    if (sizeof(typename Problem::sum_type) > sizeof(Scalar)) return 1;
    return threads < 256 && !(one_position<Problem> && own_results > 32) ? 3 : 2;
  }();
  /// Of small shares, where registers have no room for as many integers as sums: they are added to once a sample.
  static constexpr bool has_shared_totals =
      adds_shares && sizeof(total_type) == sizeof(Scalar) && Sizes::on_tensor_cores && own_results > 32;
  struct slice {
    element_group<Scalar, Sizes::group> left[static_cast<std::size_t>(Sizes::left_groups)];
    element_group<Scalar, Sizes::group> right[static_cast<std::size_t>(Sizes::right_groups)];
  };
  using left_operand = decltype(std::declval<const Problem&>().left(0));
  using right_operand = decltype(std::declval<const Problem&>().right(0));
  static constexpr int words_deep = Sizes::depth / Sizes::of_word;
  struct step_table {
    alignas(16) typename left_operand::step left[Sizes::depth];  // which a thread reads several of at a time
    alignas(16) typename right_operand::step right[Sizes::depth];
  };
  /// Are the columns' lines of a block in a table, where a thread has many? Its registers may have no room for them:
  /// ptxas would find them again, with all divisions, for every slice.
  static constexpr bool has_line_table =
      !Sizes::on_tensor_cores && left_operand::depth_first && right_operand::depth_first && Sizes::columns > 64;
  /// And those of rows? ptxas needs their registers for compute capability 11.0.
  static constexpr bool has_row_table = has_line_table && adds_shares;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 1000
  static constexpr bool reads_row_table = false;
#else
  static constexpr bool reads_row_table = has_row_table;
#endif
  struct shared_type {
    slice slices[2];
    step_table steps[2];
    typename left_operand::line left_lines[has_row_table ? Sizes::rows : 1];
    typename right_operand::line right_lines[has_line_table ? Sizes::columns : 1];
    double partial[static_cast<std::size_t>(threads / warp_size)];
    element_group<total_type, 4> totals[has_shared_totals ? static_cast<std::size_t>(own_results / 4 * threads) : 1];
  };
  static_assert(!has_shared_totals || sizeof(shared_type) <= 99 << 10);  // a block's most on GeForce cards since 8.6

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
    typename Block::template local<totals_type> totals;  // of shares
    depth_slices slices{depth, depth};
    if constexpr (adds_shares) slices.segment = problem.positions();
    slice_number here{};
    const left_operand left = problem.left(z);
    const right_operand right = problem.right(z);
    block.each([&](int t) {
      if constexpr (adds_shares) {
        sums[t] = {};
        for (int i = 0; i < own_results; ++i) totals_of(shared, totals, t)[i] = 0;
      } else {
        start(sums[t], z, row + Sizes::row_of(t), column + Sizes::column_of(t));
      }
      if constexpr (reads_row_table) {
        for (int i = t; i < Sizes::rows; i += threads) shared.left_lines[i] = left.line_at(row + i);
      } else {
        each_left(t, [&](int i, int /*k*/, int at) {
          if (i % lines_type::left_words == 0) lines[t].left[i / lines_type::left_words] = left.line_at(row + at);
        });
      }
      if constexpr (has_line_table) {
        for (int i = t; i < Sizes::columns; i += threads) shared.right_lines[i] = right.line_at(column + i);
      } else {
        each_right(t, [&](int i, int /*k*/, int at) {
          if (i % lines_type::right_words == 0)
            lines[t].right[i / lines_type::right_words] = right.line_at(column + at);
        });
      }
      find_steps(left, right, t, slices, here, shared.steps[0]);
      find_steps(left, right, t, slices, slices.after(here), shared.steps[1]);
    });
    const auto fetch = [&](int t, const step_table& steps) {
      fetch_from<Sizes::rows, left_each>(left, t, steps.left, next[t].left, [&](int i, int at) {
        return reads_row_table ? shared.left_lines[at] : lines[t].left[i / lines_type::left_words];
      });
      fetch_from<Sizes::columns, right_each>(right, t, steps.right, next[t].right, [&](int i, int at) {
        return has_line_table ? shared.right_lines[at] : lines[t].right[i / lines_type::right_words];
      });
    };
    if (depth > 0) {
      block.each([&](int t) {
        fetch(t, shared.steps[0]);
        put(next[t], t, shared.steps[0], shared.slices[0]);
      });
    }
    int stage = 0;
    for (; slices.has(slices.after(here)); here = slices.after(here), stage ^= 1) {
      const slice_number behind = slices.after(here);
      block.overlap(
          [&](int t) {
            fetch(t, shared.steps[stage ^ 1]);
            find_steps(left, right, t, slices, slices.after(behind), shared.steps[stage]);
            if constexpr (!Sizes::on_tensor_cores) {
              if (adds_shares && slices.steps(here) < Sizes::depth) {
                multiply_some(sums[t], shared.slices[stage], t, slices.steps(here));
              } else {
                multiply(sums[t], shared.slices[stage], t);
              }
            }
          },
          [&] {
            if constexpr (Sizes::on_tensor_cores) {
              multiply_by_warps(block, sums, shared.slices[stage], adds_shares ? slices.steps(here) : Sizes::depth);
            }
          },
          [&](int t) {
            if constexpr (adds_shares) {
              if (behind.slice == 0) add_shares_of(here.segment, z, sums[t], totals_of(shared, totals, t));
            }
            put(next[t], t, shared.steps[stage ^ 1], shared.slices[stage ^ 1]);
          });
    }
    if constexpr (Sizes::on_tensor_cores) {
      if (depth > 0) multiply_by_warps(block, sums, shared.slices[stage], slices.steps(here));
    } else {
      block.each([&](int t) { multiply_some(sums[t], shared.slices[stage], t, slices.steps(here)); });
    }
    if constexpr (adds_shares) {
      block.each([&](int t) {
        auto&& all = totals_of(shared, totals, t);
        add_shares_of(here.segment, z, sums[t], all);
        each_placed(all, z, row + Sizes::row_of(t), column + Sizes::column_of(t),
                    [&](const auto& where, int r, auto sum) { problem.store(where, r, sum); });
      });
    } else if constexpr (Problem::squares) {
      typename Block::template local<double> own;
      block.each([&](int t) {
        own[t] = sum_of_squares(sums[t], row + Sizes::row_of(t), column + Sizes::column_of(t));
        if (problem.keeps()) finish(sums[t], z, row + Sizes::row_of(t), column + Sizes::column_of(t));
      });
      const double total = block.sum(own, shared.partial);
      block.once(
          [&] { problem.store_square(z, row_block + row_count * column_block, row_count * column_count, total); });
    } else {
      block.each([&](int t) { finish(sums[t], z, row + Sizes::row_of(t), column + Sizes::column_of(t)); });
    }
  }

 private:
  /// Does the problem say how a term joins a sum? Else by fma.
  static constexpr bool adds_terms = requires(const Problem& it, typename Problem::sum_type& sum, Scalar factor) {
    it.add_term(sum, factor, factor);
  };
  static constexpr int of_word = Sizes::of_word;
  static constexpr int left_each = Sizes::rows * words_deep / threads;  ///< words
  static constexpr int right_each = Sizes::columns * words_deep / threads;
  /// Words of a line that a thread moves one after the other, of `Count` from an operand that is `Width` wide.
  template <bool DepthFirst, int Width, int Count>
  static constexpr int of_line = DepthFirst        ? 1
                                 : Width > threads ? Count / (Width / threads)
                                                   : Count;
  struct fetched_type {
    registers<Scalar, left_each * of_word> left;
    registers<Scalar, right_each * of_word> right;
  };
  /// Where a thread's elements lie: in as many lines, or in a few.
  struct lines_type {
    static constexpr int left_words = of_line<left_operand::depth_first, Sizes::rows, left_each>;
    static constexpr int right_words = of_line<right_operand::depth_first, Sizes::columns, right_each>;
    static constexpr int left_count = left_each / left_words;
    static constexpr int right_count = right_each / right_words;
    typename left_operand::line left[static_cast<std::size_t>(left_count)];
    typename right_operand::line right[static_cast<std::size_t>(right_count)];
  };
  using sums_type = registers<typename Problem::sum_type, own_results>;
  using totals_type = registers<total_type, adds_shares && !has_shared_totals ? own_results : 1>;
  /// A thread's, as registers are: four lie together, and those of all threads side by side.
  struct shared_totals {
    element_group<total_type, 4>* at;
    [[nodiscard]] PERGRAD_HD total_type& operator[](int i) const noexcept { return at[i / 4 * threads].v[i % 4]; }
  };

  /// A slice of the depth: of a segment of it, a sample where shares are added, else all.
  struct slice_number {
    int segment;
    int slice;
  };
  struct depth_slices {
    int segment;
    int depth;

    [[nodiscard]] PERGRAD_HD slice_number after(slice_number here) const noexcept {
      ++here.slice;
      return adds_shares && here.slice * Sizes::depth >= segment ? slice_number{here.segment + 1, 0} : here;
    }
    [[nodiscard]] PERGRAD_HD bool has(slice_number here) const noexcept { return first(here) < depth; }
    /// Its first step, and how many there are from there to the end of its segment.
    [[nodiscard]] PERGRAD_HD int first(slice_number here) const noexcept {
      return here.segment * segment + here.slice * Sizes::depth;
    }
    [[nodiscard]] PERGRAD_HD int steps(slice_number here) const noexcept { return segment - here.slice * Sizes::depth; }
  };

  /// Calls f(i, k, at) for the `Count` words that thread t moves: word i is `k` deep in the slice, at row or column
  /// `at` of the block. Threads next to each other read along the operand's own order; all k are one, or a line's words
  /// follow each other.
  template <bool DepthFirst, int Width, int Count, class Function>
  PERGRAD_HD static void each_moved(int t, Function&& f) noexcept {
    constexpr int across = Width < threads ? Width : threads;
    static_assert(DepthFirst ? threads % words_deep == 0 : threads % across == 0 && Width % across == 0);
    constexpr int together = of_line<DepthFirst, Width, Count>;
    PERGRAD_UNROLL
    for (int i = 0; i < Count; ++i) {
      if constexpr (DepthFirst) {
        f(i, t % words_deep, t / words_deep + i * (threads / words_deep));
      } else {
        f(i, t / across * together + i % together, t % across + i / together * across);
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

  /// Reads a thread's elements of an operand; `line_of(i, at)`: the line of its word i. Where all are of one step, what
  /// their addresses share is added up once, if the operand says how.
  template <int Width, int Each, class Operand, class LineOf>
  PERGRAD_HD static void fetch_from(const Operand& operand, int t, const typename Operand::step* steps,
                                    registers<Scalar, Each * of_word>& to, LineOf&& line_of) noexcept {
    const auto read = [&](const auto* places) {
      each_moved<Operand::depth_first, Width, Each>(t, [&](int i, int k, int at) {
        const typename Operand::line line = line_of(i, at);
        const int first = Operand::depth_first ? 0 : k * of_word;
        PERGRAD_UNROLL
        for (int j = 0; j < of_word; ++j) to[i * of_word + j] = operand.read(line, places[first + j]);
      });
    };
    const typename Operand::step* own = steps + (Operand::depth_first ? t % words_deep * of_word : 0);
    if constexpr (requires { operand.place_of(*own); }) {
      decltype(operand.place_of(*own)) places[static_cast<std::size_t>(of_word)];
      PERGRAD_UNROLL
      for (int j = 0; j < of_word; ++j) places[j] = operand.place_of(own[j]);
      read(places);
    } else {
      read(own);
    }
  }
  /// The steps of a slice, a thread one of them; beyond its segment the last one again, at which for tensor cores, that
  /// multiply whole slices, there is nothing on the right.
  PERGRAD_HD static void find_steps(const left_operand& left, const right_operand& right, int t,
                                    const depth_slices& slices, slice_number here, step_table& to) noexcept {
    static_assert(threads >= 2 * Sizes::depth);
    if (t >= 2 * Sizes::depth || !slices.has(here)) return;
    const int k = t % Sizes::depth;
    const int last = slices.steps(here) - 1;
    const int number = smaller_of(k, last);
    const auto step_of = [&](const auto& operand) {
      if constexpr (adds_shares) {
        return operand.step_at(here.segment, here.slice * Sizes::depth + number);
      } else {
        return operand.step_at(slices.first(here) + number);
      }
    };
    if (t < Sizes::depth) {
      to.left[k] = step_of(left);
    } else {
      to.right[k] = step_of(right);
      if constexpr (Sizes::on_tensor_cores) {
        if (k > last) right.leave_out(to.right[k]);
      }
    }
  }
  /// Rounds weights that were read, weighs deltas, and puts them there.
  PERGRAD_HD void put(fetched_type& from, int t, const step_table& steps, slice& to) const noexcept {
    if constexpr (of_word > 1) {  // packing rounds
      each_left(t, [&](int i, int /*k*/, int /*at*/) {
        from.left[i] = packed_as_bf16(from.left[i * of_word], from.left[i * of_word + 1]);
      });
      each_right(t, [&](int i, int /*k*/, int /*at*/) {
        from.right[i] = packed_as_bf16(from.right[i * of_word], from.right[i * of_word + 1]);
      });
    } else if constexpr (requires { left_operand::is_weights; }) {  // what layers hand on is stored rounded
      const stored_format format = Sizes::on_tensor_cores ? stored_format::tf32 : problem.on.format;
      if (format != stored_format::exact) {
        each_left(t, [&](int i, int /*k*/, int /*at*/) { from.left[i] = stored_as(format, from.left[i]); });
      }
    }
    if constexpr (requires { left_operand::weighted(steps.left[0], Scalar{}); }) {
      each_left(t,
                [&](int i, int k, int /*at*/) { from.left[i] = left_operand::weighted(steps.left[k], from.left[i]); });
    }
    each_left(t, [&](int i, int k, int at) {
      const slice_place place = placed<left_operand::depth_first, Sizes::rows, left_each>(&Sizes::left_at, i, k, at);
      to.left[place.group].v[place.number] = from.left[i];
    });
    each_right(t, [&](int i, int k, int at) {
      const slice_place place =
          placed<right_operand::depth_first, Sizes::columns, right_each>(&Sizes::right_at, i, k, at);
      to.right[place.group].v[place.number] = from.right[i];
    });
  }
  /// Where number i of a thread lies, at (k, at) of its slice: a constant behind its number 0.
  template <bool DepthFirst, int Width, int Count>
  [[nodiscard]] PERGRAD_HD static slice_place placed(slice_place (*where)(int, int), int i, int k, int at) noexcept {
    constexpr int apart = DepthFirst ? threads / words_deep : threads;  // of lines
    static_assert(apart % Sizes::together == 0 || Sizes::together % apart == 0);
    constexpr int together = of_line<DepthFirst, Width, Count>;
    const int deeper = i % together;
    const int further = i / together * apart;
    const slice_place first = where(k - deeper, at - further);
    const slice_place behind = where(deeper, further);
    return {first.group + behind.group, first.number + behind.number};
  }
  /// By as many instructions as `steps` of the slice need.
  template <class Block>
  PERGRAD_HD static void multiply_by_warps(const Block& block, typename Block::template local<sums_type>& sums,
                                           const slice& from, int steps) noexcept {
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::instructions; ++i) {
      if (i == 0 || steps > i * Sizes::format::depth) multiply_at(block, sums, from, 8 * i);
    }
  }
  template <class Block>
  PERGRAD_HD static void multiply_at(const Block& block, typename Block::template local<sums_type>& sums,
                                     const slice& from, int k) noexcept {
    block.multiply_by_warps(sums, [&](int t) {
      tensor_fragments<typename Sizes::format, Sizes::row_pairs, Sizes::column_pairs> own;
      const auto copy = [](const element_group<Scalar, 4>& four, float(&to)[4]) {
        PERGRAD_UNROLL
        for (int i = 0; i < 4; ++i) to[i] = four.v[i];
      };
      const int row = Sizes::left_at(k + t % 4, Sizes::row_of(t)).group;
      const int column = Sizes::right_at(k + t % 4, Sizes::first_column(t) + t % warp_size / 4 * 2).group;
      PERGRAD_UNROLL
      for (int i = 0; i < own.row_pairs; ++i) copy(from.left[row + 8 * i], own.left[i]);
      PERGRAD_UNROLL
      for (int j = 0; j < own.column_pairs; ++j) copy(from.right[column + 8 * j], own.right[j]);
      return own;
    });
  }
  PERGRAD_HD void multiply(sums_type& sums, const slice& from, int t) const noexcept {
    // Conversions to integers wait, and fill registers.
    if constexpr (std::is_integral_v<typename Problem::sum_type> &&
                  sizeof(typename Problem::sum_type) > sizeof(Scalar)) {
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
    constexpr int group = Sizes::group;
    element_group<Scalar, group> down[Sizes::own_rows / group];
    element_group<Scalar, group> across[Sizes::own_columns / group];
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::own_rows / group; ++i) {
      down[i] = from.left[Sizes::left_at(k, Sizes::row_of(t) + Sizes::own_row(group * i)).group];
    }
    PERGRAD_UNROLL
    for (int j = 0; j < Sizes::own_columns / group; ++j) {
      across[j] = from.right[Sizes::right_at(k, Sizes::column_of(t) + Sizes::own_column(group * j)).group];
    }
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::own_rows; ++i) {
      PERGRAD_UNROLL
      for (int j = 0; j < Sizes::own_columns; ++j) {
        auto& sum = sums[i * Sizes::own_columns + j];
        if constexpr (adds_terms) {
          problem.add_term(sum, down[i / group].v[i % group], across[j / group].v[j % group]);
        } else {
          sum = fma(down[i / group].v[i % group], across[j / group].v[j % group], sum);
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
    if constexpr (requires { problem.accumulates(); }) {
      if (!problem.accumulates()) {
        if (!problem.has_bias()) return;
        PERGRAD_UNROLL
        for (int i = 0; i < Sizes::own_rows; ++i) {
          const Scalar bias = problem.bias(z, smaller_of(row + Sizes::own_row(i), problem.rows() - 1));
          PERGRAD_UNROLL
          for (int j = 0; j < Sizes::own_columns; ++j) sums[i * Sizes::own_columns + j] = bias;
        }
        return;
      }
    }
    if constexpr (requires { problem.row_step(); }) {
      each_of_sample(columns_of_samples(z, row, column), sums, row, [](const Scalar* at, Scalar& sum) { sum = *at; });
    } else if constexpr (!Problem::squares) {
      each_placed(sums, z, row, column, [&](const auto& where, int r, auto& sum) { sum = problem.before(where, r); });
    }
  }
  /// Where a thread's results in samples' workspaces lie, the first of each column; nullptr: nowhere.
  using sample_columns = registers<Scalar*, Sizes::own_columns>;
  [[nodiscard]] PERGRAD_HD sample_columns columns_of_samples(int z, int row, int column) const noexcept {
    sample_columns first;
    PERGRAD_UNROLL
    for (int j = 0; j < Sizes::own_columns; ++j) {
      const int c = column + Sizes::own_column(j);
      first[j] = c < problem.columns() ? problem.column_of(z, c) : nullptr;
      if (first[j] != nullptr) first[j] += std::int64_t{row} * problem.row_step();
    }
    return first;
  }
  /// Calls f(where it lies, result) for those that exist.
  template <class Function>
  PERGRAD_HD void each_of_sample(const sample_columns& first, sums_type& sums, int row, Function&& f) const {
    PERGRAD_UNROLL
    for (int j = 0; j < Sizes::own_columns; ++j) {
      if (first[j] == nullptr) continue;
      PERGRAD_UNROLL
      for (int i = 0; i < Sizes::own_rows; ++i) {
        if (row + Sizes::own_row(i) >= problem.rows()) continue;
        f(first[j] + Sizes::own_row(i) * problem.row_step(), sums[i * Sizes::own_columns + j]);
      }
    }
  }
  /// Thread t's totals.
  template <class Totals>
  [[nodiscard]] PERGRAD_HD static decltype(auto) totals_of([[maybe_unused]] shared_type& shared,
                                                           [[maybe_unused]] Totals& totals, int t) noexcept {
    if constexpr (has_shared_totals) {
      return shared_totals{shared.totals + t};
    } else {
      return (totals[t]);
    }
  }
  /// A sample's gradient is whole: its shares go to the totals.
  template <class Totals>
  PERGRAD_HD void add_shares_of(int sample, int z, sums_type& gradient, Totals&& totals) const noexcept {
    constexpr int together = has_shared_totals ? 4 : 1;
    const auto share = problem.share_of(z, sample);
    PERGRAD_UNROLL
    for (int i = 0; i < own_results; i += together) {
      registers<total_type, together> some;
      for (int j = 0; j < together; ++j) some[j] = totals[i + j];
      for (int j = 0; j < together; ++j) share.add_to(some[j], gradient[i + j]);
      for (int j = 0; j < together; ++j) totals[i + j] = some[j];
    }
    gradient = {};
  }
  PERGRAD_HD void finish(sums_type& sums, int z, int row, int column) const noexcept {
    if constexpr (requires { problem.rounds(); }) {
      if (problem.rounds()) {
        PERGRAD_UNROLL
        for (int i = 0; i < own_results; ++i) sums[i] = problem.rounded(sums[i]);
      }
    }
    if constexpr (requires { problem.row_step(); }) {
      finish_in_samples(sums, z, row, column);
    } else {
      each_placed(sums, z, row, column, [&](const auto& where, int r, auto sum) { problem.store(where, r, sum); });
    }
  }
  /// And what a joined node makes of them. Its function is asked for once, for all of a thread's results.
  PERGRAD_HD void finish_in_samples(sums_type& sums, int z, int row, int column) const {
    const sample_columns first = columns_of_samples(z, row, column);
    if (problem.stores()) each_of_sample(first, sums, row, [](Scalar* at, Scalar sum) { *at = sum; });
    if constexpr (Problem::may_join) {
      if (problem.joined.function < 0) return;
      problem.with_joined([&]<class Joined>() {
        each_of_sample(first, sums, row,
                       [&](const Scalar* at, Scalar& sum) { sum = problem.template joined_value<Joined>(at, sum); });
      });
      const stored_format format = problem.joined.format;
      if (format != stored_format::exact) {
        PERGRAD_UNROLL
        for (int i = 0; i < own_results; ++i) sums[i] = stored_as(format, sums[i]);
      }
      each_of_sample(first, sums, row, [&](Scalar* at, Scalar sum) { at[problem.joined_at()] = sum; });
    }
  }
  PERGRAD_HD double sum_of_squares(const sums_type& sums, int row, int column) const noexcept {
    if constexpr (std::is_same_v<Scalar, float> && Sizes::own_columns % 4 == 0) {
      const double total = sum_of_squares_in_float(sums, row, column);
      if (holds_squares_in_float(total)) return total;
      bool is_zero = true;
      PERGRAD_UNROLL
      for (int i = 0; i < own_results; ++i) is_zero = is_zero && sums[i] == 0;
      if (is_zero) return 0;
    }
    return sum_of_squares_in_double(sums, row, column);
  }
  /// Four squares of a row, and then up to sixteen such sums two by two: each square meets at most eight roundings,
  /// which the bound of privacy/clip.hpp has room for.
  PERGRAD_HD double sum_of_squares_in_float(const sums_type& sums, int row, int column) const noexcept {
    constexpr int fours = own_results / 4;
    constexpr int together = fours < 16 ? fours : 16;
    static_assert(fours <= 32);
    registers<float, fours> of_four{};
    PERGRAD_UNROLL
    for (int j = 0; j < Sizes::own_columns; ++j) {
      if (column + Sizes::own_column(j) >= problem.columns()) continue;
      PERGRAD_UNROLL
      for (int i = 0; i < Sizes::own_rows; ++i) {
        const float value = sums[i * Sizes::own_columns + j];
        auto& sum = of_four[j / 4 * Sizes::own_rows + i];
        sum = fma(value, value, sum);
      }
    }
    PERGRAD_UNROLL
    for (int k = 0; k < fours; ++k) {
      if (row + Sizes::own_row(k % Sizes::own_rows) >= problem.rows()) of_four[k] = 0;
    }
    double total = static_cast<double>(sum_two_by_two<0, together>(of_four));
    if constexpr (fours > 16) total += static_cast<double>(sum_two_by_two<16, 16>(of_four));
    return total;
  }
  template <int First, int Count>
  PERGRAD_HD static float sum_two_by_two(const auto& of_four) noexcept {
    if constexpr (Count == 1) {
      return of_four[First];
    } else {
      return add(sum_two_by_two<First, Count / 2>(of_four), sum_two_by_two<First + Count / 2, Count / 2>(of_four));
    }
  }
  /// Row by row, so that a square waits for few others, and what a whole row or column shares is asked once.
  PERGRAD_HD double sum_of_squares_in_double(const sums_type& sums, int row, int column) const noexcept {
    registers<double, Sizes::own_rows> of_row{};
    PERGRAD_UNROLL
    for (int j = 0; j < Sizes::own_columns; ++j) {
      if (column + Sizes::own_column(j) >= problem.columns()) continue;
      PERGRAD_UNROLL
      for (int i = 0; i < Sizes::own_rows; ++i) {
        const auto value = static_cast<double>(sums[i * Sizes::own_columns + j]);
        of_row[i] = fma(value, value, of_row[i]);
      }
    }
    double total = 0;
    PERGRAD_UNROLL
    for (int i = 0; i < Sizes::own_rows; ++i) total += row + Sizes::own_row(i) < problem.rows() ? of_row[i] : 0;
    return total;
  }
};

}  // namespace pergrad::inline v0_1::on_device
