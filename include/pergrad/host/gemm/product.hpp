// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gemm/product.hpp - the host executor's one matrix product: overlapping strided view times rows of
// columns
//
//   out[r][n]  (op)=  sum over k of  left[r.left + k.left] * right[k.right + n],     n = 0 .. columns-1
//
// r runs over up to four nested row loops, k over up to four nested reduction loops, all with strides of their own.
// Nothing asks that different (r, k) read different elements of `left`, and that is the point: in a channels-last image
// whose rows lie `pitch` apart, the patches of a convolution are such a view, so with the output gradient called delta
//   forward           rows (oh, ow)          reduce (kh, kw*C)   left = image    right = packed weights
//   input gradient    rows (ih, iw)          reduce (kh, kw*F)   left = delta    right = flipped packed weights
//   weight gradient   rows (kh, kw*C)        reduce (oh, ow)     left = image    right = delta
// and the three products of a linear layer are the same with fewer loops. Nothing is copied or packed on the left.
//
// Every sum is one chain of multiply-adds in the order of the reduction loops. Its bits therefore depend neither on the
// register block an element falls into nor on how the caller cuts rows and columns.
#pragma once

#include <cstddef>
#include <type_traits>

#include <pergrad/host/gemm/blocks.hpp>
#include <pergrad/host/gemm/epilogue.hpp>
#include <pergrad/host/gemm/micro_kernel.hpp>
#include <pergrad/host/gemm/product_shape.hpp>
#include <pergrad/simd/processor.hpp>

namespace pergrad::inline v0_1::on_host {

namespace product_detail {

/// One panel of columns in blocks of rows and terms (blocks.hpp).
template <class Scalar>
[[gnu::noinline]] void sweep_in_blocks(register_walk walk, const micro_kernels<Scalar>& kernels,
                                       const loop (&reduce)[4], std::ptrdiff_t right_column,
                                       const micro_kernel_width<Scalar>& chosen, const micro_kernel_task<Scalar>& task,
                                       finish_task<Scalar> rest, const Scalar* left, Scalar* out) noexcept {
  alignas(64) Scalar sums[block_row_count * 8 * widest_vector_bytes / sizeof(Scalar)];
  while (walk.blocks_left() > 0) {
    const std::size_t most = block_row_count / chosen.max_rows;
    const std::size_t blocks = walk.blocks_left() < most ? walk.blocks_left() : most;
    form_block(walk, blocks, reduce, right_column, chosen, task, left, sums);
    for (std::size_t block = 0; block < blocks; ++block) {
      rest.rows = walk.count();
      const register_rows place = walk.next(rest.rows, rest.rows);
      rest.sums = sums + block * chosen.max_rows * chosen.vectors * kernels.lanes;
      if (out != nullptr) rest.out = out + place.out;
      rest.row_offset = place.out_offset;
      kernels.finish(rest);
    }
  }
}

/// What a register block's sums will be added to comes from beyond the cache while they are formed.
template <class Scalar>
inline void fetch_to_add(const finish_task<Scalar>& to, std::size_t lanes) noexcept {
  for (std::size_t row = 0; row < to.rows; ++row) {
    for (std::size_t n = 0; n < to.vectors * lanes; n += 64 / sizeof(Scalar)) {
      __builtin_prefetch(to.out + to.row_offset[row] + n, 1);
    }
  }
}

/// Squares of what is stored are added up when so much of it has come together: it is still in the first cache, and the
/// kernels run on without a pause (docs/internals/tricks.md).
inline constexpr std::size_t bytes_to_square = std::size_t{1} << 14U;

/// Do all rows of the output lie as far apart as those of the innermost loop?
[[nodiscard]] inline bool rows_are_even(const product_shape& shape) noexcept {
  std::ptrdiff_t step = shape.row[2].out * shape.row[2].extent;
  for (const rows* row : {&shape.row[1], &shape.row[0], &shape.outer_row}) {
    if (row->extent > 1 && row->out != step) return false;
    step *= row->extent;
  }
  return true;
}

/// Panels of columns outside, register blocks of rows inside: a panel of `right` stays in the cache while `left` passes
/// by.
template <class Scalar>
void sweep(const micro_kernels<Scalar>& kernels, const product_shape& shape, const Scalar* left, const Scalar* right,
           Scalar* out, const epilogue::request<Scalar>& how) noexcept {
  const std::size_t lanes = kernels.lanes;
  const auto row_count = static_cast<std::size_t>(shape.outer_row.extent * shape.row[0].extent * shape.row[1].extent *
                                                  shape.row[2].extent);
  const auto columns = static_cast<std::size_t>(shape.columns);
  if (row_count == 0) {
    return;
  }
  loop reduce[4] = {shape.reduce[0], shape.reduce[1], shape.reduce[2], shape.outer_reduce};
  if (reduce[0].extent == 0 || reduce[1].extent == 0 || reduce[3].extent == 0) {  // only the innermost may be empty
    reduce[0].extent = reduce[1].extent = reduce[3].extent = 1;
    reduce[2].extent = 0;
  }
  alignas(64) Scalar sums[register_bytes_limit / sizeof(Scalar)];
  const std::ptrdiff_t terms = reduce[0].extent * reduce[1].extent * reduce[2].extent * reduce[3].extent;
  const bool turns = shape.right_column != 1;
  const bool blocks = row_count >= fewest_rows_to_block &&
                      terms * reduce[2].right * static_cast<std::ptrdiff_t>(sizeof(Scalar)) > least_bytes_to_block;
  micro_kernel_task<Scalar> task{left, right, reduce, nullptr, sums, nullptr, lanes, lanes};
  if (shape.row[2].left == 1) task.left_ahead = fetch_ahead;
  finish_task<Scalar> rest{how, sums};
  for (std::size_t column = 0; column < columns;) {
    const micro_kernel_width<Scalar>& chosen = kernels.choose(row_count, columns - column);
    rest.vectors = chosen.vectors;
    rest.sum_offset = task.sum_offset = chosen.packed;
    if (columns - column < chosen.vectors * lanes) {
      task.last = columns - column - (chosen.vectors - 1) * lanes;
    }
    rest.last = task.last;
    if (how.bias != nullptr) rest.bias = how.bias + column;
    task.right = right + static_cast<std::ptrdiff_t>(column) * shape.right_column;
    Scalar* const out_panel = out == nullptr ? nullptr : out + column;
    register_walk walk{shape, row_count, chosen.max_rows, chosen.formed};
    if (turns || (blocks && terms > block_terms<Scalar>(chosen.vectors * lanes))) {
      sweep_in_blocks(walk, kernels, reduce, shape.right_column, chosen, task, rest, left, out_panel);
    } else {
      // Whole vectors that are only stored need no buffer.
      const bool squares = how.what == epilogue::kind::squares_store;
      const bool stores = how.what == epilogue::kind::store || (squares && rows_are_even(shape));
      rest.stored = stores && task.last == lanes;
      rest.step = shape.row[2].out;
      const std::size_t rows_to_square = bytes_to_square / (chosen.vectors * lanes * sizeof(Scalar));
      std::size_t squared = 0;  // rows
      std::size_t formed = 0;
      std::size_t fetched = 0;  // columns of what the next product reads
      while (walk.blocks_left() > 0) {
        rest.rows = walk.count();
        if (shape.next_right != 0) {  // a line of every row with each of the first register blocks
          task.right_ahead =
              fetched < chosen.vectors * lanes ? shape.next_right + static_cast<std::ptrdiff_t>(fetched) : 0;
          fetched += 64 / sizeof(Scalar);
        }
        const register_rows place = walk.next(rest.rows, chosen.formed[rest.rows - 1]);
        task.left = left + place.left;
        task.row_offset = place.left_offset;
        if (out != nullptr) rest.out = out_panel + place.out;
        rest.row_offset = place.out_offset;
        if (rest.stored) {
          task.sums = rest.out;
          task.sum_offset = place.out_offset;
        } else if (how.what == epilogue::kind::add) {
          fetch_to_add(rest, lanes);
        }
        chosen.by_rows[rest.rows - 1](task);
        if (!rest.stored) {
          kernels.finish(rest);
        } else if (squares) {
          formed += rest.rows;
          if (formed - squared < rows_to_square && walk.blocks_left() > 0) continue;
          rest.rows = formed - squared;
          rest.out = out_panel + static_cast<std::ptrdiff_t>(squared) * rest.step;
          kernels.finish(rest);
          squared = formed;
        }
      }
      task.sums = sums;
      rest.stored = false;
    }
    column += chosen.vectors * lanes;
  }
}

/// The product with the register blocks of the target in use, out of line: products are asked for in many places.
template <class Scalar>
[[gnu::noinline]] void multiply(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
                                const epilogue::request<Scalar>& how) noexcept {
  sweep(micro_kernels_of<Scalar>(kernel_target_in_use()), shape, left, right, out, how);
}

}  // namespace product_detail

/// Multiplies as `shape` says and does with the sums what `epilogue` says; `Scalar` is float or double.
///
/// Reads and writes exactly the elements that the formula names: nothing beyond `columns` on the right or in the
/// output. `out` overlaps neither operand. Allocates nothing. A reduction of extent 0 gives sums of 0. `epilogue` is
/// one of namespace `epilogue`; those that add squares keep them, so pass a variable and ask it afterwards.
template <class Scalar, class Epilogue = epilogue::store>
void product(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
             Epilogue&& epilogue = Epilogue{}) noexcept {
  const epilogue::request<Scalar> how = epilogue.template ask<Scalar>();
  product_detail::multiply(shape, left, right, out, how);
}

/// out (=|+=) left * right + bias, without a bias if it is null.
template <class Scalar>
[[gnu::noinline]] void write_product(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
                                     const std::type_identity_t<Scalar>* bias, bool accumulate) {
  if (accumulate) {
    product(shape, left, right, out, epilogue::add{});
  } else if (bias != nullptr) {
    product(shape, left, right, out, epilogue::store_bias<Scalar>{bias});
  } else {
    product(shape, left, right, out, epilogue::store{});
  }
}

}  // namespace pergrad::inline v0_1::on_host
