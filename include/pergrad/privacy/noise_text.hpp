// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise_text.hpp - Gaussians from words, a vector at a time (privacy/noise.hpp says how and why)
//
// Included behind privacy/chacha20_text.hpp, whose rules it shares.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::detail::PERGRAD_KERNELS {

/// -2 ln(u) for the 64-bit fraction u = (high, low) 2^-64 rounded to a mantissa of 32 bits, 0 counting as 2^-64.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename lanes<Lanes>::f32 minus_two_log(
    typename lanes<Lanes>::u32 high, typename lanes<Lanes>::u32 low) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using i32 = typename lanes<Lanes>::i32;
  using u32 = typename lanes<Lanes>::u32;
  const u32 zero{};
  const auto top_is_empty = high == zero;
  const u32 upper = top_is_empty ? (low | 1U) : high;
  const u32 lower = top_is_empty ? zero : low;
  const u32 shift = leading_zeros<Lanes>(upper);
  const u32 normalised = (upper << shift) | ((lower >> 1U) >> (31U - shift));
  // u = normalised 2^(-32 - zeros) with normalised / 2^32 in [1/2, 1); below 1/sqrt(2) it is doubled. Read as a signed
  // number, the word then *is* f 2^32: negative above 2^31, positive after doubling. The odd last bit centres the cell.
  const auto double_it = normalised < splat_u32<Lanes>(0xb504f334U);
  const u32 fraction = (double_it ? (normalised << 1U) : normalised) | 1U;
  const u32 exponent =
      shift + (top_is_empty ? splat_u32<Lanes>(32U) : zero) + (double_it ? splat_u32<Lanes>(1U) : zero);
  const f32 f = product<Lanes>(to_float<Lanes>(__builtin_bit_cast(i32, fraction)), splat_f32<Lanes>(0x1p-32F));
  const f32 k = to_float<Lanes>(__builtin_bit_cast(i32, exponent));
  f32 q = splat_f32<Lanes>(0x1.31335ap-3F);
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-0x1.0647860p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(0x1.0fb036p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-0x1.22cf10p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(0x1.5423b0p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-0x1.999e86p-2F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(0x1.000424p-1F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-0x1.55555ep-1F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(0x1.fffff8p-1F));
  q = fused<Lanes>(q, f, splat_f32<Lanes>(-2.0F));
  return fused<Lanes>(k, splat_f32<Lanes>(0x1.62e430p+0F), product<Lanes>(f, q));
}

/// Two Gaussians from three words.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline void box_muller(const typename lanes<Lanes>::u32& high,
                                                         const typename lanes<Lanes>::u32& low,
                                                         const typename lanes<Lanes>::u32& angle,
                                                         typename lanes<Lanes>::f32& along_cosine,
                                                         typename lanes<Lanes>::f32& along_sine) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using i32 = typename lanes<Lanes>::i32;
  using u32 = typename lanes<Lanes>::u32;
  const f32 radius = square_root<Lanes>(minus_two_log<Lanes>(high, low));
  const f32 g =
      product<Lanes>(to_float<Lanes>(__builtin_bit_cast(i32, (angle << 2U) | 2U)), splat_f32<Lanes>(0x1p-32F));
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
  // Quarter turns: 0 (c, s), 1 (-s, c), 2 (-c, -s), 3 (s, -c).
  const auto odd = (angle & 0x4000'0000U) != u32{};
  const u32 negative_cosine = (angle ^ (angle << 1U)) & 0x8000'0000U;
  const u32 negative_sine = angle & 0x8000'0000U;
  const f32 x = odd ? s : c;
  const f32 y = odd ? c : s;
  along_cosine = product<Lanes>(radius, __builtin_bit_cast(f32, __builtin_bit_cast(u32, x) ^ negative_cosine));
  along_sine = product<Lanes>(radius, __builtin_bit_cast(f32, __builtin_bit_cast(u32, y) ^ negative_sine));
}

/// All 512 Gaussians of one tile.
template <int Lanes>
inline void fill_gaussian_tile(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t tile,
                               const tile_arrays& wanted, float (&z)[gaussian_tile]) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using u32 = typename lanes<Lanes>::u32;
  for (std::size_t column = 0; column < 16; column += static_cast<std::size_t>(Lanes)) {
    const u32 counter = lane_numbers<Lanes>() + static_cast<std::uint32_t>(48 * tile + column);
    u32 words[3][16];  // high, low and angle; a loop, because the compiler takes long for what it contains
    for (std::uint32_t part = 0; part < 3; ++part) {
      wanted.fetch(3 * (column / static_cast<std::size_t>(Lanes)) + part, 3 * 16 / static_cast<std::size_t>(Lanes));
      chacha_lanes<Lanes>(key, nonce, counter + 16 * part, words[part]);
    }
    for (std::size_t row = 0; row < 16; ++row) {
      f32 along_cosine;
      f32 along_sine;
      box_muller<Lanes>(words[0][row], words[1][row], words[2][row], along_cosine, along_sine);
      std::memcpy(z + 16 * row + column, &along_cosine, sizeof along_cosine);
      std::memcpy(z + 256 + 16 * row + column, &along_sine, sizeof along_sine);
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
