// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/rounded.hpp - arithmetic of single numbers, each operation rounded once, on host and device alike
//
// Said so, a compiler neither fuses a product with a sum nor, on a device, divides in a hurry. What host and device
// must agree in bit for bit is made of these.
#pragma once

#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1::rounded {

#ifdef __CUDA_ARCH__
#define PERGRAD_ROUNDED(on_device, on_host) on_device
#else
#define PERGRAD_ROUNDED(on_device, on_host) on_host
#endif

// clang-format off
/// a * b + c
[[nodiscard]] PERGRAD_HD inline float fma(float a, float b, float c) noexcept { return PERGRAD_ROUNDED(__fmaf_rn(a, b, c), __builtin_fmaf(a, b, c)); }
[[nodiscard]] PERGRAD_HD inline double fma(double a, double b, double c) noexcept { return PERGRAD_ROUNDED(__fma_rn(a, b, c), __builtin_fma(a, b, c)); }
/// a * b, never part of a contraction
[[nodiscard]] PERGRAD_HD inline float multiply(float a, float b) noexcept { return PERGRAD_ROUNDED(__fmul_rn(a, b), fma(a, b, -0.0F)); }
[[nodiscard]] PERGRAD_HD inline double multiply(double a, double b) noexcept { return PERGRAD_ROUNDED(__dmul_rn(a, b), fma(a, b, -0.0)); }
[[nodiscard]] PERGRAD_HD inline float add(float a, float b) noexcept { return PERGRAD_ROUNDED(__fadd_rn(a, b), a + b); }
[[nodiscard]] PERGRAD_HD inline double add(double a, double b) noexcept { return PERGRAD_ROUNDED(__dadd_rn(a, b), a + b); }
[[nodiscard]] PERGRAD_HD inline float subtract(float a, float b) noexcept { return PERGRAD_ROUNDED(__fsub_rn(a, b), a - b); }
[[nodiscard]] PERGRAD_HD inline double subtract(double a, double b) noexcept { return PERGRAD_ROUNDED(__dsub_rn(a, b), a - b); }
[[nodiscard]] PERGRAD_HD inline float divide(float a, float b) noexcept { return PERGRAD_ROUNDED(__fdiv_rn(a, b), a / b); }
[[nodiscard]] PERGRAD_HD inline double divide(double a, double b) noexcept { return PERGRAD_ROUNDED(__ddiv_rn(a, b), a / b); }
[[nodiscard]] PERGRAD_HD inline float square_root(float x) noexcept { return PERGRAD_ROUNDED(__fsqrt_rn(x), __builtin_sqrtf(x)); }
[[nodiscard]] PERGRAD_HD inline double square_root(double x) noexcept { return PERGRAD_ROUNDED(__dsqrt_rn(x), __builtin_sqrt(x)); }
// clang-format on

#undef PERGRAD_ROUNDED

}  // namespace pergrad::inline v0_1::rounded
