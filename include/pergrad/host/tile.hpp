// SPDX-License-Identifier: Apache-2.0
// pergrad/host/tile.hpp - the micro-kernels of the host's product: a few rows times a few vectors of sums in registers
//
// A tile of rows x vectors of sums stays in registers for the whole reduction (the "outer product" micro-kernel of Goto
// and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008): each step of the
// reduction reads `vectors` vectors on the right, broadcasts `rows` numbers from the left and does rows*vectors
// multiply-adds. The rows of a tile are addressed by a table of offsets, so a tile may span any number of short row
// loops.
//
// The kernels know nothing of what becomes of the sums; they leave them in a small buffer. So there is one set for each
// scalar type, whatever the number of epilogues, and a program that uses all of them still compiles quickly.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include <pergrad/detail/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// One reduction loop: its extent, and its strides (in elements) in the left and in the right operand.
struct loop {
  std::ptrdiff_t extent = 1;
  std::ptrdiff_t left = 0;
  std::ptrdiff_t right = 0;
  friend constexpr bool operator==(const loop&, const loop&) = default;
};

namespace product_detail {

/// Most rows of any tile: their offsets, two pointers, two steps and a count stay in general registers.
inline constexpr std::size_t tile_rows_limit = vector_registers == 32 && vector_bytes == 16 ? 10 : 9;

/// Vector registers of a tile that hold neither sums nor a row of `right`: one for the broadcast; g++ 12 for aarch64
/// moves loads so far up that it wants more.
inline constexpr std::size_t tile_spare_registers = vector_registers == 32 && vector_bytes == 16 ? 5 : 1;

/// Most rows of a tile that is `vectors` wide, so that nothing it uses leaves the registers.
constexpr std::size_t max_tile_rows(std::size_t vectors) noexcept {
  const std::size_t fitting = (vector_registers - tile_spare_registers) / vectors - 1;
  return fitting < 1 ? 1 : fitting < tile_rows_limit ? fitting : tile_rows_limit;
}

/// What a tile reads and where it leaves its sums. Only the innermost reduction loop may be empty.
template <class Scalar>
struct tile_task {
  const Scalar* left;
  const Scalar* right;
  const loop* reduce;                // [4]: from outer to inner, then the one around them
  const std::ptrdiff_t* row_offset;  // in the left operand, one for each row of the tile
  Scalar* sums;                      // [rows][vectors * lanes], aligned to a vector
  first_lanes<Scalar> last;          // the columns that the last vector of a row has
  first_lanes<Scalar> whole;         // all of them, which compilers are not to know
};

/// Vector `Vector` of a row on the right. In wide tiles g++ would read it again from memory for every row of the tile;
/// a load under a mask cannot be repeated as an operand of the multiply-add and stays in its register.
template <std::size_t Rows, std::size_t Vectors, std::size_t Vector, class Scalar>
[[nodiscard]] inline vector<Scalar> across_of(const Scalar* right, const first_lanes<Scalar>& whole,
                                              const first_lanes<Scalar>& last) noexcept {
  if constexpr (Vector + 1 == Vectors) {
    return last.load(right + Vector * vector_lanes<Scalar>);
  } else if constexpr (vector_bytes == 64 && Rows > 1 && Vectors > 2) {
    return whole.load(right + Vector * vector_lanes<Scalar>);
  } else {
    return load(right + Vector * vector_lanes<Scalar>);
  }
}

/// The micro-kernel. Slot = row * Vectors + vector; every fold is over constants, so each sum is a register of its own.
template <std::size_t Rows, std::size_t Vectors, class Scalar, std::size_t... Row, std::size_t... Vector,
          std::size_t... Slot>
inline void tile_steps(const tile_task<Scalar>& task, std::index_sequence<Row...>, std::index_sequence<Vector...>,
                       std::index_sequence<Slot...>) noexcept {
  constexpr std::size_t lanes = vector_lanes<Scalar>;
  const std::ptrdiff_t offset[Rows] = {task.row_offset[Row]...};
  const first_lanes<Scalar> last = task.last;
  const first_lanes<Scalar> whole = task.whole;
  const std::ptrdiff_t left_step = task.reduce[2].left;
  const std::ptrdiff_t right_step = task.reduce[2].right;
  vector<Scalar> sums[Rows * Vectors] = {};
  const Scalar* left = task.left;
  const Scalar* right = task.right;
  // Volatile: what only the outer loops need stays in memory and leaves the registers to the innermost loop.
  const volatile loop* const volatile reduce = task.reduce;
  const Scalar* volatile outer_left = left;
  const Scalar* volatile outer_right = right;
  const Scalar* volatile middle_left = left;
  const Scalar* volatile middle_right = right;
  volatile std::ptrdiff_t outermost = 0;
  volatile std::ptrdiff_t outer_count = reduce[0].extent;
  volatile std::ptrdiff_t middle_count = reduce[1].extent;
  for (;;) {
    for (std::ptrdiff_t count = reduce[2].extent; count > 0; --count) {
      const vector<Scalar> across[Vectors] = {across_of<Rows, Vectors, Vector>(right, whole, last)...};
      vector<Scalar> down = {};
      ((down = Slot % Vectors == 0 ? splat(left[offset[Slot / Vectors]]) : down,
        sums[Slot] = sums[Slot] + down * across[Slot % Vectors]),
       ...);
      left += left_step;
      right += right_step;
    }
    middle_count = middle_count - 1;
    if (middle_count > 0) {
      left = middle_left + reduce[1].left;
      right = middle_right + reduce[1].right;
    } else {
      outer_count = outer_count - 1;
      if (outer_count > 0) {
        left = outer_left + reduce[0].left;
        right = outer_right + reduce[0].right;
      } else {
        outermost = outermost + 1;
        if (outermost >= reduce[3].extent) {
          break;
        }
        left = task.left + outermost * reduce[3].left;
        right = task.right + outermost * reduce[3].right;
        outer_count = reduce[0].extent;
      }
      outer_left = left;
      outer_right = right;
      middle_count = reduce[1].extent;
    }
    middle_left = left;
    middle_right = right;
  }
  Scalar* const to = task.sums;
  (store(to + Slot * lanes, sums[Slot]), ...);
}

template <class Scalar, std::size_t Rows, std::size_t Vectors>
void tile(const tile_task<Scalar>& task) noexcept {
  tile_steps<Rows, Vectors>(task, std::make_index_sequence<Rows>{}, std::make_index_sequence<Vectors>{},
                            std::make_index_sequence<Rows * Vectors>{});
}

template <class Scalar>
using tile_function = void (*)(const tile_task<Scalar>&) noexcept;

template <class Scalar, std::size_t Vectors, std::size_t... Row>
constexpr std::array<tile_function<Scalar>, sizeof...(Row)> tiles_of(std::index_sequence<Row...>) noexcept {
  return {&tile<Scalar, Row + 1, Vectors>...};
}

template <class Scalar, std::size_t Vectors>
inline constexpr auto tiles = tiles_of<Scalar, Vectors>(std::make_index_sequence<max_tile_rows(Vectors)>{});

/// The tiles of one width.
template <class Scalar>
struct tile_family {
  std::size_t vectors;
  std::size_t max_rows;
  const tile_function<Scalar>* by_rows;  // [rows - 1]
};

template <class Scalar, std::size_t Vectors>
inline constexpr tile_family<Scalar> family{Vectors, max_tile_rows(Vectors), tiles<Scalar, Vectors>.data()};

/// The width whose tiles hold the most sums on average: they hide the latency of a multiply-add and reuse what is read.
template <class Scalar>
[[nodiscard]] inline const tile_family<Scalar>& choose_family(std::size_t row_count,
                                                              std::size_t vectors_left) noexcept {
  if (vectors_left < 4) {
    return vectors_left < 2 ? family<Scalar, 1> : family<Scalar, 2>;
  }
  const auto sums_in_flight = [row_count](std::size_t vectors, std::size_t max_rows) {
    return row_count < max_rows ? row_count * vectors : row_count * vectors / ((row_count + max_rows - 1) / max_rows);
  };
  const std::size_t in_two = sums_in_flight(2, max_tile_rows(2));
  const std::size_t in_four = sums_in_flight(4, max_tile_rows(4));
  const std::size_t in_eight = vectors_left < 8 ? 0 : sums_in_flight(8, max_tile_rows(8));
  return in_eight > in_four && in_eight > in_two ? family<Scalar, 8>
         : in_four > in_two                      ? family<Scalar, 4>
                                                 : family<Scalar, 2>;
}

}  // namespace product_detail

}  // namespace pergrad::inline v0_1::on_host
