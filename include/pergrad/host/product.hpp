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
// tile an element falls into nor on how the caller cuts rows and columns.
#pragma once

#include <cstddef>

#include <pergrad/detail/processor.hpp>
#include <pergrad/host/epilogue.hpp>
#include <pergrad/host/tile.hpp>

namespace pergrad::inline v0_1::on_host {

/// One row loop: its extent, and its strides (in elements) in the left operand and in the output.
struct rows {
  std::ptrdiff_t extent = 1;
  std::ptrdiff_t left = 0;
  std::ptrdiff_t out = 0;
  friend constexpr bool operator==(const rows&, const rows&) = default;
};

/// Extents and strides of a product; the last of the row and of the reduction loops is the innermost.
///
/// Rows of the right operand and of the output are contiguous along the columns. Extents and columns are >= 0.
struct product_shape {
  rows row[3];
  loop reduce[3];
  std::ptrdiff_t columns = 0;
  rows outer_row{};     ///< around the three row loops; volumes need it
  loop outer_reduce{};  ///< around the three reduction loops
  friend constexpr bool operator==(const product_shape&, const product_shape&) = default;
};

/// The same product with the fewest loops: drops loops of extent 1, joins neighbours that step through memory as one.
///
/// The order of rows and of the reduction stays, so results keep their bits. Meant to be called once, at compile time.
[[nodiscard]] constexpr product_shape coalesce(product_shape shape) noexcept {
  if (shape.row[0].extent == 1) {
    shape.row[0] = shape.outer_row;
    shape.outer_row = rows{};
  }
  if (shape.reduce[0].extent == 1) {
    shape.reduce[0] = shape.outer_reduce;
    shape.outer_reduce = loop{};
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (int outer = 1; outer >= 0; --outer) {
      rows& above = shape.row[outer];
      rows& below = shape.row[outer + 1];
      if (below.extent == 1) {
        below = above;
        above = rows{};
      } else if (above.left == below.extent * below.left && above.out == below.extent * below.out) {
        below.extent *= above.extent;
        above = rows{};
      }
      loop& slow = shape.reduce[outer];
      loop& fast = shape.reduce[outer + 1];
      if (fast.extent == 1) {
        fast = slow;
        slow = loop{};
      } else if (slow.left == fast.extent * fast.left && slow.right == fast.extent * fast.right) {
        fast.extent *= slow.extent;
        slow = loop{};
      }
    }
  }
  if (shape.outer_row.extent != 1 || shape.outer_reduce.extent != 1) {
    rows& row = shape.row[0];
    const bool row_joins = shape.outer_row.extent != 1 && shape.outer_row.left == row.extent * row.left &&
                           shape.outer_row.out == row.extent * row.out;
    if (row_joins) {
      row.extent *= shape.outer_row.extent;
      shape.outer_row = rows{};
    }
    loop& reduce = shape.reduce[0];
    const bool reduce_joins = shape.outer_reduce.extent != 1 &&
                              shape.outer_reduce.left == reduce.extent * reduce.left &&
                              shape.outer_reduce.right == reduce.extent * reduce.right;
    if (reduce_joins) {
      reduce.extent *= shape.outer_reduce.extent;
      shape.outer_reduce = loop{};
    }
    const bool moves =
        (shape.outer_row.extent != 1 && row.extent == 1) || (shape.outer_reduce.extent != 1 && reduce.extent == 1);
    if (moves) return coalesce(shape);
  }
  return shape;
}

namespace product_detail {

/// Where the rows of a tile begin: one place, and offsets from it.
struct tile_rows {
  std::ptrdiff_t left;
  std::ptrdiff_t out;
  const std::ptrdiff_t* left_offset;
  const std::ptrdiff_t* out_offset;
};

/// Steps through the rows of a product in order, a tile at a time.
class row_cursor {
 public:
  explicit row_cursor(const product_shape& shape) noexcept : row_{shape.row}, outermost_row_{shape.outer_row} {
    for (std::size_t step = 0; step < tile_rows_limit; ++step) {
      even_left_[step] = static_cast<std::ptrdiff_t>(step) * row_[2].left;
      even_out_[step] = static_cast<std::ptrdiff_t>(step) * row_[2].out;
    }
  }

  void restart() noexcept { inner_ = middle_ = outer_ = outermost_ = left_ = out_ = 0; }

  /// The next `count` rows, which must exist; valid until the next call.
  [[nodiscard]] tile_rows next(std::ptrdiff_t count) noexcept {
    if (count <= row_[2].extent - inner_) {  // evenly spaced
      const tile_rows found{left_, out_, even_left_, even_out_};
      advance(count);
      return found;
    }
    const tile_rows found{left_, out_, uneven_left_, uneven_out_};
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
  std::ptrdiff_t even_left_[tile_rows_limit] = {};
  std::ptrdiff_t even_out_[tile_rows_limit] = {};
  std::ptrdiff_t uneven_left_[tile_rows_limit] = {};
  std::ptrdiff_t uneven_out_[tile_rows_limit] = {};
};

/// Panels of columns outside, tiles of rows inside: a panel of `right` stays in the cache while `left` passes by.
template <class Scalar>
void sweep(const tile_family<Scalar>& family, const product_shape& shape, const Scalar* left, const Scalar* right,
           Scalar* out, const epilogue::request<Scalar>& how) noexcept {
  const std::size_t lanes = family.lanes;
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
  alignas(64) Scalar sums[tile_bytes_limit / sizeof(Scalar)];
  row_cursor cursor{shape};
  tile_task<Scalar> task{left, right, reduce, nullptr, sums, lanes, lanes};
  finish_task<Scalar> rest{how, sums};
  for (std::size_t column = 0; column < columns;) {
    const tile_width<Scalar>& chosen = family.choose(row_count, (columns - column + lanes - 1) / lanes);
    rest.vectors = chosen.vectors;
    if (columns - column < chosen.vectors * lanes) {
      task.last = columns - column - (chosen.vectors - 1) * lanes;
    }
    rest.last = task.last;
    if (how.bias != nullptr) rest.bias = how.bias + column;
    task.right = right + column;
    cursor.restart();
    std::size_t rows_left = row_count;
    for (std::size_t tiles_left = (row_count + chosen.max_rows - 1) / chosen.max_rows; tiles_left > 0; --tiles_left) {
      std::size_t count = chosen.max_rows;
      if (rows_left < 3 * count) {  // even out the last tiles
        count = tiles_left == 1 ? rows_left : tiles_left == 2 ? (rows_left + 1) / 2 : (rows_left + 2) / 3;
      }
      rows_left -= count;
      const tile_rows place = cursor.next(static_cast<std::ptrdiff_t>(count));
      task.left = left + place.left;
      task.row_offset = place.left_offset;
      chosen.by_rows[count - 1](task);
      rest.rows = count;
      if (out != nullptr) rest.out = out + place.out + column;
      rest.row_offset = place.out_offset;
      family.finish(rest);
    }
    column += chosen.vectors * lanes;
  }
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
  product_detail::sweep(product_detail::tiles_of<Scalar>(kernel_family_in_use()), shape, left, right, out, how);
}

}  // namespace pergrad::inline v0_1::on_host
