// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/chacha20.inl - vectors of 32-bit words, and ChaCha20 blocks, one in each lane of a vector
//
// Included once for every target of kernels that a program has, as simd/vector.inl is; PERGRAD_TARGET is its
// number. No vector may be handed to a function that is declared elsewhere (std::bit_cast): that one is compiled for
// the baseline, where vectors of this width are passed in another way. What is marked is device code with one lane.
// Instructions are the compilers' built-ins: <immintrin.h> costs a program a fifth of the time that this library does.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::detail::PERGRAD_KERNELS {

/// Number of 32-bit lanes of this target's widest vectors. AVX alone has no wide integers.
#if PERGRAD_VECTORS_ON_DEVICE
inline constexpr int native_lanes = PERGRAD_TARGET == 2 ? 16 : PERGRAD_TARGET == 1 ? 8 : 4;
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

/// x turned left by `Bits`. AVX2 has no such instruction, but one that moves bytes: g++ does not find it by itself.
template <int Bits, class Word>
[[gnu::always_inline]] PERGRAD_HD constexpr Word turned_left(const Word& x) noexcept {
#if PERGRAD_SHUFFLES && PERGRAD_TARGET == 1
  if constexpr (sizeof(Word) == 32 && Bits % 8 == 0) {
    static_assert(Bits == 8 || Bits == 16);
    using bytes [[gnu::vector_size(32)]] = std::uint8_t;
    const bytes b = __builtin_bit_cast(bytes, x);
    if constexpr (Bits == 16) {
      return __builtin_bit_cast(
          Word, __builtin_shufflevector(b, b, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, 18, 19, 16, 17, 22,
                                        23, 20, 21, 26, 27, 24, 25, 30, 31, 28, 29));
    } else {
      return __builtin_bit_cast(
          Word, __builtin_shufflevector(b, b, 3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14, 19, 16, 17, 18, 23,
                                        20, 21, 22, 27, 24, 25, 26, 31, 28, 29, 30));
    }
  }
#endif
  return (x << Bits) | (x >> (32 - Bits));
}

/// Two vectors of words that go through the same, an operation of the one between those of the other: what is done to
/// one of them waits for the operation before, and two rounds of ChaCha20 fit into the registers of AVX-512.
template <class Vector>
struct two_of {
  Vector first;
  Vector second;

  [[gnu::always_inline]] void operator+=(const two_of& other) noexcept {
    first += other.first;
    second += other.second;
  }
  [[gnu::always_inline]] friend two_of operator^(const two_of& a, const two_of& b) noexcept {
    return {a.first ^ b.first, a.second ^ b.second};
  }
};
template <int Bits, class Vector>
[[gnu::always_inline]] constexpr two_of<Vector> turned_left(const two_of<Vector>& x) noexcept {
  return {turned_left<Bits>(x.first), turned_left<Bits>(x.second)};
}

/// Word is std::uint32_t, a vector of them, one block per lane, or two of these.
template <class Word>
[[gnu::always_inline]] PERGRAD_HD constexpr void chacha_quarter_round(Word& a, Word& b, Word& c, Word& d) noexcept {
  a += b;
  d = turned_left<16>(d ^ a);
  c += d;
  b = turned_left<12>(b ^ c);
  a += b;
  d = turned_left<8>(d ^ a);
  c += d;
  b = turned_left<7>(b ^ c);
}

template <class Word>
[[gnu::always_inline]] PERGRAD_HD constexpr void chacha_rounds(Word (&x)[16]) noexcept {
  for (int double_round = 0; double_round < 10; ++double_round) {
    chacha_quarter_round(x[0], x[4], x[8], x[12]);
    chacha_quarter_round(x[1], x[5], x[9], x[13]);
    chacha_quarter_round(x[2], x[6], x[10], x[14]);
    chacha_quarter_round(x[3], x[7], x[11], x[15]);
    chacha_quarter_round(x[0], x[5], x[10], x[15]);
    chacha_quarter_round(x[1], x[6], x[11], x[12]);
    chacha_quarter_round(x[2], x[7], x[8], x[13]);
    chacha_quarter_round(x[3], x[4], x[9], x[14]);
  }
}

/// Word w of block counter[lane] in lane `lane` of out[w].
template <int Lanes>
[[gnu::always_inline]] inline void chacha_lanes(const chacha_key& key, const chacha_nonce& nonce,
                                                const typename lanes<Lanes>::u32& counter,
                                                typename lanes<Lanes>::u32 (&out)[16]) noexcept {
  for (std::size_t i = 0; i < 4; ++i) out[i] = splat_u32<Lanes>(chacha_constants[i]);
  for (std::size_t i = 0; i < 8; ++i) out[4 + i] = splat_u32<Lanes>(key.words[i]);
  out[12] = counter;
  for (std::size_t i = 0; i < 3; ++i) out[13 + i] = splat_u32<Lanes>(nonce.words[i]);
  chacha_rounds(out);
  for (std::size_t i = 0; i < 4; ++i) out[i] += chacha_constants[i];
  for (std::size_t i = 0; i < 8; ++i) out[4 + i] += key.words[i];
  out[12] += counter;
  for (std::size_t i = 0; i < 3; ++i) out[13 + i] += nonce.words[i];
}
/// f(0), ..., f(Count - 1), without a loop: what they number stays in registers.
template <std::size_t Count, class Function>
[[gnu::always_inline]] inline void for_numbers(const Function& f) noexcept {
  [&]<std::size_t... Number>(std::index_sequence<Number...>) __attribute__((always_inline)) { (f(Number), ...); }
  (std::make_index_sequence<Count>{});
}
/// The same of these counters and of those Lanes further on.
template <int Lanes>
[[gnu::always_inline]] inline void chacha_lanes(const chacha_key& key, const chacha_nonce& nonce,
                                                const typename lanes<Lanes>::u32& counter,
                                                typename lanes<Lanes>::u32 (&out)[2][16]) noexcept {
  using u32 = typename lanes<Lanes>::u32;
  const two_of<u32> counters{counter, counter + static_cast<std::uint32_t>(Lanes)};
  two_of<u32> words[16];
  const auto begin = [&](std::size_t i, std::uint32_t word) __attribute__((always_inline)) {
    words[i] = {splat_u32<Lanes>(word), splat_u32<Lanes>(word)};
  };
  const auto add = [&](std::size_t i, std::uint32_t word) __attribute__((always_inline)) {
    words[i] += {splat_u32<Lanes>(word), splat_u32<Lanes>(word)};
  };
  const auto with_all = [&](const auto& f) __attribute__((always_inline)) {
    for_numbers<4>([&](std::size_t i) __attribute__((always_inline)) { f(i, chacha_constants[i]); });
    for_numbers<8>([&](std::size_t i) __attribute__((always_inline)) { f(4 + i, key.words[i]); });
    for_numbers<3>([&](std::size_t i) __attribute__((always_inline)) { f(13 + i, nonce.words[i]); });
  };
  with_all(begin);
  words[12] = counters;
  chacha_rounds(words);
  with_all(add);
  words[12] += counters;
  for_numbers<16>([&](std::size_t i) __attribute__((always_inline)) {
    out[0][i] = words[i].first;
    out[1][i] = words[i].second;
  });
}

}

#endif  // PERGRAD_KERNELS
