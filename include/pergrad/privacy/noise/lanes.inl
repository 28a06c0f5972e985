// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/lanes.inl - vectors of 32-bit words
//
// Included once for every target that a program has, as simd/vector.inl is; PERGRAD_FAMILY is its
// number. No vector may be handed to a function that is declared elsewhere (std::bit_cast): that one is compiled for
// the baseline, where vectors of this width are passed in another way. What is marked is device code with one lane.
// Instructions are the compilers' built-ins: <immintrin.h> costs a program a fifth of the time that this library does.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::detail::PERGRAD_KERNELS {

/// Number of 32-bit lanes of this target's widest vectors. AVX alone has no wide integers.
#if PERGRAD_VECTORS_ON_DEVICE
inline constexpr int native_lanes = PERGRAD_FAMILY == 2 ? 16 : PERGRAD_FAMILY == 1 ? 8 : 4;
#else
inline constexpr int native_lanes = 1;  // no bit depends on it
#endif

template <int Lanes>
struct lanes {
  static_assert(Lanes == 4 || Lanes == 8 || Lanes == 16);
  using u32 [[gnu::vector_size(4 * Lanes)]] = std::uint32_t;
};

template <>
struct lanes<1> {
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

}

#endif  // PERGRAD_KERNELS
