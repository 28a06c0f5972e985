// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/device/tensor.hpp - what a warp's threads hold of a product on tensor cores, and that product as the
// host emulates it
//
// mma.m16n8k8 of TF32 (PTX ISA, "Matrix fragments for mma.m16n8k8"): lane 4 g + q of a warp holds
//
//   of A, 16 x 8, rows g and g + 8, columns q and q + 4
//   of B, 8 x 8, column g, rows q and q + 4
//   of C and D, 16 x 8, rows g and g + 8, columns 2 q and 2 q + 1
//
// Which row of a matrix is called which row of a fragment is free. So that what a thread reads lies side by side, in
// the order of its registers, rows g and g + 8 of a fragment are neighbours, and so are columns g of two fragments.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1::on_device {

/// A thread's operands of a warp's product, 16 RowPairs x 32 results and 8 deep.
template <int RowPairs>
struct tf32_fragments {
  static constexpr int row_pairs = RowPairs;
  static constexpr int column_pairs = 2;
  float left[static_cast<std::size_t>(row_pairs)][4];      ///< A's registers of a product
  float right[static_cast<std::size_t>(column_pairs)][4];  ///< B's of two
};

/// The registers of one mma.m16n8k8 for a thread: c += a b.
struct tf32_registers {
  float a[4];
  float b[2];
};
/// Those of product (i, j) of a warp, of RowPairs x 4.
template <int RowPairs>
[[nodiscard]] PERGRAD_HD tf32_registers registers_of(const tf32_fragments<RowPairs>& from, int i, int j) noexcept {
  const float(&a)[4] = from.left[i];
  const float(&b)[4] = from.right[j / 2];
  return {{a[0], a[1], a[2], a[3]}, {b[j % 2 * 2], b[j % 2 * 2 + 1]}};
}
/// Where register `number` of C stands among a thread's sums, 2 RowPairs rows of 8.
[[nodiscard]] PERGRAD_HD constexpr int place_of_result(int i, int j, int number) noexcept {
  return (2 * i + number / 2) * 8 + j / 2 * 4 + number % 2 * 2 + j % 2;
}

namespace emulation {

/// Operands whose bits below TF32's were not 0: somebody has forgotten to round them. For tests.
inline std::atomic<std::uint64_t> unrounded_operands{0};
/// What a tensor core sees of an operand: the bits below TF32's are ignored, not rounded.
[[nodiscard]] inline double tf32_bits(float x) noexcept {
  constexpr std::uint32_t below = 0x1fff;
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  if ((bits & below) != 0 && x == x) unrounded_operands.fetch_add(1, std::memory_order_relaxed);
  return static_cast<double>(__builtin_bit_cast(float, bits & ~below));
}
/// The instruction for a warp. Hardware adds up in an order and with roundings of its own, which are not published;
/// here the eight products and what was there before are added up in double.
inline void multiply_add_tf32(const tf32_registers (&from)[32], float (&c)[32][4]) noexcept {
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float& to = c[4 * (row % 8) + column / 2][row / 8 * 2 + column % 2];
      auto sum = static_cast<double>(to);
      for (int k = 0; k < 8; ++k) {
        const float a = from[4 * (row % 8) + k % 4].a[row / 8 + k / 4 * 2];
        const float b = from[4 * column + k % 4].b[k / 4];
        sum += tf32_bits(a) * tf32_bits(b);
      }
      to = static_cast<float>(sum);
    }
  }
}

}  // namespace emulation

}  // namespace pergrad::inline v0_1::on_device
