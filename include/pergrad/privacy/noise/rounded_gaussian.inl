// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/rounded_gaussian.inl - pairs of rounded Gaussians from words, a vector at a time
// (privacy/noise/rounded_gaussian.hpp says how and why)
//
// Included behind privacy/noise/chacha20.inl, whose rules it shares. Nothing here has to round in a certain way:
// products may be fused with sums or not, as a compiler likes, because every rounding to an integer is proven
// afterwards.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::detail::PERGRAD_KERNELS {

/// Doubles of which a register holds as many as half of `Lanes` words.
template <int Lanes>
struct wide {
  static constexpr int count = Lanes / 2;
  using f64 [[gnu::vector_size(4 * Lanes)]] = double;
  using u64 [[gnu::vector_size(4 * Lanes)]] = std::uint64_t;
};
template <>
struct wide<1> {
  static constexpr int count = 1;
  using f64 = double;
  using u64 = std::uint64_t;
};

template <class To, class From>
[[gnu::always_inline]] PERGRAD_HD inline To bits_as(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

/// The doubles whose low words are one half of `words` and whose high words are `high`. High words of 2^52 and 2^84
/// make whole numbers of them: 2^52 + word, 2^84 + 2^32 word.
template <int Half, int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename wide<Lanes>::f64 under(
    std::uint32_t high, const typename lanes<Lanes>::u32& words) noexcept {
  using f64 = typename wide<Lanes>::f64;
  constexpr int i = Half * Lanes / 2;
  if constexpr (Lanes == 1) {
    static_cast<void>(i);
    return bits_as<f64>(std::uint64_t{high} << 32U | words);
  }
#if PERGRAD_SHUFFLES
  else if constexpr (Lanes == 4) {
    return bits_as<f64>(__builtin_shufflevector(words, splat_u32<Lanes>(high), i, 4, i + 1, 4));
  } else if constexpr (Lanes == 8) {
    return bits_as<f64>(__builtin_shufflevector(words, splat_u32<Lanes>(high), i, 8, i + 1, 8, i + 2, 8, i + 3, 8));
  } else {
    return bits_as<f64>(__builtin_shufflevector(words, splat_u32<Lanes>(high), i, 16, i + 1, 16, i + 2, 16, i + 3, 16,
                                                i + 4, 16, i + 5, 16, i + 6, 16, i + 7, 16));
  }
#elif PERGRAD_VECTORS_ON_DEVICE
  else {
    typename wide<Lanes>::u64 both{};
    for (int k = 0; k < wide<Lanes>::count; ++k) both[k] = std::uint64_t{high} << 32U | words[i + k];
    return bits_as<f64>(both);
  }
#endif
}
inline constexpr std::uint32_t at_2_52 = 0x4330'0000U;
inline constexpr std::uint32_t at_2_84 = 0x4530'0000U;

/// Square roots of doubles, correctly rounded; NaN below zero.
template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline typename wide<Lanes>::f64 wide_square_root(
    const typename wide<Lanes>::f64& x) noexcept {
  if constexpr (Lanes == 1) {
    return __builtin_sqrt(x);
#if PERGRAD_VECTORS_ON_DEVICE
  } else if constexpr (requires { __builtin_elementwise_sqrt(x); }) {  // clang's, of which newer ones have no other
    return __builtin_elementwise_sqrt(x);
#endif
  } else {
#if PERGRAD_VECTORS_ON_DEVICE && PERGRAD_VECTOR_BYTES == 64 && defined(__clang__)
    if constexpr (Lanes == 16) return __builtin_ia32_sqrtpd512(x, 4);
#elif PERGRAD_VECTORS_ON_DEVICE && PERGRAD_VECTOR_BYTES == 64
    if constexpr (Lanes == 16) return __builtin_ia32_sqrtpd512_mask(x, x, -1, 4);
#endif
#if PERGRAD_VECTORS_ON_DEVICE && PERGRAD_VECTOR_BYTES >= 32
    if constexpr (Lanes == 8) return __builtin_ia32_sqrtpd256(x);
#endif
#if PERGRAD_VECTORS_ON_DEVICE && defined(__SSE2__)
    if constexpr (Lanes == 4) return __builtin_ia32_sqrtpd(x);
#elif PERGRAD_VECTORS_ON_DEVICE && defined(__aarch64__)
    if constexpr (Lanes == 4) return vsqrtq_f64(x);
#endif
    typename wide<Lanes>::f64 result{};
    for (int i = 0; i < wide<Lanes>::count; ++i) result[i] = __builtin_sqrt(x[i]);
    return result;
  }
}

/// What four words make.
template <int Lanes>
struct rounded_pair {
  typename wide<Lanes>::f64 along_cosine;
  typename wide<Lanes>::f64 along_sine;
  typename wide<Lanes>::f64 margin;  ///< both roundings are proven where the sign bit of this is clear
};

/// One half of the pairs' words: U and V as numbers, and the quarter of a turn.
template <int Lanes>
struct pair_words {
  typename wide<Lanes>::f64 n;         ///< U 2^64, the upper end of its cell, so not 0
  typename wide<Lanes>::f64 y;         ///< in [-1, 1): the last 62 bits of V
  typename wide<Lanes>::u64 quarters;  ///< in bits 30 and 31
};
template <int Half, int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline pair_words<Lanes> widened(const typename lanes<Lanes>::u32& u_high,
                                                                   const typename lanes<Lanes>::u32& u_low,
                                                                   const typename lanes<Lanes>::u32& v_high,
                                                                   const typename lanes<Lanes>::u32& v_low) noexcept {
  pair_words<Lanes> result{};
  result.n = (under<Half, Lanes>(at_2_84, u_high) - 0x1.00000001p84) + (under<Half, Lanes>(at_2_52, u_low) + 1.0);
  result.y =
      ((under<Half, Lanes>(at_2_84, v_high & 0x3fff'ffffU) - 0x1.000002010p84) + under<Half, Lanes>(at_2_52, v_low)) *
      0x1p-61;
  result.quarters = bits_as<typename wide<Lanes>::u64>(under<Half, Lanes>(0, v_high));
  return result;
}

template <int Lanes>
[[gnu::always_inline]] PERGRAD_HD inline rounded_pair<Lanes> round_gaussians(
    const pair_words<Lanes>& words, double twice_variance, const gaussian_polynomials& by = polynomials) noexcept {
  using f64 = typename wide<Lanes>::f64;
  using u64 = typename wide<Lanes>::u64;
  // E = -ln(N 2^-64), N = 2^k (1 + t) with 1 + t in [sqrt(1/2), sqrt(2))
  constexpr std::uint64_t root_of_half = 0x3fe6'a09e'667f'3bcdU;
  const u64 shifted = bits_as<u64>(words.n) - root_of_half;
  const u64 power = shifted & 0xfff0'0000'0000'0000U;
  const f64 t = bits_as<f64>(bits_as<u64>(words.n) - power) - 1.0;
  const f64 k = bits_as<f64>((shifted >> 52U) | 0x4330'0000'0000'0000U) - 0x1p52;
  const f64 t2 = t * t;
  // Odd and even powers: two chains, each half as long.
  f64 odd = t2 * by.odd[0] + by.odd[1];
  odd = odd * t2 + by.odd[2];
  odd = odd * t2 + by.odd[3];
  odd = odd * t2 + by.odd[4];
  odd = odd * t2 + by.odd[5];
  odd = odd * t2 + by.odd[6];
  odd = odd * t2 + by.odd[7];
  odd = odd * t2 + by.odd[8];
  f64 even = t2 * by.even[0] + by.even[1];
  even = even * t2 + by.even[2];
  even = even * t2 + by.even[3];
  even = even * t2 + by.even[4];
  even = even * t2 + by.even[5];
  even = even * t2 + by.even[6];
  even = even * t2 + by.even[7];
  even = even * t2 + by.even[8];
  const f64 p = odd * t + even;
  const f64 log_of = t2 * p + t;
  const f64 e = (64.0 - k) * 0x1.62e42fefa39efp-1 - log_of;
  const f64 radius = wide_square_root<Lanes>(e * twice_variance);
  // The place y on a quarter about an axis
  const f64 y = words.y;
  const f64 w = y * y;
  f64 s = w * by.sine[0] + by.sine[1];
  s = s * w + by.sine[2];
  s = s * w + by.sine[3];
  s = s * w + by.sine[4];
  s = s * w + by.sine[5];
  s = s * w + by.sine[6];
  s = s * y;
  f64 c = w * by.cosine[0] + by.cosine[1];
  c = c * w + by.cosine[2];
  c = c * w + by.cosine[3];
  c = c * w + by.cosine[4];
  c = c * w + by.cosine[5];
  c = c * w + by.cosine[6];
  // The quarter is (c, s), (-c, s), (s, c) or (s, -c): y runs through both signs, hence so does s.
  c = bits_as<f64>(bits_as<u64>(c) ^ ((words.quarters & 0x4000'0000U) << 33U));
  const auto swapped = (words.quarters & 0x8000'0000U) != 0;
  const f64 x1 = radius * (swapped ? s : c);
  const f64 x2 = radius * (swapped ? c : s);
  constexpr double to_integer = 0x1.8p52;
  rounded_pair<Lanes> result{};
  result.along_cosine = (x1 + to_integer) - to_integer;
  result.along_sine = (x2 + to_integer) - to_integer;
  constexpr std::uint64_t magnitude = ~(std::uint64_t{1} << 63U);
  const f64 d1 = bits_as<f64>(bits_as<u64>(x1 - result.along_cosine) & magnitude);
  const f64 d2 = bits_as<f64>(bits_as<u64>(x2 - result.along_sine) & magnitude);
  const f64 cell = bits_as<f64>(0x3ff0'0000'0000'0000U - power);  // 2^-k
  result.margin =
      (0.5 - (d1 < d2 ? d2 : d1)) * radius - twice_variance * (2.0 * cell + error_next_to_one + error_of_gaussian * e);
  return result;
}

/// All 512 rounded Gaussians of one block; whether the margin of any pair is negative.
template <int Lanes>
inline bool fill_rounded_block(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t block,
                               double twice_variance, double (&k)[gaussian_block],
                               double (&margins)[gaussian_block / 2]) noexcept {
  using u32 = typename lanes<Lanes>::u32;
  using u64 = typename wide<Lanes>::u64;
  constexpr std::size_t width = Lanes;
  constexpr std::size_t together = Lanes == 16 ? 2 : 1;  // blocks of as many vectors fit into the registers
  u64 signs{};
  u32 words_of[together][16];
  for (std::size_t column = 0; column < 64; column += width) {
    const u32 counter = lane_numbers<Lanes>() + static_cast<std::uint32_t>(64 * block + column);
    if constexpr (together == 1) {
      chacha_lanes<Lanes>(key, nonce, counter, words_of[0]);
    } else if (column % (together * width) == 0) {
      chacha_lanes<Lanes>(key, nonce, counter, words_of);
    }
    const u32(&word)[16] = words_of[column / width % together];
    for (std::size_t p = 0; p < 4; ++p) {
      pair_words<Lanes> words[2];
      words[0] = widened<0, Lanes>(word[4 * p], word[4 * p + 1], word[4 * p + 2], word[4 * p + 3]);
      if constexpr (Lanes > 1) {
        words[1] = widened<1, Lanes>(word[4 * p], word[4 * p + 1], word[4 * p + 2], word[4 * p + 3]);
      }
      for_numbers<(Lanes > 1 ? 2 : 1)>([&](std::size_t half) __attribute__((always_inline)) {
        const auto pair = round_gaussians<Lanes>(words[half], twice_variance);
        const std::size_t at = 64 * p + column + half * std::size_t{wide<Lanes>::count};
        std::memcpy(k + at, &pair.along_cosine, sizeof pair.along_cosine);
        std::memcpy(k + gaussian_block / 2 + at, &pair.along_sine, sizeof pair.along_sine);
        std::memcpy(margins + at, &pair.margin, sizeof pair.margin);
        signs |= bits_as<u64>(pair.margin);
      });
    }
  }
  std::uint64_t each[static_cast<std::size_t>(wide<Lanes>::count)];
  std::memcpy(each, &signs, sizeof signs);
  std::uint64_t any = 0;
  for (const std::uint64_t sign : each) any |= sign;
  return (any >> 63U) != 0;
}

/// out[i] = the value at on_grid(sum[i]) + k[i]. `sum` may be `out`.
template <int Lanes, class Scalar>
[[gnu::noinline]] inline void release_sums(const double* k, const Scalar* sum, const release_scale& scale, Scalar* out,
                                           int count) noexcept {
  int i = 0;
#if PERGRAD_VECTORS_ON_DEVICE
  if constexpr (Lanes > 4) {
    using f64 = typename wide<Lanes>::f64;
    using scalars [[gnu::vector_size(sizeof(Scalar) * wide<Lanes>::count)]] = Scalar;
    constexpr int together = wide<Lanes>::count;
    constexpr double to_integer = 0x1.8p52;
    for (; i + together <= count; i += together) {
      f64 noise;
      scalars sums;
      std::memcpy(&noise, k + i, sizeof noise);
      std::memcpy(&sums, sum + i, sizeof sums);
      f64 place = __builtin_convertvector(sums, f64) * scale.to_grid;
      place = place > -most_on_grid ? place : f64{} - most_on_grid;
      place = place < most_on_grid ? place : f64{} + most_on_grid;
      f64 value = (((place + to_integer) - to_integer) + noise) * scale.grid;
      value = value < scale.largest ? value : f64{} + scale.largest;
      value = value > -scale.largest ? value : f64{} - scale.largest;
      const auto released = __builtin_convertvector(value, scalars);
      std::memcpy(out + i, &released, sizeof released);
    }
  }
#endif
  for (; i < count; ++i) out[i] = released_value<Scalar>(on_grid(sum[i], scale) + k[i], scale);
}

template <class Scalar>
inline constexpr release_kernels<Scalar> releases{&fill_rounded_block<native_lanes>,
                                                  &release_sums<native_lanes, Scalar>};

}

#endif  // PERGRAD_KERNELS
