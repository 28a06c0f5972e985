// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise_text.hpp - Gaussians from words, a vector at a time (privacy/noise.hpp says how and why)
//
// Included behind privacy/chacha20_text.hpp, whose rules it shares.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::detail::PERGRAD_KERNELS {

/// The number under the logarithm of a pair, from its first word and 8 bits of its second: a uniform u as y, which is
/// 2 u below one half and 2 (u - 1) from there on, so that it keeps its relative precision near 1 as it does near 0.
/// Below `first_long_radius` y is positive and means nothing.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 short_uniform(
    const typename lanes<Lanes>::u32& first, const typename lanes<Lanes>::u32& second) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using i32 = typename lanes<Lanes>::i32;
  // Read as a signed number, the first word is u or u - 1. The bit below the eight centres the cell.
  const f32 high = product<Lanes>(to_float<Lanes>(__builtin_bit_cast(i32, first)), splat_f32<Lanes>(0x1p-31F));
  const f32 low = to_float<Lanes>(__builtin_bit_cast(i32, (second & 0x7f80'0000U) | 0x0040'0000U));
  return fused<Lanes>(low, splat_f32<Lanes>(0x1p-62F), high);
}

/// The same for a first word below `first_long_radius`: 32 bits of a third word continue the fraction.
[[nodiscard]] PERGRAD_HD inline float long_uniform(std::uint32_t first, std::uint32_t second,
                                                   std::uint32_t third) noexcept {
  const auto high = static_cast<float>((first << 8U) | ((second >> 23U) & 0xffU));  // 24 bits: exact
  return fused<1>(static_cast<float>(third | 1U), 0x1p-71F, product<1>(high, 0x1p-39F));
}

/// -2 ln(u) for a `y` as `short_uniform` describes it.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 minus_two_log(
    const typename lanes<Lanes>::f32& y) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using i32 = typename lanes<Lanes>::i32;
  // u = (1 + t / 2) 2^k with t in [-1, 0] and k <= 0; both terms of -2 k ln 2 - 2 log1p(t / 2) are positive.
  const f32 t = __builtin_bit_cast(i32, y) < 0 ? y : added<Lanes>(mantissa<Lanes>(y), splat_f32<Lanes>(-2.0F));
  const f32 k = exponent_or_zero<Lanes>(y);
  f32 q = splat_f32<Lanes>(-0x1.6a0f4cp-8F);
  q = fused<Lanes>(q, t, splat_f32<Lanes>(-0x1.a39932p-7F));
  q = fused<Lanes>(q, t, splat_f32<Lanes>(-0x1.354ff6p-6F));
  q = fused<Lanes>(q, t, splat_f32<Lanes>(-0x1.72285ep-8F));
  q = fused<Lanes>(q, t, splat_f32<Lanes>(-0x1.0df6cap-6F));
  q = fused<Lanes>(q, t, splat_f32<Lanes>(0x1.f313e6p-6F));
  q = fused<Lanes>(q, t, splat_f32<Lanes>(-0x1.55a384p-4F));
  q = fused<Lanes>(q, t, splat_f32<Lanes>(0x1.fffec0p-3F));
  q = fused<Lanes>(q, t, splat_f32<Lanes>(-1.0F));
  return fused<Lanes>(k, splat_f32<Lanes>(-0x1.62e430p+0F), product<Lanes>(t, q));
}

/// Two Gaussians from a uniform as above and the angle's 24 bits of a pair's second word.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline void box_muller(const typename lanes<Lanes>::f32& y,
                                                         const typename lanes<Lanes>::u32& second,
                                                         typename lanes<Lanes>::f32& along_cosine,
                                                         typename lanes<Lanes>::f32& along_sine) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using i32 = typename lanes<Lanes>::i32;
  using u32 = typename lanes<Lanes>::u32;
  const f32 radius = square_root<Lanes>(minus_two_log<Lanes>(y));
  // Bits 22 to 1 and a bit that centres the cell are the mantissa of a number in [1, 2).
  const u32 place = (second & 0x007f'fffeU) | 0x3f80'0001U;
  const f32 g = added<Lanes>(__builtin_bit_cast(f32, place), splat_f32<Lanes>(-1.5F));
  const f32 g2 = product<Lanes>(g, g);
  f32 s = splat_f32<Lanes>(-0x1.2d9b40p-8F);
  s = fused<Lanes>(s, g2, splat_f32<Lanes>(0x1.465ec4p-4F));
  s = fused<Lanes>(s, g2, splat_f32<Lanes>(-0x1.4abbbap-1F));
  s = fused<Lanes>(s, g2, splat_f32<Lanes>(0x1.921fb6p+0F));
  s = product<Lanes>(s, g);
  f32 c = splat_f32<Lanes>(0x1.d9c2e8p-11F);
  c = fused<Lanes>(c, g2, splat_f32<Lanes>(-0x1.55c57ap-6F));
  c = fused<Lanes>(c, g2, splat_f32<Lanes>(0x1.03c1dcp-2F));
  c = fused<Lanes>(c, g2, splat_f32<Lanes>(-0x1.3bd3ccp+0F));
  c = fused<Lanes>(c, g2, splat_f32<Lanes>(1.0F));
  // The quarter about an axis is (c, s), (-c, s), (s, c) or (s, -c): g runs through both signs, hence so does s.
  c = __builtin_bit_cast(f32, __builtin_bit_cast(u32, c) ^ (second << 31U));
  const auto swapped = __builtin_bit_cast(i32, second) < 0;
  along_cosine = product<Lanes>(radius, swapped ? s : c);
  along_sine = product<Lanes>(radius, swapped ? c : s);
}

/// All 512 Gaussians of one tile.
template <int Lanes>
inline void fill_gaussian_tile(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t tile,
                               const tile_arrays& wanted, float (&z)[gaussian_tile]) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using u32 = typename lanes<Lanes>::u32;
  constexpr auto width = static_cast<std::size_t>(Lanes);
  for (std::size_t column = 0; column < 16; column += width) {
    const u32 counter = lane_numbers<Lanes>() + static_cast<std::uint32_t>(48 * tile + column);
    u32 words[2][16];  // first and second; a loop, because the compiler takes long for what it contains
    for (std::uint32_t part = 0; part < 2; ++part) {
      wanted.fetch(2 * (column / width) + part, 2 * 16 / width);
      chacha_lanes<Lanes>(key, nonce, counter + 16 * part, words[part]);
    }
    u32 least = words[0][0];
    for (std::size_t row = 0; row < 16; ++row) {
      least = words[0][row] < least ? words[0][row] : least;
      f32 along_cosine;
      f32 along_sine;
      box_muller<Lanes>(short_uniform<Lanes>(words[0][row], words[1][row]), words[1][row], along_cosine, along_sine);
      std::memcpy(z + 16 * row + column, &along_cosine, sizeof along_cosine);
      std::memcpy(z + 256 + 16 * row + column, &along_sine, sizeof along_sine);
    }
    std::uint32_t least_of_lane[width];
    std::memcpy(least_of_lane, &least, sizeof least);
    bool any = false;
    for (const std::uint32_t word : least_of_lane) any = any || word < first_long_radius;
    if (__builtin_expect(static_cast<long>(any), 0L) != 0) {
      std::uint32_t scalars[2][16 * width];
      std::memcpy(scalars, words, sizeof words);
      replace_long_radii(key, nonce, tile, column, width, scalars[0], scalars[1], z);
    }
  }
}

template <class Scalar>
[[gnu::always_inline]] inline Scalar scaled_sum(Scalar scale, float z, Scalar x) noexcept {
  if constexpr (std::is_same_v<Scalar, float>) {
    return __builtin_fmaf(scale, z, x);
  } else {
    return __builtin_fma(scale, static_cast<double>(z), x);
  }
}

/// out[i] = scale z[i] + sum[i], each one fused multiply-add, `Lanes` floats at a time: compilers do not vectorise this
/// loop at -O2. `sum` may be `out`.
template <int Lanes, class Scalar>
inline void add_scaled_lanes(Scalar scale, const float* z, const Scalar* sum, Scalar* out, std::size_t count) noexcept {
  std::size_t i = 0;
  if constexpr (std::is_same_v<Scalar, float> && Lanes > 1) {
    using f32 = typename lanes<Lanes>::f32;
    const f32 scales = splat_f32<Lanes>(scale);
    for (; i + static_cast<std::size_t>(Lanes) <= count; i += static_cast<std::size_t>(Lanes)) {
      f32 gaussians;
      f32 sums;
      std::memcpy(&gaussians, z + i, sizeof gaussians);
      std::memcpy(&sums, sum + i, sizeof sums);
      sums = fused<Lanes>(scales, gaussians, sums);
      std::memcpy(out + i, &sums, sizeof sums);
    }
  }
  for (; i < count; ++i) out[i] = scaled_sum(scale, z[i], sum[i]);
}

inline constexpr gaussian_kernels gaussians{&fill_gaussian_tile<native_lanes>, &add_scaled_lanes<native_lanes, float>,
                                            &add_scaled_lanes<native_lanes, double>};

}

#endif  // PERGRAD_KERNELS
