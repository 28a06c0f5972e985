// SPDX-License-Identifier: Apache-2.0
// pergrad/host/product.hpp - the host executor's one matrix product: overlapping strided view times rows of columns
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
// tile or block an element falls into nor on how the caller cuts rows and columns.
#pragma once

#include <cstddef>
#include <type_traits>

#include <pergrad/detail/vector.hpp>
#include <pergrad/host/blocks.hpp>
#include <pergrad/host/epilogue.hpp>
#include <pergrad/host/product_shape.hpp>
#include <pergrad/host/tile.hpp>

namespace pergrad::inline v0_1::on_host {

namespace product_detail {

/// Hands the sums of a tile to the epilogue, row by row. `Vectors` is its width, or 0 to take it from `vectors`.
/// Inlined by order, so that what an epilogue adds up stays in registers.
template <std::size_t Vectors, class Scalar, class Epilogue, class Lanes>
[[gnu::always_inline]] inline void finish(const Scalar* sums, std::size_t row_count, std::size_t vectors, Scalar* out,
                                          const tile_rows& place, std::ptrdiff_t column, const Lanes& last,
                                          Epilogue& epilogue) noexcept {
  constexpr std::size_t lanes = vector_lanes<Scalar>;
  for (std::size_t row = 0; row < row_count; ++row) {
    const std::ptrdiff_t begin = place.out + place.out_offset[row];
    std::ptrdiff_t at = column;
    for (std::size_t before_last = (Vectors == 0 ? vectors : Vectors) - 1; before_last > 0; --before_last) {
      epilogue(load(sums), out, begin + at, at, all_lanes<Scalar>{});
      at += static_cast<std::ptrdiff_t>(lanes);
      sums += lanes;
    }
    epilogue(load(sums), out, begin + at, at, last);
    sums += lanes;
  }
}

/// Hands the sums of a tile to the epilogue.
template <class Scalar, class Epilogue>
[[gnu::always_inline]] inline void finish_tile(const tile_task<Scalar>& task, std::size_t count, std::size_t vectors,
                                               Scalar* out, const tile_rows& place, std::size_t column, bool partial,
                                               Epilogue& epilogue) noexcept {
  const auto at = static_cast<std::ptrdiff_t>(column);
  if (partial) {
    finish<0>(task.sums, count, vectors, out, place, at, task.last, epilogue);
  } else if (vectors == 2) {
    finish<2>(task.sums, count, vectors, out, place, at, all_lanes<Scalar>{}, epilogue);
  } else {
    finish<0>(task.sums, count, vectors, out, place, at, all_lanes<Scalar>{}, epilogue);
  }
}

/// One panel of columns in blocks of rows and terms (blocks.hpp).
template <class Scalar, class Epilogue>
[[gnu::noinline]] void sweep_in_blocks(tile_walk walk, const loop (&reduce)[4], const tile_family<Scalar>& chosen,
                                       tile_task<Scalar> task, const Scalar* left, Scalar* out, std::size_t column,
                                       bool partial, Epilogue& given_epilogue) noexcept {
  Epilogue epilogue = given_epilogue;
  constexpr std::size_t lanes = vector_lanes<Scalar>;
  alignas(vector_bytes) Scalar sums[block_row_count * 8 * lanes];
  while (walk.tiles_left() > 0) {
    const std::size_t most = block_row_count / chosen.max_rows;
    const std::size_t tiles = walk.tiles_left() < most ? walk.tiles_left() : most;
    form_block(walk, tiles, reduce, chosen, task, left, sums);
    for (std::size_t tile = 0; tile < tiles; ++tile) {
      const std::size_t count = walk.count();
      const tile_rows place = walk.next(count);
      task.sums = sums + tile * chosen.max_rows * chosen.vectors * lanes;
      finish_tile(task, count, chosen.vectors, out, place, column, partial, epilogue);
    }
  }
  given_epilogue = epilogue;
}

/// Panels of columns outside, tiles of rows inside: a panel of `right` stays in the cache while `left` passes by.
template <class Scalar, class Epilogue>
void sweep(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
           Epilogue& given_epilogue) noexcept {
  constexpr std::size_t lanes = vector_lanes<Scalar>;
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
  const std::ptrdiff_t terms = reduce[0].extent * reduce[1].extent * reduce[2].extent * reduce[3].extent;
  const bool blocks = row_count >= fewest_rows_to_block &&
                      terms * reduce[2].right * static_cast<std::ptrdiff_t>(sizeof(Scalar)) > least_bytes_to_block;
  Epilogue epilogue = given_epilogue;  // a copy that no store can alias
  alignas(vector_bytes) Scalar sums[vector_registers * lanes];
  tile_task<Scalar> task{left, right, reduce, nullptr, sums, first_lanes<Scalar>{lanes}, first_lanes<Scalar>{lanes}};
  if (shape.row[2].left == 1) task.ahead = fetch_ahead;
  for (std::size_t column = 0; column < columns;) {
    const tile_family<Scalar>& chosen = choose_family<Scalar>(row_count, (columns - column + lanes - 1) / lanes);
    const std::size_t vectors = chosen.vectors;
    const bool partial = columns - column < vectors * lanes;
    if (partial) {
      task.last = first_lanes<Scalar>{columns - column - (vectors - 1) * lanes};
    }
    task.right = right + column;
    tile_walk walk{shape, row_count, chosen.max_rows};
    if (blocks && terms > block_terms<Scalar>(vectors)) {
      Epilogue passed = epilogue;  // by reference, which the one of the other loop must never be
      sweep_in_blocks(walk, reduce, chosen, task, left, out, column, partial, passed);
      epilogue = passed;
    } else {
      while (walk.tiles_left() > 0) {
        const std::size_t count = walk.count();
        const tile_rows place = walk.next(count);
        task.left = left + place.left;
        task.row_offset = place.left_offset;
        chosen.by_rows[count - 1](task);
        finish_tile(task, count, vectors, out, place, column, partial, epilogue);
      }
    }
    column += vectors * lanes;
  }
  given_epilogue = epilogue;
}

}  // namespace product_detail

/// Multiplies as `shape` says and hands every vector of sums to `epilogue`; `Scalar` is float or double.
///
/// Reads and writes exactly the elements that the formula names: nothing beyond `columns` on the right or in the
/// output. `out` overlaps neither operand. Allocates nothing. A reduction of extent 0 gives sums of 0. `epilogue` is
/// one of namespace `epilogue`; those that add squares keep them, so pass a variable and ask it afterwards.
template <class Scalar, class Epilogue = epilogue::store>
void product(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
             Epilogue&& epilogue = Epilogue{}) noexcept {
  if constexpr (std::is_const_v<std::remove_reference_t<Epilogue>>) {
    auto copy = epilogue;
    product_detail::sweep(shape, left, right, out, copy);
  } else {
    product_detail::sweep(shape, left, right, out, epilogue);
  }
}

}  // namespace pergrad::inline v0_1::on_host
