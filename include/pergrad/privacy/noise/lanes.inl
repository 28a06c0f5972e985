// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/lanes.inl - vectors of 32-bit words with exactly rounded fma and square root
//
// Included once for every family of kernels that a program has, as simd/vector.inl is; PERGRAD_FAMILY is its
// number. No vector may be handed to a function that is declared elsewhere (std::bit_cast): that one is compiled for
// the baseline, where vectors of this width are passed in another way. What is marked is device code with one lane.
// Instructions are the compilers' built-ins: <immintrin.h> costs a program a fifth of the time that this library does.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::detail::PERGRAD_KERNELS {

/// Number of 32-bit lanes of this family's widest vectors. AVX alone has no wide integers.
#if PERGRAD_VECTORS_ON_DEVICE
inline constexpr int native_lanes = PERGRAD_FAMILY == 2 ? 16 : PERGRAD_FAMILY == 1 ? 8 : 4;
#else
inline constexpr int native_lanes = 1;  // no bit depends on it
#endif

#if PERGRAD_VECTORS_ON_DEVICE && PERGRAD_FAMILY == 2
#if defined(__clang__)
inline constexpr std::uint16_t all_lanes = 0xffff;
#else
inline constexpr std::int16_t all_lanes = -1;  // to g++ the same mask is signed
#endif
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

#if PERGRAD_VECTORS_ON_DEVICE && PERGRAD_FAMILY < 1 && !defined(__FMA__) && !defined(__aarch64__)
/// a * b + c of four lanes where each is a call: a function, as noise wants it twenty times.
[[gnu::noinline]] inline lanes<4>::f32 fused_by_calls(lanes<4>::f32 a, lanes<4>::f32 b, lanes<4>::f32 c) noexcept {
  lanes<4>::f32 result{};
  for (int i = 0; i < 4; ++i) result[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return result;
}
#endif

/// a * b + c, rounded once.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 fused(typename lanes<Lanes>::f32 a,
                                                                          typename lanes<Lanes>::f32 b,
                                                                          typename lanes<Lanes>::f32 c) noexcept {
  if constexpr (Lanes == 1) {
    return __builtin_fmaf(a, b, c);
  } else {
#if PERGRAD_VECTORS_ON_DEVICE && PERGRAD_VECTOR_BYTES == 64 && defined(__clang__)
    if constexpr (Lanes == 16) return __builtin_ia32_vfmaddps512_mask(a, b, c, 0xffff, 4);
#elif PERGRAD_VECTORS_ON_DEVICE && PERGRAD_VECTOR_BYTES == 64  // to g++ the same mask is signed
    if constexpr (Lanes == 16) return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#endif
#if PERGRAD_VECTORS_ON_DEVICE && (defined(__FMA__) || PERGRAD_FAMILY >= 1)
    if constexpr (Lanes == 8) return __builtin_ia32_vfmaddps256(a, b, c);
    if constexpr (Lanes == 4) return __builtin_ia32_vfmaddps(a, b, c);
#elif PERGRAD_VECTORS_ON_DEVICE && defined(__aarch64__)
    if constexpr (Lanes == 4) return vfmaq_f32(c, a, b);
#elif PERGRAD_VECTORS_ON_DEVICE
    if constexpr (Lanes == 4) return fused_by_calls(a, b, c);
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

/// a + b, said as `product` is.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 added(typename lanes<Lanes>::f32 a,
                                                                          typename lanes<Lanes>::f32 b) noexcept {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
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
#if PERGRAD_VECTORS_ON_DEVICE && PERGRAD_VECTOR_BYTES == 64 && defined(__clang__)
    if constexpr (Lanes == 16) return __builtin_ia32_sqrtps512(x, 4);
#elif PERGRAD_VECTORS_ON_DEVICE && PERGRAD_VECTOR_BYTES == 64
    if constexpr (Lanes == 16) return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
#endif
#if PERGRAD_VECTORS_ON_DEVICE && PERGRAD_VECTOR_BYTES >= 32
    if constexpr (Lanes == 8) return __builtin_ia32_sqrtps256(x);
#endif
#if PERGRAD_VECTORS_ON_DEVICE && defined(__SSE2__)
    if constexpr (Lanes == 4) return __builtin_ia32_sqrtps(x);
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

/// floor(log2 x) of a normal x > 0; where x < 0, 0.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 exponent_or_zero(
    typename lanes<Lanes>::f32 x) noexcept {
  using i32 = typename lanes<Lanes>::i32;
  using u32 = typename lanes<Lanes>::u32;
  const auto is_negative = __builtin_bit_cast(i32, x) < 0;
#if PERGRAD_VECTORS_ON_DEVICE && PERGRAD_FAMILY == 2
  using f32 = typename lanes<Lanes>::f32;
  if constexpr (Lanes == 16) return is_negative ? f32{} : __builtin_ia32_getexpps512_mask(x, f32{}, all_lanes, 4);
#endif
  const i32 exponent = __builtin_bit_cast(i32, __builtin_bit_cast(u32, x) >> 23U) - 127;
  return to_float<Lanes>(is_negative ? i32{} : exponent);
}

/// |x| / 2^floor(log2 |x|) in [1, 2) of a normal x.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 mantissa(typename lanes<Lanes>::f32 x) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using u32 = typename lanes<Lanes>::u32;
#if PERGRAD_VECTORS_ON_DEVICE && PERGRAD_FAMILY == 2
  constexpr int positive_from_one_to_two = 4;
  if constexpr (Lanes == 16) return __builtin_ia32_getmantps512_mask(x, positive_from_one_to_two, f32{}, all_lanes, 4);
#endif
  return __builtin_bit_cast(f32, (__builtin_bit_cast(u32, x) & 0x007f'ffffU) | 0x3f80'0000U);
}

}

#endif  // PERGRAD_KERNELS
