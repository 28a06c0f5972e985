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
// mma.m16n8k16 of BF16 has two numbers in a register: where those of TF32 have depth w, they have depths 2 w and, in
// the upper half, 2 w + 1 ("Matrix fragments for mma.m16n8k16 with floating point type").
//
// Which row of a matrix is called which row of a fragment is free. So that what a thread reads lies side by side, in
// the order of its registers, rows g and g + 8 of a fragment are neighbours, and so are columns g of two fragments.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1::on_device {

/// What tensor cores multiply: `depth` of an instruction, and how many operands a register of 32 bits has.
struct tf32_format {
  static constexpr int depth = 8;
  static constexpr int together = 1;
};
struct bf16_format {
  static constexpr int depth = 16;
  static constexpr int together = 2;
};
/// Of a device: what it says, or TF32.
template <class Device>
struct tensor_format_of {
  using type = tf32_format;
};
template <class Device>
requires requires { typename Device::tensor_format; }
struct tensor_format_of<Device> {
  using type = typename Device::tensor_format;
};

template <class Device>
inline constexpr bool takes_bf16 = std::is_same_v<typename tensor_format_of<Device>::type, bf16_format>;

/// A register of two numbers as BF16 has them, rounded to nearest, ties to even.
[[nodiscard]] PERGRAD_HD inline float packed_as_bf16(float lower, float upper) noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(upper), "f"(lower));
  return __uint_as_float(both);
#else
  const auto half = [](float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    return (x == x ? bits + 0x7fffU + (bits >> 16U & 1U) : bits | 0x40'0000U) >> 16U;
  };
  return __builtin_bit_cast(float, half(upper) << 16U | half(lower));
#endif
}

/// A thread's operands of a warp's product, 16 RowPairs x 16 ColumnPairs results and as deep as an instruction.
template <class Format, int RowPairs, int ColumnPairs>
struct tensor_fragments {
  using format = Format;
  static constexpr int row_pairs = RowPairs;
  static constexpr int column_pairs = ColumnPairs;
  float left[static_cast<std::size_t>(row_pairs)][4];      ///< A's registers of a product
  float right[static_cast<std::size_t>(column_pairs)][4];  ///< B's of two
};

/// The registers of one instruction for a thread: c += a b.
struct tensor_registers {
  float a[4];
  float b[2];
};
/// Those of product (i, j) of a warp, of RowPairs x 2 ColumnPairs.
template <class Fragments>
[[nodiscard]] PERGRAD_HD tensor_registers registers_of(const Fragments& from, int i, int j) noexcept {
  const float(&a)[4] = from.left[i];
  const float(&b)[4] = from.right[j / 2];
  return {{a[0], a[1], a[2], a[3]}, {b[j % 2 * 2], b[j % 2 * 2 + 1]}};
}
/// Where register `number` of C stands among a thread's sums, 2 RowPairs rows of 4 ColumnPairs.
template <class Fragments>
[[nodiscard]] PERGRAD_HD constexpr int place_of_result(int i, int j, int number) noexcept {
  return (2 * i + number / 2) * 4 * Fragments::column_pairs + j / 2 * 4 + number % 2 * 2 + j % 2;
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
/// Number `which` of a register.
[[nodiscard]] inline double operand_of(tf32_format /*format*/, float word, int /*which*/) noexcept {
  return tf32_bits(word);
}
[[nodiscard]] inline double operand_of(bf16_format /*format*/, float word, int which) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, word);
  return static_cast<double>(__builtin_bit_cast(float, which == 0 ? bits << 16U : bits & 0xffff'0000U));
}
/// The instruction for a warp. Hardware adds up in an order and with roundings of its own, which are not published;
/// here the products and what was there before are added up in double.
template <class Format>
void multiply_add(Format format, const tensor_registers (&from)[32], float (&c)[32][4]) noexcept {
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float& to = c[4 * (row % 8) + column / 2][row / 8 * 2 + column % 2];
      auto sum = static_cast<double>(to);
      for (int k = 0; k < Format::depth; ++k) {
        const int word = k / Format::together;
        const float a = from[4 * (row % 8) + word % 4].a[row / 8 + word / 4 * 2];
        const float b = from[4 * column + word % 4].b[word / 4];
        sum += operand_of(format, a, k % Format::together) * operand_of(format, b, k % Format::together);
      }
      to = static_cast<float>(sum);
    }
  }
}

}  // namespace emulation

}  // namespace pergrad::inline v0_1::on_device
