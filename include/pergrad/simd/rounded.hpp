// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/rounded.hpp - arithmetic with roundings that no compiler chooses: of single numbers, on host and
// device alike, and of a host's vectors, lane by lane
//
// Whether `a * b + c` rounds once or twice is the compiler's affair: it depends on its rules about contraction, and for
// a b + c d even on the order in which it looks at the products. On a device it may also divide in a hurry. What host
// and device must agree in bit for bit, or two loops over the same formula, is made of these.
#pragma once

#include <cstddef>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/no_fast_math.hpp>
#include <pergrad/simd/vector.hpp>

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

template <class Type>
concept host_vector = std::is_same_v<Type, on_host::vector<float>> || std::is_same_v<Type, on_host::vector<double>>;

/// Whether `fma` of vectors rounds once. Without such an instruction the target rounds product and sum apart, and no
/// compiler can do otherwise.
#if defined(__FMA__) || defined(__aarch64__)
inline constexpr bool vectors_fuse = true;
#else
inline constexpr bool vectors_fuse = false;
#endif

template <host_vector Vector>
[[nodiscard]] inline Vector fma(Vector a, Vector b, Vector c) noexcept {
  return on_host::multiply_add(a, b, c);
}
// Of vectors a product may become part of a `subtract` behind it, but of none of the others: write that one as `fma`.
template <host_vector Vector>
[[nodiscard]] inline Vector multiply(Vector a, Vector b) noexcept {
  return a * b;
}
template <host_vector Vector>
[[nodiscard]] inline Vector subtract(Vector a, Vector b) noexcept {
  return a - b;
}
template <host_vector Vector>
[[nodiscard]] inline Vector divide(Vector a, Vector b) noexcept {
  return a / b;
}
/// Of numbers that are not negative.
template <host_vector Vector>
[[nodiscard]] inline Vector square_root(Vector x) noexcept {
  constexpr bool is_float = std::is_same_v<Vector, on_host::vector<float>>;
  if constexpr (requires { __builtin_elementwise_sqrt(x); }) {  // clang's, of which newer ones have no other
    return __builtin_elementwise_sqrt(x);
  } else {
#if PERGRAD_OWN_VECTOR_BYTES == 64 && defined(__clang__)
    if constexpr (is_float) return __builtin_ia32_sqrtps512(x, 4);
    if constexpr (!is_float) return __builtin_ia32_sqrtpd512(x, 4);
#elif PERGRAD_OWN_VECTOR_BYTES == 64
    if constexpr (is_float) return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
    if constexpr (!is_float) return __builtin_ia32_sqrtpd512_mask(x, x, -1, 4);
#elif defined(__AVX__)
    if constexpr (is_float) return __builtin_ia32_sqrtps256(x);
    if constexpr (!is_float) return __builtin_ia32_sqrtpd256(x);
#elif defined(__SSE2__)
    if constexpr (is_float) return __builtin_ia32_sqrtps(x);
    if constexpr (!is_float) return __builtin_ia32_sqrtpd(x);
#elif defined(__aarch64__) && !defined(__CUDACC__)
    if constexpr (is_float) return vsqrtq_f32(x);
    if constexpr (!is_float) return vsqrtq_f64(x);
#else
    for (std::size_t lane = 0; lane < sizeof x / sizeof x[0]; ++lane) {
      if constexpr (is_float) x[lane] = __builtin_sqrtf(x[lane]);
      if constexpr (!is_float) x[lane] = __builtin_sqrt(x[lane]);
    }
    return x;
#endif
  }
}

}  // namespace pergrad::inline v0_1::rounded
