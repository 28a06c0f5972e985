// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/lanes.hpp - a few machine vectors of 32-bit words with exactly rounded fma and square root.
//
// Built on the vector extension of g++ and clang. Everything that depends on rounding is one IEEE-754 operation: fma
// and sqrt are correctly rounded, so one lane or sixteen, with or without FMA hardware, any compiler: the same bits. A
// sum with a product is never written as `a * b + c`, which a compiler may or may not contract.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/no_fast_math.hpp>

namespace pergrad::inline v0_1::detail {

/// Number of 32-bit lanes of this target's widest vectors.
#if !PERGRAD_VECTORS_ON_DEVICE
inline constexpr int native_lanes = 1;  // no bit depends on it
#elif defined(__AVX512F__)
inline constexpr int native_lanes = 16;
#elif defined(__AVX2__)
inline constexpr int native_lanes = 8;
#else
inline constexpr int native_lanes = 4;
#endif

template <int Lanes>
struct lanes {
  static_assert(Lanes == 4 || Lanes == 8 || Lanes == 16);
  using f32 [[gnu::vector_size(4 * Lanes)]] = float;
  using i32 [[gnu::vector_size(4 * Lanes)]] = std::int32_t;
  using u32 [[gnu::vector_size(4 * Lanes)]] = std::uint32_t;
};

template <>
struct lanes<1> {
  using f32 = float;
  using i32 = std::int32_t;
  using u32 = std::uint32_t;
};

/// std::bit_cast, which device code may not call.
template <class To, class From>
[[gnu::always_inline]] PERGRAD_HD inline To bits_as(From from) noexcept {
  return __builtin_bit_cast(To, from);
}

template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::u32 splat_u32(std::uint32_t x) noexcept {
  if constexpr (Lanes == 1) {
    return x;
  } else {
    return x - typename lanes<Lanes>::u32{};
  }
}

template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 splat_f32(float x) noexcept {
  if constexpr (Lanes == 1) {
    return x;
  } else {
    return x - typename lanes<Lanes>::f32{};  // x - 0 is x, also for -0
  }
}

/// 0, 1, ..., Lanes - 1.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::u32 lane_numbers() noexcept {
  if constexpr (Lanes == 1) {
    return 0U;
  } else {
    typename lanes<Lanes>::u32 numbers{};
    for (int i = 0; i < Lanes; ++i) numbers[i] = static_cast<std::uint32_t>(i);
    return numbers;
  }
}

/// a * b + c, rounded once.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 fused(typename lanes<Lanes>::f32 a,
                                                                          typename lanes<Lanes>::f32 b,
                                                                          typename lanes<Lanes>::f32 c) noexcept {
  if constexpr (Lanes == 1) {
    return __builtin_fmaf(a, b, c);
  } else {
#if PERGRAD_VECTORS_ON_DEVICE && defined(__AVX512F__)
    if constexpr (Lanes == 16) return _mm512_fmadd_ps(a, b, c);
#endif
#if PERGRAD_VECTORS_ON_DEVICE && defined(__FMA__)
    if constexpr (Lanes == 8) return _mm256_fmadd_ps(a, b, c);
    if constexpr (Lanes == 4) return _mm_fmadd_ps(a, b, c);
#elif PERGRAD_VECTORS_ON_DEVICE && defined(__aarch64__)
    if constexpr (Lanes == 4) return vfmaq_f32(c, a, b);
#endif
    typename lanes<Lanes>::f32 result{};
    for (int i = 0; i < Lanes; ++i) result[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return result;
  }
}

/// a * b. Said so, device code never becomes part of an fma by the compiler's choice.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 product(typename lanes<Lanes>::f32 a,
                                                                            typename lanes<Lanes>::f32 b) noexcept {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// Correctly rounded square root of x >= 0, whatever flags the device code is compiled with.
[[gnu::always_inline]] PERGRAD_HD inline float rounded_square_root(float x) noexcept {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

/// Correctly rounded square root of x >= 0.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 square_root(typename lanes<Lanes>::f32 x) noexcept {
  if constexpr (Lanes == 1) {
    return rounded_square_root(x);
  } else {
#if PERGRAD_VECTORS_ON_DEVICE && defined(__AVX512F__)
    if constexpr (Lanes == 16) return _mm512_maskz_sqrt_ps(0xffff, x);  // plain form warns in g++ 12
#endif
#if PERGRAD_VECTORS_ON_DEVICE && defined(__AVX__)
    if constexpr (Lanes == 8) return _mm256_sqrt_ps(x);
#endif
#if PERGRAD_VECTORS_ON_DEVICE && defined(__SSE2__)
    if constexpr (Lanes == 4) return _mm_sqrt_ps(x);
#elif PERGRAD_VECTORS_ON_DEVICE && defined(__aarch64__)
    if constexpr (Lanes == 4) return vsqrtq_f32(x);
#endif
    typename lanes<Lanes>::f32 result{};
    for (int i = 0; i < Lanes; ++i) result[i] = __builtin_sqrtf(x[i]);
    return result;
  }
}

template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 to_float(typename lanes<Lanes>::i32 x) noexcept {
  if constexpr (Lanes == 1) {
    return static_cast<float>(x);
  } else {
    return __builtin_convertvector(x, typename lanes<Lanes>::f32);
  }
}

/// Number of leading zero bits of x != 0.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::u32 leading_zeros(
    typename lanes<Lanes>::u32 x) noexcept {
  if constexpr (Lanes == 1) {
    return static_cast<std::uint32_t>(__builtin_clz(x));
  } else {
    using u32 = typename lanes<Lanes>::u32;
#if PERGRAD_VECTORS_ON_DEVICE && defined(__AVX512CD__)
    if constexpr (Lanes == 16) return std::bit_cast<u32>(_mm512_lzcnt_epi32(std::bit_cast<__m512i>(x)));
#if PERGRAD_VECTORS_ON_DEVICE && defined(__AVX512VL__)
    if constexpr (Lanes == 8) return std::bit_cast<u32>(_mm256_lzcnt_epi32(std::bit_cast<__m256i>(x)));
    if constexpr (Lanes == 4) return std::bit_cast<u32>(_mm_lzcnt_epi32(std::bit_cast<__m128i>(x)));
#endif
#elif PERGRAD_VECTORS_ON_DEVICE && defined(__aarch64__)
    if constexpr (Lanes == 4) return std::bit_cast<u32>(vclzq_u32(std::bit_cast<uint32x4_t>(x)));
#endif
    // The exponent of the converted integer is the place of its top bit; the bit below the top one is cleared first, so
    // that rounding cannot carry into the exponent, and bit 31, the sign of a signed conversion, is handled apart.
    using i32 = typename lanes<Lanes>::i32;
    const u32 no_carry = x & ~(x >> 1U) & 0x7fff'ffffU;
    const u32 exponent = std::bit_cast<u32>(to_float<Lanes>(std::bit_cast<i32>(no_carry))) >> 23U;
    return std::bit_cast<i32>(x) < 0 ? u32{} : 158U - exponent;
  }
}

}  // namespace pergrad::inline v0_1::detail
