// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/layers/attention.hpp - attention of one head by a block, a tile of queries or keys at a time, in shared
// memory
//
// The formulas are those of layers/shared/attention.hpp. Forward, a block has a tile of queries and lets the tiles of
// keys pass by: scores S of a tile, their largest and their sum so far, and what has been added up is made smaller
// where a larger one comes (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135).
// Backward, with m the largest and l the sum of a query's, P = exp(S - m) / l and D = rowsum(dY o Y):
//     by tiles of queries   m, l and D, which are kept, then dS = P o (dP - D) and dQ = dS K
//     by tiles of keys      dV = P^T dY and dK = dS^T Q
// so each number has one thread that writes it, and neither P nor dS is ever in memory of the device. Threads hold
// patches of a product in registers: rows next to each other, read several at a time from a matrix that is turned, and
// columns far apart. Where TF32 is allowed tensor cores form the products, of P and dS rounded to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1::on_device {

/// What one launch for a layer is told. Queries, keys and values of a position are one row, heads side by side.
template <class Scalar, class Target>
struct attention_work {
  const step_state* state = nullptr;
  batch_view<Scalar, Target> samples;
  attention_row at;
  int from = 0;          ///< place of the rows
  int copy_to = -1;      ///< forward: where they are kept, if that is not where they are
  int context = 0;       ///< place of Y, [position][features]
  int also_to = -1;      ///< forward: of another copy of it
  int dy = 0;            ///< backward: place of dY
  int gradients_to = 0;  ///< of the rows' gradients
  int queries_to = 0;    ///< of the gradients of queries alone
  int queries_step = 0;  ///< from row to row there
  int notes = 0;         ///< of m, 1 / l and D of every head's queries
  int most_samples = 0;
};

/// Scores have keys or queries as columns, and the width as depth; results have numbers of a head, and a tile.
enum class attention_product : int { scores, results };
/// Whose gradients a kernel forms.
enum class attention_part : int { none, queries, keys };

/// Sizes of a block's tiles and of a thread's patch of them; of a head's numbers `Columns` threads' worth.
template <class Scalar, int Columns, bool OnTensorCores>
struct attention_sizes {
  static constexpr bool on_tensor_cores = OnTensorCores;
  static constexpr int threads = 128;
  static constexpr int tile = sizeof(Scalar) == sizeof(float) ? 64 : 32;
  static constexpr int across = tile / 4;  ///< threads
  // On tensor cores a warp has 32 rows of a half of the columns.
  static constexpr int rows = on_tensor_cores ? 4 : tile * across / threads;
  static constexpr int score_columns = tile * tile / threads / rows;
  static constexpr int columns = on_tensor_cores ? (Columns + 1) / 2 * 4 : Columns;
  /// Of a matrix that is turned: threads that fill it meet in no bank, or those that read pairs for tensor cores.
  static constexpr int line = tile + (on_tensor_cores ? 8 : 4);
  static constexpr int shares = threads / tile;  ///< of a row of scores
  static constexpr Scalar unseen = -std::numeric_limits<Scalar>::infinity();

  struct shared_type {
    static constexpr auto lines = static_cast<std::size_t>(tile);
    alignas(16) Scalar largest[static_cast<std::size_t>(shares)][lines];
    Scalar first[lines];  ///< what is needed of every row, or of every column
    Scalar second[lines];
    Scalar third[lines];
  };
  using scores = registers<Scalar, rows * score_columns>;
  using results = registers<Scalar, rows * columns>;
  /// How many numbers of a head are there: tensor cores multiply so many at once, zeros behind the last.
  [[nodiscard]] PERGRAD_HD static constexpr int padded(int width) noexcept {
    return on_tensor_cores ? (width + tf32_format::depth - 1) / tf32_format::depth * tf32_format::depth : width;
  }
  /// A matrix that is not turned has lines of a length with which threads that read a column meet in no bank.
  [[nodiscard]] PERGRAD_HD static constexpr int straight_line(int width) noexcept {
    return on_tensor_cores ? padded(width) + 4 : width | 1;
  }
  [[nodiscard]] PERGRAD_HD static constexpr int turned_size(int width) noexcept { return padded(width) * line; }
  /// Patches may reach beyond the last column.
  [[nodiscard]] PERGRAD_HD static constexpr int straight_size(int width) noexcept {
    return (tile * straight_line(width) + across * Columns + 3) / 4 * 4;
  }
  [[nodiscard]] static constexpr std::size_t bytes(int width, int turned, int straight) noexcept {
    return sizeof(Scalar) *
           static_cast<std::size_t>(turned * turned_size(width) + straight * straight_size(width) + tile * line);
  }
};
template <class Scalar, int Count>
PERGRAD_HD inline void store_group(const element_group<Scalar, Count>& group, Scalar* at) noexcept {
  __builtin_memcpy(__builtin_assume_aligned(static_cast<void*>(at), sizeof group), &group, sizeof group);
}

/// A block at work with one head of one sample.
template <class Block, class Scalar, class Sizes>
struct attention_worker {
  using sizes = Sizes;
  using shared_type = typename sizes::shared_type;
  using scores_of_threads = typename Block::template local<typename sizes::scores>;
  using results_of_threads = typename Block::template local<typename sizes::results>;
  static constexpr bool on_tensor_cores = sizes::on_tensor_cores;
  static constexpr int tile = sizes::tile, line = sizes::line, threads = sizes::threads, rows = sizes::rows,
                       across = sizes::across, shares = sizes::shares;

  const Block& block;
  shared_type& shared;
  int width;
  int turned_count;  ///< matrices that are turned

  // The block's matrices, behind `shared`.
  [[nodiscard]] PERGRAD_HD Scalar* turned(int number) const noexcept {
    return reinterpret_cast<Scalar*>(&shared + 1) + number * sizes::turned_size(width);
  }
  [[nodiscard]] PERGRAD_HD Scalar* straight(int number) const noexcept {
    return turned(turned_count) + number * sizes::straight_size(width);
  }
  [[nodiscard]] PERGRAD_HD Scalar* scores() const noexcept { return straight(2); }

  /// As it is multiplied.
  [[nodiscard]] PERGRAD_HD static Scalar rounded(Scalar number) noexcept {
    return on_tensor_cores ? stored_as(stored_format::tf32, number) : number;
  }
  /// to[d][row] = scale * from[row][d]; rows from `there` on are zeros. On tensor cores scores are scaled.
  PERGRAD_HD void turn(const Scalar* from, int step, int there, Scalar* to, Scalar scale) const {
    block.each([&](int t) {
      for (int e = t; e < (width + 7) / 8 * 8 * tile; e += threads) {  // of a warp, 8 columns of 4 rows
        const int row = e / 32 % (tile / 4) * 4 + e / 8 % 4;
        const int d = e / 32 / (tile / 4) * 8 + e % 8;
        if (d >= sizes::padded(width)) continue;
        const Scalar number = row < there && d < width ? from[row * step + d] : Scalar{0};
        to[d * line + row] = on_tensor_cores ? rounded(number) : multiply(number, scale);
      }
    });
  }
  /// to[row][d] = from[row][d]; rows from `there` on are zeros.
  PERGRAD_HD void copy(const Scalar* from, int step, int there, Scalar* to) const {
    block.each([&](int t) {
      for (int row = t / warp_size; row < tile; row += threads / warp_size) {
        for (int d = t % warp_size; d < sizes::padded(width); d += warp_size) {
          to[row * sizes::straight_line(width) + d] =
              row < there && d < width ? rounded(from[row * step + d]) : Scalar{0};
        }
      }
    });
  }
  /// Rows of `width` numbers where they shall lie, in device memory.
  PERGRAD_HD void move(const Scalar* from, int from_step, int count, Scalar* to, int to_step) const {
    block.each([&](int t) {
      for (int row = t / warp_size; row < count; row += threads / warp_size) {
        for (int d = t % warp_size; d < width; d += warp_size) to[row * to_step + d] = from[row * from_step + d];
      }
    });
  }

  /// Row i of a thread's patch.
  [[nodiscard]] PERGRAD_HD static int row_of(int t, int i = 0) noexcept {
    return on_tensor_cores ? t / (2 * warp_size) * 32 + i / 2 * 16 + t % warp_size / 4 * 2 + i % 2
                           : t / across * rows + i;
  }
  /// Column j of the patch of scores or of results.
  template <attention_product Product>
  [[nodiscard]] PERGRAD_HD static int column_of(int t, int j = 0) noexcept {
    return on_tensor_cores ? column_for_warps<Product>(t, j / 4 * 2 + j % 2, t % 4 * 2 + j % 4 / 2)
                           : t % across + j * across;
  }
  /// What is column `place` of tensor cores' product `number` of a warp. Threads that read the right operand meet in no
  /// bank, of scores by lines and of results by columns of a matrix, nor do those that store scores.
  template <attention_product Product>
  [[nodiscard]] PERGRAD_HD static int column_for_warps(int t, int number, int place) noexcept {
    const int of_block = t / warp_size % 2 * (columns_of<Product> / 2) + number;
    return Product == attention_product::scores ? of_block * 8 + place / 2 + place % 2 * 4
                                                : of_block / 4 * 32 + of_block % 4 * 4 + place % 4 + place / 4 * 16;
  }
  template <attention_product Product>
  static constexpr int columns_of = Product == attention_product::scores ? sizes::score_columns : sizes::columns;

  /// sums[i][j] += over k of left[k * line + i] * right[k * term + j * column]: a thread's patch. `left` is turned.
  template <int Count, class Sums>
  PERGRAD_HD static void add_products(const Scalar* left, const Scalar* right, int term, int column, int terms,
                                      Sums& sums) {
    constexpr int at_once = static_cast<int>(16 / sizeof(Scalar));
    PERGRAD_IN_PAIRS
    for (int k = 0; k < terms; ++k) {
      Scalar factors[static_cast<std::size_t>(rows)];
      PERGRAD_UNROLL
      for (int i = 0; i < rows; i += at_once) {
        const auto group = read_group<at_once>(left + k * line + i);
        PERGRAD_UNROLL
        for (int n = 0; n < at_once; ++n) factors[i + n] = group.v[n];
      }
      PERGRAD_UNROLL
      for (int j = 0; j < Count; ++j) {
        const Scalar other = right[k * term + j * column];
        PERGRAD_UNROLL
        for (int i = 0; i < rows; ++i) sums[i * Count + j] = fma(factors[i], other, sums[i * Count + j]);
      }
    }
  }
  /// The same of a block on tensor cores, of `columns` columns that are there. No barrier.
  template <attention_product Product, class Local>
  PERGRAD_HD void multiply_by_warps(const Scalar* left, const Scalar* right, int term, int column, int terms,
                                    int columns, Local& sums) const {
    PERGRAD_IN_PAIRS
    for (int k = 0; k < terms; k += tf32_format::depth) {
      block.multiply_by_warps(sums, [&](int t) {
        tensor_fragments<tf32_format, rows / 2, columns_of<Product> / 4> own;
        const Scalar* const from = left + (k + t % 4) * line + row_of(t);
        PERGRAD_UNROLL
        for (int i = 0; i < own.row_pairs; ++i) {
          const auto lower = read_group<2>(from + 16 * i);
          const auto upper = read_group<2>(from + 4 * line + 16 * i);
          own.left[i][0] = lower.v[0];
          own.left[i][1] = lower.v[1];
          own.left[i][2] = upper.v[0];
          own.left[i][3] = upper.v[1];
        }
        PERGRAD_UNROLL
        for (int j = 0; j < 2 * own.column_pairs; ++j) {
          const int number = column_for_warps<Product>(t, j, t % warp_size / 4);
          const Scalar* const at = right + (k + t % 4) * term + number * column;
          const bool is_there = Product == attention_product::scores || number < columns;
          own.right[j / 2][j % 2 * 2] = is_there ? at[0] : Scalar{0};
          own.right[j / 2][j % 2 * 2 + 1] = is_there ? at[4 * term] : Scalar{0};
        }
        return own;
      });
    }
  }
  /// Scores of a block: rows of `turned` with rows of `straight`. First each thread, then together.
  PERGRAD_HD void begin_scores(int t, const Scalar* turned, const Scalar* straight, scores_of_threads& sums) const {
    PERGRAD_UNROLL
    for (int i = 0; i < rows * sizes::score_columns; ++i) sums[t][i] = 0;
    if constexpr (!on_tensor_cores) {
      const int between = sizes::straight_line(width);
      add_products<sizes::score_columns>(turned + row_of(t),
                                         straight + column_of<attention_product::scores>(t) * between, 1,
                                         across * between, width, sums[t]);
    }
  }
  PERGRAD_HD void form_together(const Scalar* turned, const Scalar* straight, scores_of_threads& sums) const {
    if constexpr (on_tensor_cores) {
      multiply_by_warps<attention_product::scores>(turned, straight, 1, sizes::straight_line(width),
                                                   sizes::padded(width), tile, sums);
    }
  }
  /// A thread's score as it counts.
  [[nodiscard]] PERGRAD_HD static Scalar scaled(Scalar score, Scalar scale) noexcept {
    return on_tensor_cores ? multiply(score, scale) : score;
  }
  /// Stores f(row, column, number) column by column for a thread's patch, of which `number` is the place in `scores`.
  template <class Function>
  PERGRAD_HD static void store_scores(int t, Scalar* to, const Function& f) {
    constexpr int at_once = on_tensor_cores ? 2 : static_cast<int>(16 / sizeof(Scalar));
    PERGRAD_UNROLL
    for (int j = 0; j < sizes::score_columns; ++j) {
      const int column = column_of<attention_product::scores>(t, j);
      PERGRAD_UNROLL
      for (int i = 0; i < rows; i += at_once) {
        element_group<Scalar, at_once> group;
        PERGRAD_UNROLL
        for (int n = 0; n < at_once; ++n) {
          group.v[n] = f(row_of(t, i + n), column, (i + n) * sizes::score_columns + j);
        }
        store_group(group, to + column * line + row_of(t, i));
      }
    }
  }
  /// Scores of queries from `query` on, which are turned, with keys from `key` on; `unseen` where one does not look.
  PERGRAD_HD void form_scores(const attention_row& at, int query, int key, int length, scores_of_threads& made) const {
    const Scalar scale = at.template scale<Scalar>();
    block.overlap([&](int t) { begin_scores(t, turned(0), straight(0), made); },
                  [&] { form_together(turned(0), straight(0), made); },
                  [&](int t) {
                    store_scores(t, scores(), [&](int row, int column, int number) {
                      return at.sees(query + row, key + column, length) ? scaled(made[t][number], scale)
                                                                        : sizes::unseen;
                    });
                  });
  }
  /// Of both pairs of matrices, then end(t).
  template <class Function>
  PERGRAD_HD void form_scores_and_gradients(scores_of_threads& of_scores, scores_of_threads& of_gradients,
                                            const Function& end) const {
    block.overlap(
        [&](int t) {
          begin_scores(t, turned(0), straight(0), of_scores);
          begin_scores(t, turned(1), straight(1), of_gradients);
        },
        [&] {
          form_together(turned(0), straight(0), of_scores);
          form_together(turned(1), straight(1), of_gradients);
        },
        end);
  }
  /// Adds scores times rows of `straight`, behind prepare(t).
  template <class Function>
  PERGRAD_HD void add_rows(const Scalar* scores, const Scalar* straight, results_of_threads& sums,
                           const Function& prepare) const {
    const int between = sizes::straight_line(width);
    block.overlap(
        [&](int t) {
          prepare(t);
          if constexpr (!on_tensor_cores) {
            add_products<sizes::columns>(scores + row_of(t), straight + column_of<attention_product::results>(t),
                                         between, across, tile, sums[t]);
          }
        },
        [&] {
          if constexpr (on_tensor_cores) {
            multiply_by_warps<attention_product::results>(scores, straight, between, 1, tile, width, sums);
          }
        },
        [](int) {});
  }
  PERGRAD_HD void clear(results_of_threads& sums) const {
    block.each([&](int t) {
      PERGRAD_UNROLL
      for (int i = 0; i < rows * sizes::columns; ++i) sums[t][i] = 0;
    });
  }
  /// to[row][column] = f(row, result) for the tile's first `count` rows.
  template <class Function>
  PERGRAD_HD void write(const results_of_threads& sums, int count, Scalar* to, int step, const Function& f) const {
    block.each([&](int t) {
      PERGRAD_UNROLL
      for (int i = 0; i < rows; ++i) {
        const int row = row_of(t, i);
        PERGRAD_UNROLL
        for (int j = 0; j < sizes::columns; ++j) {
          const int column = column_of<attention_product::results>(t, j);
          if (row < count && column < width) to[row * step + column] = f(row, sums[t][i * sizes::columns + j]);
        }
      }
    });
  }

  /// f(row, share) for every thread: a share of a row.
  template <class Function>
  PERGRAD_HD void each_share(const Function& f) const {
    block.each([&](int t) { f(t, t % tile, t / tile); });
  }
  /// A tile of scores joins what is known of its rows. `Keeps`: they become exp(score - largest), and `first` what sums
  /// so far are to be multiplied by.
  template <bool Keeps, class Local>
  PERGRAD_HD void soften(Scalar* scores, Local& largest, Local& total) const {
    constexpr int columns = tile / shares;
    each_share([&](int, int row, int share) {
      Scalar most = scores[share * columns * line + row];
      for (int c = 1; c < columns; ++c) most = larger_of(most, scores[(share * columns + c) * line + row]);
      shared.largest[share][row] = most;
    });
    each_share([&](int t, int row, int share) {
      Scalar most = largest[t];
      PERGRAD_UNROLL
      for (int s = 0; s < shares; ++s) most = larger_of(most, shared.largest[s][row]);
      const Scalar base = most > sizes::unseen ? most : Scalar{0};  // nothing is seen yet
      const Scalar factor = math::exp_or_zero(largest[t] - base);
      Scalar sum = 0;
      for (int c = 0; c < columns; ++c) {
        Scalar& score = scores[(share * columns + c) * line + row];
        Scalar power = math::exp_or_zero(score - base);
        if constexpr (Keeps) score = power = rounded(power);
        sum += power;
      }
      total[t] = fma(total[t], factor, sum);
      largest[t] = most;
      if (Keeps && share == 0) shared.first[row] = factor;
    });
  }
  template <class Local>
  PERGRAD_HD void begin_rows(Local& largest, Local& total) const {
    block.each([&](int t) {
      largest[t] = sizes::unseen;
      total[t] = 0;
    });
  }
  /// 1 / l of every row, in `second`.
  template <class Local>
  PERGRAD_HD void end_rows(const Local& total) const {
    each_share([&](int t, int row, int share) { shared.largest[share][row] = total[t]; });
    each_share([&](int, int row, int share) {
      if (share != 0) return;
      Scalar sum = 0;
      PERGRAD_UNROLL
      for (int s = 0; s < shares; ++s) sum += shared.largest[s][row];
      shared.second[row] = Scalar{1} / sum;
    });
  }
};

/// Which head and which tile a block has.
struct attention_place {
  int sample;
  int head;
  int first;  ///< position
};
template <class Kernel>
[[nodiscard]] PERGRAD_HD attention_place place_of_block(const Kernel& kernel, int index) noexcept {
  const int tiles = blocks_for(kernel.at.positions, Kernel::tile);
  return {index / tiles / kernel.at.heads, index / tiles % kernel.at.heads, index % tiles * Kernel::tile};
}
/// What kernels of tiles share, of which so many matrices of a block are turned.
template <class Scalar, class Target, class Sizes, attention_part GradientsOf, int Turned>
struct attention_tiles : attention_work<Scalar, Target> {
  using sizes = Sizes;
  using shared_type = typename sizes::shared_type;
  template <class Block>
  using worker_type = attention_worker<Block, Scalar, sizes>;
  static constexpr int threads = sizes::threads, tile = sizes::tile;
  static constexpr int least_blocks = 2;
  static constexpr attention_part gradients_of = GradientsOf;
  static constexpr int turned_count = Turned;

  [[nodiscard]] std::size_t more_shared_bytes() const noexcept { return sizes::bytes(this->at.width, Turned, 2); }
  [[nodiscard]] int blocks() const noexcept {
    return this->most_samples * this->at.heads * blocks_for(this->at.positions, tile);
  }
};

/// Forward; blocks() of them.
template <class Scalar, class Target, class Sizes>
struct attention_kernel : attention_tiles<Scalar, Target, Sizes, attention_part::none, 1> {
  using work = attention_tiles<Scalar, Target, Sizes, attention_part::none, 1>;
  using typename work::sizes, typename work::shared_type;
  using work::state, work::samples, work::at, work::from, work::copy_to, work::context, work::also_to;
  using work::tile;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const attention_place here = place_of_block(*this, block.index());
    if (static_cast<std::uint32_t>(here.sample) >= state->count) return;
    auto& shared = block.template shared<shared_type>();
    const typename work::template worker_type<Block> worker{block, shared, at.width, work::turned_count};
    const sample_values<Scalar> values = samples.values(here.sample);
    const int length = values.positions(at.lengths, at.positions);
    const int step = at.row_step();
    const int features = at.features();
    const Scalar* const queries = values.at(from) + here.head * at.width;
    const Scalar* const rows = queries + here.first * step;
    const int there = smaller_of(tile, at.positions - here.first);
    if (copy_to >= 0) {
      Scalar* const to = values.to(copy_to) + here.first * step + here.head * at.width;
      for (int k = 0; k < 3; ++k) worker.move(rows + k * features, step, there, to + k * features, step);
    }
    worker.turn(rows, step, length - here.first, worker.turned(0), at.template scale<Scalar>());
    typename Block::template local<typename sizes::results> sums;
    typename Block::template local<typename sizes::scores> made;
    typename Block::template local<Scalar> largest, total;
    worker.clear(sums);
    worker.begin_rows(largest, total);
    const int end = at.causal != 0 ? smaller_of(length, here.first + tile) : length;
    for (int first = 0; first < end && here.first < length; first += tile) {
      const Scalar* const key_rows = queries + features + first * step;
      worker.copy(key_rows, step, length - first, worker.straight(0));
      worker.copy(key_rows + features, step, length - first, worker.straight(1));
      worker.form_scores(at, here.first, first, length, made);
      worker.template soften<true>(worker.scores(), largest, total);
      worker.add_rows(worker.scores(), worker.straight(1), sums, [&](int t) {
        PERGRAD_UNROLL
        for (int i = 0; i < sizes::rows; ++i) {
          const Scalar factor = shared.first[worker.row_of(t, i)];
          PERGRAD_UNROLL
          for (int j = 0; j < sizes::columns; ++j) sums[t][i * sizes::columns + j] *= factor;
        }
      });
    }
    worker.end_rows(total);
    const auto put = [&](int place) {
      Scalar* const to = values.to(place) + here.first * features + here.head * at.width;
      worker.write(sums, there, to, features, [&](int row, Scalar sum) {
        return here.first + row < length ? sum * shared.second[row] : Scalar{0};
      });
    };
    put(context);
    if (also_to >= 0) put(also_to);
  }
};

/// Backward by tiles of queries: their gradients, and what is to be known of them. blocks() of them.
template <class Scalar, class Target, class Sizes>
struct attention_queries_kernel : attention_tiles<Scalar, Target, Sizes, attention_part::queries, 2> {
  using work = attention_tiles<Scalar, Target, Sizes, attention_part::queries, 2>;
  using typename work::sizes, typename work::shared_type;
  using work::state, work::samples, work::at, work::from, work::context, work::dy, work::queries_to, work::queries_step,
      work::notes;
  using work::tile;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const attention_place here = place_of_block(*this, block.index());
    if (static_cast<std::uint32_t>(here.sample) >= state->count) return;
    auto& shared = block.template shared<shared_type>();
    const typename work::template worker_type<Block> worker{block, shared, at.width, work::turned_count};
    const sample_values<Scalar> values = samples.values(here.sample);
    const int length = values.positions(at.lengths, at.positions);
    const int step = at.row_step();
    const int features = at.features();
    const int there = smaller_of(tile, at.positions - here.first);
    const int rest = length - here.first;  // positions from the tile's first one on
    const Scalar scale = at.template scale<Scalar>();
    const Scalar* const queries = values.at(from) + here.head * at.width;
    const int of_tile = here.first * features + here.head * at.width;
    worker.turn(queries + here.first * step, step, rest, worker.turned(0), scale);
    worker.turn(values.at(dy) + of_tile, features, rest, worker.turned(1), Scalar{1});
    const int end = at.causal != 0 ? smaller_of(length, here.first + tile) : length;
    const auto for_each_tile = [&](bool with_values, const auto& f) {
      for (int first = 0; first < end && rest > 0; first += tile) {
        const Scalar* const key_rows = queries + features + first * step;
        worker.copy(key_rows, step, length - first, worker.straight(0));
        if (with_values) worker.copy(key_rows + features, step, length - first, worker.straight(1));
        f(first);
      }
    };
    typename Block::template local<typename sizes::scores> of_scores, of_gradients;
    typename Block::template local<Scalar> largest, total;
    worker.begin_rows(largest, total);
    for_each_tile(false, [&](int first) {
      worker.form_scores(at, here.first, first, length, of_scores);
      worker.template soften<false>(worker.scores(), largest, total);
    });
    worker.end_rows(total);
    worker.each_share([&](int t, int row, int share) {
      if (share != 0) return;
      Scalar sum = 0;
      const Scalar* const y = values.at(context) + of_tile + row * features;
      for (int d = 0; d < at.width && row < rest; ++d) sum = fma(worker.turned(1)[d * sizes::line + row], y[d], sum);
      shared.first[row] = largest[t];
      shared.third[row] = sum;
      if (row >= rest) return;
      Scalar* const to = values.to(notes) + here.head * 3 * at.positions + here.first + row;
      to[0] = largest[t];
      to[at.positions] = shared.second[row];
      to[2 * at.positions] = sum;
    });
    typename Block::template local<typename sizes::results> sums;
    worker.clear(sums);
    for_each_tile(true, [&](int first) {
      worker.form_scores_and_gradients(of_scores, of_gradients, [&](int t) {
        worker.store_scores(t, worker.scores(), [&](int row, int column, int number) {
          if (!at.sees(here.first + row, first + column, length)) return Scalar{0};
          const Scalar score = worker.scaled(of_scores[t][number], scale);
          const Scalar power = math::exp_or_zero(score - shared.first[row]) * shared.second[row];
          return worker.rounded(power * (of_gradients[t][number] - shared.third[row]));
        });
      });
      worker.add_rows(worker.scores(), worker.straight(0), sums, [](int) {});
    });
    Scalar* const to = values.to(queries_to) + here.first * queries_step + here.head * at.width;
    worker.write(sums, there, to, queries_step,
                 [&](int row, Scalar sum) { return row < rest ? sum * scale : Scalar{0}; });
  }
};

/// Backward by tiles of keys: their gradients and those of values. blocks() of them.
template <class Scalar, class Target, class Sizes>
struct attention_keys_kernel : attention_tiles<Scalar, Target, Sizes, attention_part::keys, 2> {
  using work = attention_tiles<Scalar, Target, Sizes, attention_part::keys, 2>;
  using typename work::sizes, typename work::shared_type;
  using work::state, work::samples, work::at, work::from, work::dy, work::gradients_to, work::notes;
  using work::tile;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const attention_place here = place_of_block(*this, block.index());
    if (static_cast<std::uint32_t>(here.sample) >= state->count) return;
    auto& shared = block.template shared<shared_type>();
    const typename work::template worker_type<Block> worker{block, shared, at.width, work::turned_count};
    const sample_values<Scalar> values = samples.values(here.sample);
    const int length = values.positions(at.lengths, at.positions);
    const int step = at.row_step();
    const int features = at.features();
    const int there = smaller_of(tile, at.positions - here.first);
    const int rest = length - here.first;
    const Scalar scale = at.template scale<Scalar>();
    const Scalar* const queries = values.at(from) + here.head * at.width;
    const Scalar* const own = queries + here.first * step + features;
    worker.turn(own, step, rest, worker.turned(0), scale);
    worker.turn(own + features, step, rest, worker.turned(1), Scalar{1});
    typename Block::template local<typename sizes::results> of_keys, sums;
    typename Block::template local<typename sizes::scores> of_scores, gradients;
    worker.clear(of_keys);
    worker.clear(sums);
    const auto sees = [&](int row, int query) { return at.sees(query, here.first + row, length) && query < length; };
    for (int first = at.causal != 0 ? here.first : 0; first < length && rest > 0; first += tile) {
      worker.copy(queries + first * step, step, length - first, worker.straight(0));
      worker.copy(values.at(dy) + first * features + here.head * at.width, features, length - first,
                  worker.straight(1));
      worker.each_share([&](int, int column, int share) {
        if (share != 0) return;
        const bool is_there = first + column < length;
        const Scalar* const noted = values.at(notes) + here.head * 3 * at.positions + first + column;
        shared.first[column] = is_there ? noted[0] : Scalar{0};
        shared.second[column] = is_there ? noted[at.positions] : Scalar{0};
        shared.third[column] = is_there ? noted[2 * at.positions] : Scalar{0};
      });
      worker.form_scores_and_gradients(of_scores, gradients, [&](int t) {
        worker.store_scores(t, worker.scores(), [&](int row, int column, int number) {
          const Scalar score = worker.scaled(of_scores[t][number], scale);
          // Queries were scaled for their largest score, keys are here: a rounding may lift this one above it.
          const Scalar power =
              sees(row, first + column)
                  ? math::exp_or_zero(smaller_of(score - shared.first[column], Scalar{0})) * shared.second[column]
                  : Scalar{0};
          gradients[t][number] = worker.rounded(power * (gradients[t][number] - shared.third[column]));
          return worker.rounded(power);
        });
      });
      worker.add_rows(worker.scores(), worker.straight(1), sums, [](int) {});
      block.each([&](int t) {
        worker.store_scores(t, worker.scores(), [&](int, int, int number) { return gradients[t][number]; });
      });
      worker.add_rows(worker.scores(), worker.straight(0), of_keys, [](int) {});
    }
    Scalar* const key_rows = values.to(gradients_to) + here.first * step + features + here.head * at.width;
    worker.write(of_keys, there, key_rows, step,
                 [&](int row, Scalar sum) { return row < rest ? sum * scale : Scalar{0}; });
    worker.write(sums, there, key_rows + features, step,
                 [&](int row, Scalar sum) { return row < rest ? sum : Scalar{0}; });
  }
};

/// The gradients of queries take their places, which others read before. blocks() of them.
template <class Scalar, class Target>
struct move_queries_kernel : attention_work<Scalar, Target> {
  struct shared_type {};
  static constexpr int threads = 256;
  using work = attention_work<Scalar, Target>;
  [[nodiscard]] int blocks_of_sample() const noexcept {
    return blocks_for(std::int64_t{this->at.positions} * this->at.features(), 4 * threads);
  }
  [[nodiscard]] int blocks() const noexcept { return this->most_samples * blocks_of_sample(); }
  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int features = this->at.features();
    const int count = this->at.positions * features;
    const int of_sample = blocks_for(count, 4 * threads);
    const int sample = block.index() / of_sample;
    if (static_cast<std::uint32_t>(sample) >= this->state->count) return;
    const sample_values<Scalar> values = this->samples.values(sample);
    block.each([&](int t) {
      PERGRAD_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int i = (block.index() % of_sample * 4 + k) * threads + t;
        if (i < count) {
          values.to(this->gradients_to)[i / features * this->at.row_step() + i % features] =
              values.at(this->queries_to)[i];
        }
      }
    });
  }
};

}  // namespace pergrad::inline v0_1::on_device
