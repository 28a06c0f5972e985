// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/vector.hpp - the widest vectors that the build's flags allow, and which kernels a program has
//
// Kernels exist for three targets of x86-64: avx512, avx2 (with fused multiply-add) and baseline, which is whatever
// the flags allow below that. The target of the flags, and what goes beyond it, is compiled; host/gemm/micro_kernel.hpp
// chooses among them when the program runs. Everything else uses the vectors of the flags, which are named here. Other
// processors have one target, the baseline.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#if defined(__aarch64__) && !defined(__CUDACC__)  // nvcc's front end does not know what is in it
#include <arm_neon.h>
#endif

#include <pergrad/simd/processor.hpp>

#define PERGRAD_TARGET_SOURCE "pergrad/simd/vector.inl"
#include <pergrad/simd/multi_target.inl>

namespace pergrad::inline v0_1::on_host {

/// The same of single numbers.
template <class Scalar>
requires std::is_floating_point_v<Scalar>
[[nodiscard]] inline Scalar multiply_add(Scalar a, Scalar b, Scalar c) noexcept {
#if defined(__FMA__) || defined(__aarch64__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

}  // namespace pergrad::inline v0_1::on_host
