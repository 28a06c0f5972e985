// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gemm/product_shape.hpp - extents and strides of a product, and the fewest loops that say the same
#pragma once

#include <cstddef>

#include <pergrad/host/gemm/micro_kernel.hpp>

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
/// Rows of the output are contiguous along the columns, and those of the right operand are unless `right_column` says
/// otherwise. Extents and columns are >= 0.
struct product_shape {
  rows row[3];
  loop reduce[3];
  std::ptrdiff_t columns = 0;
  rows outer_row{};               ///< around the three row loops; volumes need it
  loop outer_reduce{};            ///< around the three reduction loops
  std::ptrdiff_t next_right = 0;  ///< from a term on the right to what the next product reads there; 0: nothing known
  /// From a column of the right operand to the next one. Other than 1: the operand lies transposed, the terms of the
  /// innermost loop side by side (`right` is 1 there).
  std::ptrdiff_t right_column = 1;
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

}  // namespace pergrad::inline v0_1::on_host
