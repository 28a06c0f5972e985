// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/device/integer_gaussian.hpp - pairs of rounded Gaussians by integers of 32 bits, for GPUs that have
// few units for doubles
//
// The same integers of the same words as round_gaussians (privacy/noise/rounded_gaussian.hpp), proven in the same way:
// with G = sigma sqrt(2 E) and E = -ln U they are the nearest to G cos and G sin of an angle within a quarter of a
// turn. Numbers are fixed point, "in units of 2^-n"; sums are exact and a product of two of 64 bits errs by less than 3
// of its last places, always down. So nothing depends on a compiler or a processor but for two seeds, 1 / x and 1 /
// sqrt(x) in float, which a Newton step makes better than 2^-27.
//
// What can be wrong:
// * ln: U = 2^-z m, m in [1/2, 1); with m' = 2 m below sqrt(1/2), else m, and q = |m' - 1| / (m' + 1) <= 0.172,
//       E = z' ln 2 -+ 2 q P(32 q²),  P of degree 7 (2^-59 at Chebyshev nodes).
//   Products below P's last place, 2^-55, and a factor that is cut to 31 bits add up to less than 2^-52 of E, q's last
//   places to 2^-55. G errs by half of the first, relatively, and with d = 2^-55 by less than sigma sqrt(2) d /
//   sqrt(E).
// * U's cell is 2^-64 wide, and its odd end is taken: E errs by at most 1.5 2^(z - 63) more, in the place of d. Where
//   all bits of U are 0, that is more than any rounding has room for.
// * The square root, by one step more: 2^-54. sigma sqrt(2), rounded on the host: 2^-52.4.
// * Sine (degree 13, 2^-58; last place 2^-56, a factor cut to 31 bits 2^-52.6): 2^-51.9. Cosine (degree 12, 2^-54.2;
//   last place 2^-58): 2^-53.6.
// All together G 2^-50.6 and sigma sqrt(2) (2^-55 + 1.5 2^(z - 63)) / sqrt(E); the test takes 2^-49, 2^-53 and
// 2^(z - 61): margins of more than two behind all that was counted.
#pragma once

#include <cmath>
#include <cstdint>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1::on_device {

/// Of a multiprocessor that has 2 or 4 units for doubles beside 128 for floats; on a host it does not matter.
#if defined(__CUDA_ARCH__)
inline constexpr bool has_few_doubles =
    __CUDA_ARCH__ != 700 && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ != 900 && __CUDA_ARCH__ != 1000;
#else
inline constexpr bool has_few_doubles = false;
#endif

/// sigma sqrt(2) = mantissa 2^(exponent - 63), the mantissa in [2^62, 2^63).
struct integer_deviation {
  std::uint64_t mantissa = 0;
  int exponent = 0;

  /// Zeros unless least_sigma <= sigma <= most_sigma (privacy/noise/rounded_gaussian.hpp).
  [[nodiscard]] static integer_deviation of(double sigma) noexcept {
    integer_deviation result;
    if (!(sigma >= 0x1p4 && sigma <= 0x1p46)) return result;
    const double fraction = std::frexp(std::sqrt(2 * sigma * sigma), &result.exponent);
    result.mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 63));
    return result;
  }
};

/// What four words make; unless the pair is open, both are right.
struct integer_pair {
  std::int64_t along_cosine;
  std::int64_t along_sine;
  bool is_open;
};

namespace fixed {

[[nodiscard]] PERGRAD_HD inline std::uint32_t upper(std::uint64_t a) noexcept {
  return static_cast<std::uint32_t>(a >> 32U);
}
[[nodiscard]] PERGRAD_HD inline std::uint32_t lower(std::uint64_t a) noexcept { return static_cast<std::uint32_t>(a); }
/// a b + c. By its instruction: else nvcc makes two or three more of one in six.
[[nodiscard]] PERGRAD_HD inline std::uint64_t fused(std::uint32_t a, std::uint32_t b, std::uint32_t c) noexcept {
#ifdef __CUDA_ARCH__
  std::uint64_t result;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(result) : "r"(a), "r"(b), "l"(std::uint64_t{c}));
  return result;
#else
  return std::uint64_t{a} * b + c;
#endif
}
/// a b, of signed numbers.
[[nodiscard]] PERGRAD_HD inline std::int64_t product(std::int64_t a, std::uint32_t b) noexcept {
#ifdef __CUDA_ARCH__
  std::int64_t result;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(result) : "r"(static_cast<std::int32_t>(a)), "r"(b));
  return result;
#else
  return std::int64_t{static_cast<std::int32_t>(a)} * static_cast<std::int32_t>(b);
#endif
}
/// a b 2^-32, rounded down.
[[nodiscard]] PERGRAD_HD inline std::uint32_t times(std::uint32_t a, std::uint32_t b) noexcept {
#ifdef __CUDA_ARCH__
  return __umulhi(a, b);
#else
  return upper(std::uint64_t{a} * b);
#endif
}
/// a b 2^-32, at most 1 too small.
[[nodiscard]] PERGRAD_HD inline std::uint64_t times(std::uint64_t a, std::uint32_t b) noexcept {
  return fused(upper(a), b, times(lower(a), b));
}
/// a b 2^-64, less than 3 too small. Precondition: both are at most 2^63.
[[nodiscard]] PERGRAD_HD inline std::uint64_t times(std::uint64_t a, std::uint64_t b) noexcept {
  return fused(upper(a), upper(b), times(upper(a), lower(b)) + times(lower(a), upper(b)));
}
/// Precondition: a is not 0.
[[nodiscard]] PERGRAD_HD inline int leading_zeros(std::uint64_t a) noexcept {
#ifdef __CUDA_ARCH__
  return __clzll(static_cast<long long>(a));
#else
  return __builtin_clzll(a);
#endif
}
/// 1 / sqrt(x), relatively within 2^-22.
[[nodiscard]] PERGRAD_HD inline float about_reciprocal_root(float x) noexcept {
#ifdef __CUDA_ARCH__
  return rsqrtf(x);
#else
  return 1 / __builtin_sqrtf(x);
#endif
}

/// 2^92 / a, relatively within 2^-27. Precondition: 2^62 <= a < 2^63.
[[nodiscard]] PERGRAD_HD inline std::uint32_t reciprocal(std::uint64_t a) noexcept {
  const float root = about_reciprocal_root(static_cast<float>(upper(a)));
  const auto seed = static_cast<std::uint32_t>(multiply(multiply(root, root), 0x1p60F));
  const auto rest = static_cast<std::int64_t>((std::uint64_t{1} << 60U) - std::uint64_t{upper(a)} * seed);
  return seed + static_cast<std::uint32_t>(product(rest >> 10U, seed) >> 50U);
}
/// sqrt(a 2^-63) in units of 2^-60. Precondition: 2^61 <= a < 2^63.
[[nodiscard]] PERGRAD_HD inline std::uint64_t square_root(std::uint64_t a) noexcept {
  const auto seed = static_cast<std::uint32_t>(
      multiply(about_reciprocal_root(static_cast<float>(upper(a))), 0x1.6a09e6p44F));  // 2^44.5
  const auto square = static_cast<std::uint32_t>(std::uint64_t{seed} * seed >> 29U);
  const auto rest = static_cast<std::int64_t>((std::uint64_t{1} << 60U) - std::uint64_t{upper(a)} * square);
  const std::uint32_t y = seed + static_cast<std::uint32_t>(product(rest >> 10U, seed) >> 51U);
  const std::uint64_t about = times(a, y);
  const auto missing = static_cast<std::int64_t>((a >> 3U) - times(about << 2U, about << 2U));
  return about + static_cast<std::uint64_t>(product(missing >> 4U, y) >> 26U);
}

}  // namespace fixed

/// The pair of the words (u_high, u_low) and (v_high, v_low).
[[nodiscard]] PERGRAD_HD inline integer_pair round_gaussians_by_integers(std::uint32_t u_high, std::uint32_t u_low,
                                                                         std::uint32_t v_high, std::uint32_t v_low,
                                                                         integer_deviation deviation) noexcept {
  using fixed::times;
  using fixed::upper;
  using u32 = std::uint32_t;
  using u64 = std::uint64_t;
  constexpr u64 one = u64{1} << 63U;
  // m in units of 2^-64, q = n / (4 d)
  const u64 u = (u64{u_high} << 32U) | u_low | 1U;
  const int zeros = fixed::leading_zeros(u);
  const u64 m = u << static_cast<unsigned>(zeros);
  const bool is_low = m < 0xb504'f333'f9de'6484U;
  const u64 n = is_low ? m ^ one : 0 - m;
  const u64 d = (m >> 2U) + (is_low ? one >> 2U : one >> 1U);
  const u32 per_d = fixed::reciprocal(d);
  const u64 quotient = times(n, per_d);  // 2^-62
  const auto rest = static_cast<std::int64_t>(n - 2 * times(d, quotient << 3U));
  const u64 q4 = (quotient + static_cast<u64>(fixed::product(rest >> 5U, per_d) >> 27U)) << 3U;  // 4 q, in 2^-63
  // P of w = 32 q²; coefficients in units of 2^-62 ... 2^-55
  const u64 w = times(q4, q4) << 2U;  // 2^-63
  u32 tail = times(upper(w), u32{0x0097'a6c4}) + 0x09cc'cdfbU;
  tail = times(upper(w), tail) + 0xba33'4ca8U;
  u64 p = times(upper(w), tail) + u64{0xe'38e2'8002};
  p = times(p, upper(w)) + 0x124'9249'4514U;
  p = times(w, p) + 0x1999'9999'97afU;
  p = times(w, p) + 0x2'aaaa'aaaa'aab6U;
  p = times(w, p) + 0x80'0000'0000'0000U;
  const u64 log = times(q4, p << 2U);  // 2 q P, in 2^-57 as all of E
  const u64 whole = static_cast<u32>(zeros + (is_low ? 1 : 0)) * u64{0x162'e42f'efa3'9ef3};
  const u64 e = (is_low ? whole - log : whole + log) | 1U;
  // sqrt(E) = 8 root 2^-half; G in units of 2^-(58 - exponent), moved by `half`
  const auto half = static_cast<unsigned>(fixed::leading_zeros(e) - 1) / 2;
  const u64 root = fixed::square_root(e << (2 * half));
  const u64 radius = times(root << 2U, deviation.mantissa);
  // The place y on a quarter about an axis
  const u64 place = (u64{v_high & 0x3fff'ffffU} << 32U) | v_low;  // 2^-62
  const bool is_negative = place < one >> 2U;
  const u64 y = (is_negative ? (one >> 2U) - place : place - (one >> 2U)) << 2U;  // 2^-63
  const u64 y2 = times(y, y) << 1U;                                               // 2^-63
  tail = 0xf180'38d8U - times(upper(y2), u32{0x01e3'f384});
  u64 s = u64{0x54'1e0b'f685} - times(upper(y2), tail);
  s = 0x132d'2cce'2e5bU - times(s, upper(y2));
  s = 0x2'8cd7'8cee'b0ffU - times(y2, s);
  s = 0x29'5779'cc4b'7c83U - times(y2, s);
  s = 0xc9'0fda'a221'68c2U - times(y2, s);
  s = times(y, s << 6U) << 2U;  // 2^-63
  u64 c = u64{0x34'd938'37d4} - times(upper(y2), u32{0x7cf6'f3aa});
  c = 0xf0f'a7db'0141U - times(c, upper(y2));
  c = 0x2'aba7'8fb7'fa27U - times(y2, c);
  c = 0x40'f07c'206c'1dfeU - times(y2, c);
  c = 0x277'a799'37c8'b163U - times(y2, c);
  c = 0x3ff'ffff'ffff'fff2U - times(y2, c);
  c <<= 5U;
  // The quarter is (c, s), (-c, s), (s, c) or (s, -c), and s has the sign of y.
  const auto fraction = static_cast<unsigned>(58 - deviation.exponent);
  const u64 rounding = u64{1} << (fraction - 1);
  const u64 along_c = (times(radius << 1U, c) >> half) + rounding;
  const u64 along_s = (times(radius << 1U, s) >> half) + rounding;
  // 1 / sqrt(E) <= 2^half / 4, so sigma sqrt(2) d / sqrt(E) is at most 2^(56 + half) d in these units.
  const u64 of_log = (8 + ((u64{1} << static_cast<unsigned>(zeros)) >> 5U)) << half;
  const u64 error = ((along_c + along_s) >> 49U) + of_log + 8;  // cos + sin >= 1
  const auto is_near_an_edge = [&](u64 x) { return ((x + error) & (2 * rounding - 1)) <= 2 * error; };
  const auto k_c = static_cast<std::int64_t>(along_c >> fraction);
  const auto k_s = static_cast<std::int64_t>(along_s >> fraction);
  const bool is_swapped = (v_high & 0x8000'0000U) != 0;
  const std::int64_t signed_c = (v_high & 0x4000'0000U) != 0 ? -k_c : k_c;
  const std::int64_t signed_s = is_negative ? -k_s : k_s;
  return {is_swapped ? signed_s : signed_c, is_swapped ? signed_c : signed_s,
          is_near_an_edge(along_c) || is_near_an_edge(along_s)};
}

}  // namespace pergrad::inline v0_1::on_device
