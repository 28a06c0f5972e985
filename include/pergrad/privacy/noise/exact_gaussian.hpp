// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/exact_gaussian.hpp - one pair of rounded Gaussians with as many bits as its rounding needs
//
// U and V are infinite strings of random bits, of which rounded_gaussian.hpp draws 64 each. Where these do not settle a
// rounding, what is here reads on: 64 bits more of each, then 128, 192, 256, all from one block that the pair owns.
// With
//     E = -ln U,  y = 2 r - 1,  q = cos(pi |y| / 2),        r: V without its first two bits, which choose the quarter
// the two Gaussians have the squares sigma² E (1 + q) and sigma² E (1 - q), so no square root is needed: the integer k
// is right if (k - 1/2)² <= x² < (k + 1/2)² for both ends of an interval that holds x². Numbers are fixed point, sums
// and products of integers: there is nothing that a compiler or a processor could round in its own way.
//
// Widths of the interval: U and V are known up to their last bit, which moves E by at most 2^(z + 1 - P) and q by 2^(4
// - P); z: leading zeros of U; P = 32 limbs bits drawn, as many as a number has behind its point. Every operation
// truncates by less than 2^(-P); fewer than 2^11 of them make E or q, and E < 2^8. So E (1 +- q) errs by less than 2^(z
// + 2 - P)
// + 2^(24 - P). What 320 bits leave open has a probability below 2^-200 and is rounded by the lower end.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/privacy/noise/chacha20.hpp>

namespace pergrad::inline v0_1::detail {

/// A number of [0, 2^128) with `limbs` limbs behind its point, 10 at most; the least limb first. Operands have the same
/// number of them.
struct fixed_point {
  int limbs;
  int size = limbs + 4;
  std::uint32_t limb[14]{};

  [[nodiscard]] PERGRAD_HD fixed_point zero() const noexcept { return {limbs}; }
  [[nodiscard]] PERGRAD_HD fixed_point of(std::uint32_t whole) const noexcept {
    fixed_point result = zero();
    result.limb[limbs] = whole;
    return result;
  }
  /// 2^power, if that is no smaller than the last bit.
  [[nodiscard]] PERGRAD_HD fixed_point power_of_two(int power) const noexcept {
    fixed_point result = zero();
    const int bit = 32 * limbs + power;
    if (bit >= 0) result.limb[bit / 32] = std::uint32_t{1} << (bit % 32);
    return result;
  }
  [[nodiscard]] PERGRAD_HD bool is_zero() const noexcept {
    std::uint32_t any = 0;
    for (int i = 0; i < size; ++i) any |= limb[i];
    return any == 0;
  }
  [[nodiscard, gnu::noinline]] PERGRAD_HD bool operator<(const fixed_point& other) const noexcept {
    for (int i = size; i-- > 0;) {
      if (limb[i] != other.limb[i]) return limb[i] < other.limb[i];
    }
    return false;
  }
  [[gnu::noinline]] PERGRAD_HD void operator+=(const fixed_point& other) noexcept {
    std::uint64_t carry = 0;
    for (int i = 0; i < size; ++i) {
      carry += std::uint64_t{limb[i]} + other.limb[i];
      limb[i] = static_cast<std::uint32_t>(carry);
      carry >>= 32U;
    }
  }
  /// Precondition: other <= *this.
  [[gnu::noinline]] PERGRAD_HD void operator-=(const fixed_point& other) noexcept {
    std::uint64_t borrow = 0;
    for (int i = 0; i < size; ++i) {
      const std::uint64_t difference = std::uint64_t{limb[i]} - other.limb[i] - borrow;
      limb[i] = static_cast<std::uint32_t>(difference);
      borrow = difference >> 63U;
    }
  }
  /// The product, truncated.
  [[nodiscard, gnu::noinline]] PERGRAD_HD fixed_point operator*(const fixed_point& other) const noexcept {
    std::uint32_t whole[28]{};
    for (int i = 0; i < size; ++i) {
      std::uint64_t carry = 0;
      for (int j = 0; j < size; ++j) {
        carry += std::uint64_t{limb[i]} * other.limb[j] + whole[i + j];
        whole[i + j] = static_cast<std::uint32_t>(carry);
        carry >>= 32U;
      }
      whole[i + size] = static_cast<std::uint32_t>(carry);
    }
    fixed_point result = zero();
    for (int i = 0; i < size; ++i) result.limb[i] = whole[i + limbs];
    return result;
  }
  [[gnu::noinline]] PERGRAD_HD void operator/=(std::uint32_t divisor) noexcept {
    std::uint64_t rest = 0;
    for (int i = size; i-- > 0;) {
      rest = rest << 32U | limb[i];
      limb[i] = static_cast<std::uint32_t>(rest / divisor);
      rest %= divisor;
    }
  }
  PERGRAD_HD void double_it() noexcept { *this += *this; }
  [[nodiscard]] PERGRAD_HD double to_double() const noexcept {
    double result = 0;
    for (int i = size; i-- > 0;) result = result * 0x1p32 + limb[i];
    for (int i = 0; i < limbs; ++i) result *= 0x1p-32;
    return result;
  }
};

/// -ln of the fraction whose first 32 limbs bits are `bits`, most significant first; `zeros` of them lead.
[[nodiscard, gnu::cold, gnu::noinline]] PERGRAD_HD inline fixed_point minus_log(int limbs, const std::uint32_t* bits,
                                                                                int zeros) noexcept {
  // ln 2, truncated
  constexpr std::uint32_t ln2[10] = {0xb17217f7U, 0xd1cf79abU, 0xc9e3b398U, 0x03f2f6afU, 0x40f34326U,
                                     0x7298b62dU, 0x8a0d175bU, 0x8baafa2bU, 0xe7b87620U, 0x6debac98U};
  // m in [1, 2) with U = m 2^-(zeros + 1), and z = (m - 1) / (m + 1) bit by bit; ln m = 2 atanh z
  const fixed_point none{limbs};
  fixed_point rest = none;
  for (int i = 0; i < limbs; ++i) rest.limb[limbs - 1 - i] = bits[i];
  for (int i = 0; i <= zeros; ++i) rest.double_it();
  fixed_point divisor = rest;
  divisor += none.of(1);
  rest -= none.of(1);
  fixed_point z = none;
  for (int bit = 0; bit < 32 * limbs; ++bit) {
    rest.double_it();
    z.double_it();
    if (!(rest < divisor)) {
      rest -= divisor;
      z.limb[0] |= 1U;
    }
  }
  const fixed_point z2 = z * z;
  fixed_point power = z;
  fixed_point half_log = none;
  for (std::uint32_t n = 1; !power.is_zero(); n += 2) {
    fixed_point term = power;
    term /= n;
    half_log += term;
    power = power * z2;
  }
  fixed_point step = none;
  for (int i = 0; i < limbs; ++i) step.limb[limbs - 1 - i] = ln2[i];
  fixed_point result = none;
  for (int i = 0; i <= zeros; ++i) result += step;
  half_log.double_it();
  if (result < half_log) return none;  // U next to 1, less than a rounding away
  result -= half_log;
  return result;
}

/// cos(pi y / 2) of y in [0, 1].
[[nodiscard, gnu::cold, gnu::noinline]] PERGRAD_HD inline fixed_point cosine_of_quarter(const fixed_point& y) noexcept {
  // (pi / 2)², truncated, its whole part first
  constexpr std::uint32_t quarter_squared[11] = {0x00000002U, 0x77a79937U, 0xc8bbcb49U, 0x5b89b366U,
                                                 0x02306b1cU, 0x2159a8ffU, 0x834288a1U, 0x9a088409U,
                                                 0x4f1cda3dU, 0xc426da61U, 0x174c4544U};
  fixed_point factor = y.zero();
  for (int i = 0; i <= y.limbs; ++i) factor.limb[y.limbs - i] = quarter_squared[i];
  const fixed_point square = y * y * factor;
  fixed_point term = y.of(1);
  fixed_point plus = term;
  fixed_point minus = y.zero();
  for (std::uint32_t n = 1; !term.is_zero(); n += 2) {
    term = term * square;
    term /= n * (n + 1);
    if (n % 4 == 1) {
      minus += term;
    } else {
      plus += term;
    }
  }
  if (plus < minus) return y.zero();
  plus -= minus;
  return plus;
}

/// (2 k + 1)² / 4, exactly.
[[nodiscard]] PERGRAD_HD inline fixed_point square_above(int limbs, std::uint64_t k) noexcept {
  fixed_point root{limbs};
  root.limb[limbs - 1] = 0x8000'0000U;
  root.limb[limbs] = static_cast<std::uint32_t>(k);
  root.limb[limbs + 1] = static_cast<std::uint32_t>(k >> 32U);
  return root * root;
}

/// The k with (k - 1/2)² <= x² < (k + 1/2)² if it is the same for all x² = sigma² square, |square - given| <= error.
struct rounded_root {
  std::uint64_t k;
  bool is_settled;
};
[[nodiscard, gnu::cold, gnu::noinline]] PERGRAD_HD inline rounded_root round_root(
    fixed_point square, const fixed_point& error, const fixed_point& variance) noexcept {
  fixed_point most = square;
  most += error;
  most = most * variance;
  most += square.power_of_two(-32 * square.limbs);
  if (square < error) {
    square = square.zero();
  } else {
    square -= error;
  }
  const fixed_point least = square * variance;
  // NOLINTNEXTLINE(bugprone-incorrect-roundings): a guess, which is mended
  auto k = static_cast<std::uint64_t>(__builtin_sqrt(least.to_double()) + 0.5);
  while (k > 0 && least < square_above(square.limbs, k - 1)) --k;
  while (!(least < square_above(square.limbs, k))) ++k;
  return {k, most < square_above(square.limbs, k)};
}

/// What a pair of rounded Gaussians is made of: the first 320 bits of U and V, most significant word first.
struct gaussian_bits {
  static constexpr int words = 10;
  std::uint32_t u[words];
  std::uint32_t v[words];
};

/// Both integers if 32 limbs bits of U and V settle them.
[[nodiscard, gnu::cold, gnu::noinline]] PERGRAD_HD inline bool round_pair(int limbs, const gaussian_bits& bits,
                                                                          double sigma, std::int64_t (&k)[2]) noexcept {
  int zeros = 0;
  while (zeros < 32 * limbs && (bits.u[zeros / 32] >> (31 - zeros % 32) & 1U) == 0) ++zeros;
  if (zeros == 32 * limbs) return false;
  const fixed_point e = minus_log(limbs, bits.u, zeros);

  const fixed_point none{limbs};
  fixed_point r = none;
  for (int i = 0; i < limbs; ++i) r.limb[limbs - 1 - i] = i == 0 ? bits.v[i] & 0x3fff'ffffU : bits.v[i];
  r.double_it();
  r.double_it();
  r.double_it();  // 2 r
  fixed_point y = r;
  const fixed_point one = none.of(1);
  const bool is_negative = r < one;
  if (is_negative) {
    y = one;
    y -= r;
  } else {
    y -= one;
  }
  const fixed_point q = cosine_of_quarter(y);

  // sigma = mantissa 2^exponent, so its square is exact: rounded_gaussian.hpp says how large and small it may be.
  const auto sigma_bits = __builtin_bit_cast(std::uint64_t, sigma);
  const std::uint64_t mantissa = (sigma_bits & 0xf'ffff'ffff'ffffU) | 0x10'0000'0000'0000U;
  int exponent = 2 * (static_cast<int>(sigma_bits >> 52U) - 1075);
  fixed_point root = none;
  root.limb[limbs] = static_cast<std::uint32_t>(mantissa);
  root.limb[limbs + 1] = static_cast<std::uint32_t>(mantissa >> 32U);
  fixed_point variance = root * root;
  for (; exponent > 0; --exponent) variance.double_it();
  for (; exponent < 0; exponent += 2) variance /= 4;

  fixed_point error = none.power_of_two(zeros + 2 - 32 * limbs);
  error += none.power_of_two(24 - 32 * limbs);
  fixed_point more = one;
  more += q;
  fixed_point less = one;
  less -= q < one ? q : one;
  const rounded_root cosine = round_root(e * more, error, variance);
  const rounded_root sine = round_root(e * less, error, variance);
  const auto along_cosine = static_cast<std::int64_t>(cosine.k);
  const auto along_sine = static_cast<std::int64_t>(sine.k);
  const bool swapped = (bits.v[0] & 0x8000'0000U) != 0;
  const bool turned = (bits.v[0] & 0x4000'0000U) != 0;
  k[swapped ? 1 : 0] = turned ? -along_cosine : along_cosine;
  k[swapped ? 0 : 1] = is_negative ? -along_sine : along_sine;
  return cosine.is_settled && sine.is_settled;
}

/// Both integers of a pair, whatever it takes.
PERGRAD_HD inline void exact_pair(const gaussian_bits& bits, double sigma, std::int64_t (&k)[2]) noexcept {
  gaussian_bits drawn = bits;
  drawn.u[gaussian_bits::words - 1] |= 1U;  // read last of all: U is not 0
  for (int limbs = 4; !round_pair(limbs, drawn, sigma, k) && limbs < gaussian_bits::words; limbs += 2) {
  }
}

}  // namespace pergrad::inline v0_1::detail
