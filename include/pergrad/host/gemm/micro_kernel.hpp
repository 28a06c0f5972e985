// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gemm/micro_kernel.hpp - the micro-kernels of the host's product: what they are given, their targets,
// and which is used
//
// The kernels know nothing of what becomes of the sums; they leave them in a small buffer, from which another function
// of the same target finishes them (host/gemm/finish.inl). So there is one set for each target and scalar type,
// whatever the number of epilogues, and a program that uses all of them still compiles quickly.
//
// A kernel works on vectors as wide as its processor has, so its source (host/gemm/micro_kernel.inl) is compiled once
// for each target, under its pragma. All targets do the same multiply-adds in the same order; avx512, avx2 and every
// baseline whose flags allow a fused multiply-add therefore give the same bits, and one without rounds twice.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include <pergrad/detail/limits.hpp>
#include <pergrad/host/gemm/epilogue.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/processor.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// One reduction loop: its extent, and its strides (in elements) in the left and in the right operand.
struct loop {
  std::ptrdiff_t extent = 1;
  std::ptrdiff_t left = 0;
  std::ptrdiff_t right = 0;
  friend constexpr bool operator==(const loop&, const loop&) = default;
};

namespace product_detail {

/// Of any target: the most rows of a register block, the bytes of a vector, and the most bytes of a register block's
/// sums.
inline constexpr std::size_t register_rows_limit = 10;
inline constexpr std::size_t widest_vector_bytes = PERGRAD_BEST_TARGET == 2 ? 64 : 32;
inline constexpr std::size_t register_bytes_limit = 32 * widest_vector_bytes;

/// What a register block reads and where it leaves its sums. Only the innermost reduction loop may be empty.
template <class Scalar>
struct micro_kernel_task {
  const Scalar* left = nullptr;
  const Scalar* right = nullptr;
  const loop* reduce = nullptr;                // [4]: from outer to inner, then the one around them
  const std::ptrdiff_t* row_offset = nullptr;  // in the left operand, one for each row that is formed
  Scalar* sums = nullptr;                      // of the register block's first row, a row `vectors * lanes` long
  const std::ptrdiff_t* sum_offset = nullptr;  // from there, one for each row
  std::size_t last = 0;                        // the columns that the last vector of a row has
  std::size_t whole = 0;                       // those of a whole one
  bool resumes = false;                        // `sums` holds what earlier terms of the reduction gave
  std::ptrdiff_t left_ahead = 0;               // from a term on the left to what to fetch into the cache meanwhile
  std::ptrdiff_t right_ahead = 0;              // from one on the right to what wide blocks fetch into the second cache
};

/// The sums of a register block and what becomes of them; of several register blocks where the kernel has left them in
/// `out` and squares are all that is left to do.
template <class Scalar>
struct finish_task {
  const epilogue::request<Scalar>& how;
  const Scalar* sums;
  std::size_t vectors = 0;
  std::size_t last = 0;
  std::size_t rows = 0;
  Scalar* out = nullptr;                       // the register block's first element; null where nothing is stored
  const std::ptrdiff_t* row_offset = nullptr;  // in the output, one for each row of the register block
  const Scalar* bias = nullptr;                // of the register block's first column
  const std::ptrdiff_t* sum_offset = nullptr;  // of `sums`, one for each row
  bool stored = false;                         // the kernel has left its sums in `out`
  std::ptrdiff_t step = 0;                     // stored: from row to row of the output
};

/// The squares of those sums added up, whatever floats they are: each is squared in double.
template <class Scalar>
[[nodiscard, gnu::cold]] double squares_one_by_one(const finish_task<Scalar>& task, std::size_t columns) noexcept {
  double total = 0;
  for (std::size_t row = 0; row < task.rows; ++row) {
    const Scalar* here =
        task.stored ? task.out + static_cast<std::ptrdiff_t>(row) * task.step : task.sums + task.sum_offset[row];
    for (std::size_t column = 0; column < columns; ++column) {
      const auto value = static_cast<double>(here[column]);
      total = multiply_add(value, value, total);
    }
  }
  return total;
}

template <class Scalar>
using micro_kernel_function = void (*)(const micro_kernel_task<Scalar>&) noexcept;

/// The register blocks of one width.
template <class Scalar>
struct micro_kernel_width {
  std::size_t vectors;
  std::size_t max_rows;
  const micro_kernel_function<Scalar>* by_rows;  // [rows - 1]
  const std::size_t* formed;     // [rows - 1]: the rows that it forms, perhaps the last one more than once
  const std::ptrdiff_t* packed;  // offsets of rows that lie side by side
};

/// The register blocks of one target; `widths` are 1, 2, 4 and 8 vectors, or narrower ones again.
template <class Scalar>
struct micro_kernels {
  std::size_t lanes;
  micro_kernel_width<Scalar> widths[4];
  void (*finish)(const finish_task<Scalar>&) noexcept;

  /// The width whose register blocks hold the most sums on average: they hide the latency of a multiply-add and reuse
  /// what is read. Wide register blocks have whole vectors only; of `columns_left` columns the last ones may leave a
  /// narrow one's last vector partly empty.
  [[nodiscard, gnu::noinline]] constexpr const micro_kernel_width<Scalar>& choose(
      std::size_t row_count, std::size_t columns_left) const noexcept {
    const std::size_t whole = columns_left / lanes;
    if (whole < 4) {
      return widths[columns_left <= lanes ? 0 : 1];
    }
    const auto sums_in_flight = [row_count](const micro_kernel_width<Scalar>& width) {
      return row_count < width.max_rows
                 ? row_count * width.vectors
                 : row_count * width.vectors / ((row_count + width.max_rows - 1) / width.max_rows);
    };
    const std::size_t in_two = sums_in_flight(widths[1]);
    const std::size_t in_four = sums_in_flight(widths[2]);
    const std::size_t in_eight = whole < 8 ? 0 : sums_in_flight(widths[3]);
    return widths[in_eight > in_four && in_eight > in_two ? 3 : in_four > in_two ? 2 : 1];
  }
};

}  // namespace product_detail

}  // namespace pergrad::inline v0_1::on_host

#define PERGRAD_TARGET_SOURCE "pergrad/host/gemm/finish.inl"
#include <pergrad/simd/multi_target.inl>
#define PERGRAD_TARGET_SOURCE "pergrad/host/gemm/micro_kernel.inl"
#include <pergrad/simd/multi_target.inl>

namespace pergrad::inline v0_1::on_host {

namespace product_detail {

/// The register blocks of a target, which must be compiled into the program.
template <class Scalar>
[[nodiscard]] inline const micro_kernels<Scalar>& micro_kernels_of(kernel_target target) noexcept {
  return PERGRAD_OF_TARGET(target, gemm::kernels<Scalar>);
}

}  // namespace product_detail

}  // namespace pergrad::inline v0_1::on_host
