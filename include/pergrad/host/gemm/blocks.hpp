// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gemm/blocks.hpp - register blocks of a product's rows, and sums of many terms block by block
//
// Where the rows of `right` that a panel of columns reads lie far apart, or there are more than caches hold, a product
// is formed in blocks of terms: their rows of `right` are copied side by side, so that they stay close while the rows
// of `left` pass by, and the sums of these rows wait in a buffer. (The blocking of Goto and van de Geijn, ACM TOMS
// 34(3), 2008, without packing on the left.) Sums go on where the block before left them: their bits stay. A `right`
// that lies transposed is always taken so: blocks are turned round as they are copied.
#pragma once

#include <cstddef>
#include <cstring>

#include <pergrad/host/gemm/micro_kernel.hpp>
#include <pergrad/host/gemm/product_shape.hpp>
#include <pergrad/host/gemm/transpose.hpp>

namespace pergrad::inline v0_1::on_host {

namespace product_detail {

/// Where the rows of a register block begin: one place, and offsets from it.
struct register_rows {
  std::ptrdiff_t left;
  std::ptrdiff_t out;
  const std::ptrdiff_t* left_offset;
  const std::ptrdiff_t* out_offset;
};

/// Steps through the rows of a product in order, a register block at a time.
class row_cursor {
 public:
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): `next` writes uneven offsets before they are read
  explicit row_cursor(const product_shape& shape) noexcept : row_{shape.row}, outermost_row_{shape.outer_row} {
    for (std::size_t step = 1; step < register_rows_limit; ++step) {
      even_left_[step] = even_left_[step - 1] + row_[2].left;
      even_out_[step] = even_out_[step - 1] + row_[2].out;
    }
  }

  /// The next `count` rows, which must exist, and the last of them as often as `formed` rows need; valid until the next
  /// call.
  [[nodiscard, gnu::noinline]] register_rows next(std::ptrdiff_t count, std::ptrdiff_t formed) noexcept {
    if (count == formed && count <= row_[2].extent - inner_) {  // evenly spaced
      const register_rows found{left_, out_, even_left_, even_out_};
      advance(count);
      return found;
    }
    const register_rows found{left_, out_, uneven_left_, uneven_out_};
    for (std::ptrdiff_t done = 0; done < count;) {
      const std::ptrdiff_t in_line = row_[2].extent - inner_;
      const std::ptrdiff_t here = count - done < in_line ? count - done : in_line;
      for (std::ptrdiff_t step = 0; step < here; ++step) {
        uneven_left_[done + step] = left_ - found.left + even_left_[step];
        uneven_out_[done + step] = out_ - found.out + even_out_[step];
      }
      done += here;
      advance(here);
    }
    for (std::ptrdiff_t again = count; again < formed; ++again) {
      uneven_left_[again] = uneven_left_[count - 1];
      uneven_out_[again] = uneven_out_[count - 1];
    }
    return found;
  }

 private:
  void advance(std::ptrdiff_t count) noexcept {
    inner_ += count;
    if (inner_ < row_[2].extent) {
      left_ += count * row_[2].left;
      out_ += count * row_[2].out;
      return;
    }
    inner_ = 0;
    if (++middle_ == row_[1].extent) {
      middle_ = 0;
      if (++outer_ == row_[0].extent) {
        outer_ = 0;
        ++outermost_;
      }
    }
    left_ = outermost_ * outermost_row_.left + outer_ * row_[0].left + middle_ * row_[1].left;
    out_ = outermost_ * outermost_row_.out + outer_ * row_[0].out + middle_ * row_[1].out;
  }

  const rows* row_;
  const rows& outermost_row_;
  std::ptrdiff_t inner_ = 0;
  std::ptrdiff_t middle_ = 0;
  std::ptrdiff_t outer_ = 0;
  std::ptrdiff_t outermost_ = 0;
  std::ptrdiff_t left_ = 0;
  std::ptrdiff_t out_ = 0;
  std::ptrdiff_t even_left_[register_rows_limit] = {};
  std::ptrdiff_t even_out_[register_rows_limit] = {};
  std::ptrdiff_t uneven_left_[register_rows_limit];
  std::ptrdiff_t uneven_out_[register_rows_limit];
};

/// Walks through the rows of a product, block by block, the last ones of sizes as even as there are register blocks
/// for. A copy goes on from where it is.
class register_walk {
 public:
  /// `formed[rows - 1]`: the rows of the smallest register block that forms so many.
  register_walk(const product_shape& shape, std::size_t row_count, std::size_t most, const std::size_t* formed) noexcept
      : cursor_{shape},
        most_{most},
        formed_{formed},
        rows_left_{row_count},
        blocks_left_{(row_count + most - 1) / most} {}

  [[nodiscard]] std::size_t blocks_left() const noexcept { return blocks_left_; }
  /// Rows of the next register block.
  [[nodiscard]] std::size_t count() const noexcept {
    if (rows_left_ >= 3 * most_) return most_;
    if (blocks_left_ == 1) return rows_left_;
    return formed_[(blocks_left_ == 2 ? (rows_left_ + 1) / 2 : (rows_left_ + 2) / 3) - 1];
  }
  /// The next register block, of `count()` rows, for a function that forms `formed` of them; valid until the next call.
  [[nodiscard]] register_rows next(std::size_t rows_here, std::size_t formed) noexcept {
    rows_left_ -= rows_here;
    --blocks_left_;
    return cursor_.next(static_cast<std::ptrdiff_t>(rows_here), static_cast<std::ptrdiff_t>(formed));
  }

 private:
  row_cursor cursor_;
  std::size_t most_;
  const std::size_t* formed_;
  std::size_t rows_left_;
  std::size_t blocks_left_;
};

// What blocks, their limits and what is fetched meanwhile gain: docs/internals/tricks.md.
inline constexpr std::size_t block_row_count = 264;  // whose sums wait in a buffer: 2 x 128 and a register block
inline constexpr std::size_t block_bytes = std::size_t{64} << 10U;               // of the copied rows of `right`
inline constexpr std::size_t fewest_rows_to_block = 32;                          // fewer do not pay for the copy
inline constexpr std::ptrdiff_t least_bytes_to_block = std::ptrdiff_t{1} << 20;  // of `right`, gaps included
/// Elements from a term's first row to what is fetched meanwhile where rows lie side by side: the next cache lines are
/// the next register blocks'.
inline constexpr std::ptrdiff_t fetch_ahead = 24;

/// The most terms of a block whose panel has `columns`.
template <class Scalar>
[[nodiscard]] constexpr std::ptrdiff_t block_terms(std::size_t columns) noexcept {
  return static_cast<std::ptrdiff_t>(block_bytes / (columns * sizeof(Scalar)));
}

/// Calls f(loops, left offset, right offset, terms) for blocks of at most `most` terms, in order.
template <class Function>
inline void for_each_block(const loop (&reduce)[4], std::ptrdiff_t most, Function&& f) {
  constexpr int outward[4] = {2, 1, 0, 3};
  std::ptrdiff_t step[4] = {1, 1, 1, 1};
  std::ptrdiff_t inside = 1;
  for (const int level : outward) {
    const std::ptrdiff_t extent = reduce[level].extent;
    const std::ptrdiff_t together = most / inside < 1 ? 1 : most / inside;
    const std::ptrdiff_t blocks = (extent + together - 1) / together;
    step[level] = (extent + blocks - 1) / blocks;  // even
    inside *= extent;
    if (blocks > 1) break;
  }
  loop part[4] = {reduce[0], reduce[1], reduce[2], reduce[3]};
  const auto cut = [&](int level, std::ptrdiff_t begin) {
    const std::ptrdiff_t left = reduce[level].extent - begin;
    part[level].extent = left < step[level] ? left : step[level];
  };
  for (std::ptrdiff_t i = 0; i < reduce[3].extent; i += step[3]) {
    cut(3, i);
    for (std::ptrdiff_t j = 0; j < reduce[0].extent; j += step[0]) {
      cut(0, j);
      for (std::ptrdiff_t k = 0; k < reduce[1].extent; k += step[1]) {
        cut(1, k);
        for (std::ptrdiff_t l = 0; l < reduce[2].extent; l += step[2]) {
          cut(2, l);
          f(part, i * reduce[3].left + j * reduce[0].left + k * reduce[1].left + l * reduce[2].left,
            i * reduce[3].right + j * reduce[0].right + k * reduce[1].right + l * reduce[2].right);
        }
      }
    }
  }
}

/// Copies the rows of `right` that a block's terms read side by side, each `columns` wide of which `count` exist,
/// `right_column` apart, and makes its loops read the copy.
template <class Scalar>
inline void copy_terms(loop (&part)[4], const Scalar* right, std::ptrdiff_t right_column, std::size_t columns,
                       std::size_t count, Scalar* copy) noexcept {
  for (std::ptrdiff_t i = 0; i < part[3].extent; ++i) {
    for (std::ptrdiff_t j = 0; j < part[0].extent; ++j) {
      for (std::ptrdiff_t k = 0; k < part[1].extent; ++k) {
        const Scalar* from = right + i * part[3].right + j * part[0].right + k * part[1].right;
        if (right_column != 1) {
          const std::ptrdiff_t terms = part[2].extent;
          if (count < columns) std::memset(copy, 0, static_cast<std::size_t>(terms) * columns * sizeof(Scalar));
          transpose(from, right_column, static_cast<std::ptrdiff_t>(count), terms, copy,
                    static_cast<std::ptrdiff_t>(columns));
          copy += terms * static_cast<std::ptrdiff_t>(columns);
          continue;
        }
        for (std::ptrdiff_t l = 0; l < part[2].extent; ++l) {
          std::memcpy(copy, from, count * sizeof(Scalar));
          if (count < columns) std::memset(copy + count, 0, (columns - count) * sizeof(Scalar));
          copy += columns;
          from += part[2].right;
        }
      }
    }
  }
  part[2].right = static_cast<std::ptrdiff_t>(columns);
  part[1].right = part[2].extent * part[2].right;
  part[0].right = part[1].extent * part[1].right;
  part[3].right = part[0].extent * part[0].right;
}

/// A block of terms, and where it begins.
struct term_block {
  loop part[4];
  std::ptrdiff_t left = 0;
  std::ptrdiff_t right = 0;
  [[nodiscard]] std::ptrdiff_t terms() const noexcept {
    return part[0].extent * part[1].extent * part[2].extent * part[3].extent;
  }
};

/// Fetches terms begin .. end - 1 of the rows of `right` that the block reads into the second cache.
template <class Scalar>
inline void fetch_terms(const term_block& block, const Scalar* right, std::ptrdiff_t right_column, std::size_t columns,
                        std::ptrdiff_t begin, std::ptrdiff_t end) noexcept {
  constexpr std::size_t cache_line = 64 / sizeof(Scalar);
  const loop(&part)[4] = block.part;
  for (std::ptrdiff_t term = begin; term < end; ++term) {
    const std::ptrdiff_t row = term / part[2].extent;
    const std::ptrdiff_t plane = row / part[1].extent;
    const Scalar* from = right + block.right + term % part[2].extent * part[2].right +
                         row % part[1].extent * part[1].right + plane % part[0].extent * part[0].right +
                         plane / part[0].extent * part[3].right;
    if (right_column != 1) {  // a cache line has the terms behind it as well
      if (term % static_cast<std::ptrdiff_t>(cache_line) != 0) continue;
      for (std::size_t at = 0; at < columns; ++at) {
        __builtin_prefetch(from + static_cast<std::ptrdiff_t>(at) * right_column, 0, 2);
      }
      continue;
    }
    for (std::size_t at = 0; at < columns; at += cache_line) __builtin_prefetch(from + at, 0, 2);
  }
}

/// The sums of the next `blocks` register blocks.
template <class Scalar>
[[gnu::noinline]] void form_block(const register_walk& begin, std::size_t blocks, const loop (&reduce)[4],
                                  std::ptrdiff_t right_column, const micro_kernel_width<Scalar>& chosen,
                                  micro_kernel_task<Scalar> task, const Scalar* left, Scalar* sums) noexcept {
  const std::size_t columns = chosen.vectors * task.whole;
  const std::size_t count_of_columns = columns - task.whole + task.last;
  alignas(64) Scalar copy[block_bytes / sizeof(Scalar)];
  const Scalar* const right = task.right;
  task.resumes = false;
  task.sum_offset = chosen.packed;
  task.right = copy;
  const auto form = [&](term_block block, const term_block& next) {
    copy_terms(block.part, right + block.right, right_column, columns, count_of_columns, copy);
    task.reduce = block.part;
    register_walk walk = begin;
    const std::ptrdiff_t terms = next.terms();
    const auto in_all = static_cast<std::ptrdiff_t>(blocks);
    for (std::ptrdiff_t number = 0; number < in_all; ++number) {
      fetch_terms(next, right, right_column, count_of_columns, number * terms / in_all, (number + 1) * terms / in_all);
      const std::size_t count = walk.count();
      const register_rows place = walk.next(count, chosen.formed[count - 1]);
      task.left = left + block.left + place.left;
      task.row_offset = place.left_offset;
      task.sums = sums + static_cast<std::size_t>(number) * chosen.max_rows * columns;
      chosen.by_rows[count - 1](task);
    }
    task.resumes = true;
  };
  term_block first{};
  term_block before{};
  bool any = false;
  for_each_block(reduce, block_terms<Scalar>(columns),
                 [&](const loop(&part)[4], std::ptrdiff_t left_offset, std::ptrdiff_t right_offset) {
                   const term_block here{{part[0], part[1], part[2], part[3]}, left_offset, right_offset};
                   if (any) {
                     form(before, here);
                   } else {
                     first = here;
                   }
                   any = true;
                   before = here;
                 });
  form(before, first);
}

}  // namespace product_detail

}  // namespace pergrad::inline v0_1::on_host
