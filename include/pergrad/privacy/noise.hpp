// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise.hpp - Gaussian noise that is a pure function of key, purpose, step and element.
//
// Three ChaCha20 words make one pair of Gaussians by Box & Muller 1958:
//     u = (high, low) as a 64-bit fraction,  z = sqrt(-2 ln u) * (cos 2 pi v, sin 2 pi v)
// * The exponent of u comes from its leading zeros, 32 bits below them make its mantissa. Hence u reaches 2^-64 and |z|
//   reaches sqrt(128 ln 2) = 9.419; a 24- or 32-bit uniform would cut the tail at 5.8 or 6.8 sigma, an event an
//   attacker could see. With u = (1 + f) 2^-k and 1/sqrt(2) <= 1 + f < sqrt(2), -2 ln u = 2 k ln 2 - 2 log1p(f); f is
//   taken from the bits without cancellation, so u close to 1 keeps its relative precision too.
// * v = (quadrant + 1/2 turn fraction g) / 4 with g in [-1/2, 1/2]: two short polynomials, no range reduction.
// * All arithmetic is single IEEE float operations; every product that meets a sum is an explicit fma. The bits are the
//   same on every compiler, optimisation level, vector width and machine with IEEE-754 (round to nearest).
// Polynomials are Chebyshev fits rounded to float: relative errors 7.5e-9 (log1p), 3.5e-8 (sine), 9.5e-9 (cosine).
//
// Which element uses which words: elements come in tiles of 512, a tile uses blocks 48 t ... 48 t + 47 of the nonce.
// For row p = 0..15 and column c = 0..15, word p of blocks 48 t + c, 48 t + 16 + c and 48 t + 32 + c are high, low and
// angle of a pair whose Gaussians are elements 512 t + 16 p + c (cosine) and 512 t + 256 + 16 p + c (sine). No order of
// work, no split of a range and no number of threads can change a value. Nothing is kept: no state, no heap.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/privacy/chacha20.hpp>
#include <pergrad/privacy/lanes.hpp>
#include <pergrad/privacy/purpose.hpp>

namespace pergrad::inline v0_1 {

/// Gaussians that one (purpose, step) can give before the 32-bit block counter is used up: about 4.6e10.
inline constexpr std::uint64_t gaussians_per_step = (chacha_blocks_per_nonce / 48) * 512;

namespace detail {

inline constexpr std::size_t gaussian_tile = 512;

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
  const f32 f = product<Lanes>(to_float<Lanes>(bits_as<i32>(fraction)), splat_f32<Lanes>(0x1p-32F));
  const f32 k = to_float<Lanes>(bits_as<i32>(exponent));
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
  const f32 g = product<Lanes>(to_float<Lanes>(bits_as<i32>((angle << 2U) | 2U)), splat_f32<Lanes>(0x1p-32F));
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
  along_cosine = product<Lanes>(radius, bits_as<f32>(bits_as<u32>(x) ^ negative_cosine));
  along_sine = product<Lanes>(radius, bits_as<f32>(bits_as<u32>(y) ^ negative_sine));
}

/// All 512 Gaussians of one tile.
template <int Lanes>
inline void fill_gaussian_tile(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t tile,
                               float (&z)[gaussian_tile]) noexcept {
  using f32 = typename lanes<Lanes>::f32;
  using u32 = typename lanes<Lanes>::u32;
  for (std::size_t column = 0; column < 16; column += static_cast<std::size_t>(Lanes)) {
    const u32 counter = lane_numbers<Lanes>() + static_cast<std::uint32_t>(48 * tile + column);
    u32 high[16];
    u32 low[16];
    u32 angle[16];
    chacha_lanes<Lanes>(key, nonce, counter, high);
    chacha_lanes<Lanes>(key, nonce, counter + 16U, low);
    chacha_lanes<Lanes>(key, nonce, counter + 32U, angle);
    for (std::size_t row = 0; row < 16; ++row) {
      f32 along_cosine;
      f32 along_sine;
      box_muller<Lanes>(high[row], low[row], angle[row], along_cosine, along_sine);
      std::memcpy(z + 16 * row + column, &along_cosine, sizeof along_cosine);
      std::memcpy(z + 256 + 16 * row + column, &along_sine, sizeof along_sine);
    }
  }
}

inline void require_gaussians(std::uint64_t first, std::uint64_t count) {
  if (first > gaussians_per_step || count > gaussians_per_step - first) {
    throw std::out_of_range("pergrad: gaussian noise: elements [" + std::to_string(first) + ", +" +
                            std::to_string(count) + ") exceed the " + std::to_string(gaussians_per_step) +
                            " elements of one step");
  }
}

inline void require_standard_deviation(double standard_deviation) {
  if (!(standard_deviation >= 0 && standard_deviation <= std::numeric_limits<double>::max())) {
    throw std::invalid_argument("pergrad: standard deviation of noise must be finite and not negative, got " +
                                std::to_string(standard_deviation));
  }
}

/// The smallest Scalar that is not below x: noise may be a hair larger than accounted for, never smaller.
template <class Scalar>
[[nodiscard]] inline Scalar rounded_up(double x) {
  auto result = static_cast<Scalar>(x);
  if (static_cast<double>(result) < x) {
    if constexpr (std::is_same_v<Scalar, float>) {
      result = std::bit_cast<float>(std::bit_cast<std::uint32_t>(result) + 1U);  // next float, as x > 0
    }
  }
  if (!(result <= std::numeric_limits<Scalar>::max())) {
    throw std::invalid_argument("pergrad: standard deviation of noise does not fit the type of the sum, got " +
                                std::to_string(x));
  }
  return result;
}

template <class Scalar>
[[gnu::always_inline]] inline Scalar scaled_sum(Scalar scale, float z, Scalar x) noexcept {
  if constexpr (std::is_same_v<Scalar, float>) {
    return __builtin_fmaf(scale, z, x);
  } else {
    return __builtin_fma(scale, static_cast<double>(z), x);
  }
}

/// out[i] = scale z[i] + out[i], each one fused multiply-add, `Lanes` floats at a time: compilers do not vectorise this
/// loop at -O2.
template <int Lanes, class Scalar>
inline void add_scaled_gaussians(Scalar scale, const float* z, Scalar* out, std::size_t count) noexcept {
  std::size_t i = 0;
  if constexpr (std::is_same_v<Scalar, float> && Lanes > 1) {
    using f32 = typename lanes<Lanes>::f32;
    const f32 scales = splat_f32<Lanes>(scale);
    for (; i + static_cast<std::size_t>(Lanes) <= count; i += static_cast<std::size_t>(Lanes)) {
      f32 gaussians;
      f32 sums;
      std::memcpy(&gaussians, z + i, sizeof gaussians);
      std::memcpy(&sums, out + i, sizeof sums);
      sums = fused<Lanes>(scales, gaussians, sums);
      std::memcpy(out + i, &sums, sizeof sums);
    }
  }
  for (; i < count; ++i) out[i] = scaled_sum(scale, z[i], out[i]);
}

/// Calls visit(offset in the range, pointer to z, count) for every piece of elements [first, first + count).
template <int Lanes, class Visitor>
void for_each_gaussian_piece(const chacha_key& key, random_purpose purpose, std::uint64_t step, std::uint64_t first,
                             std::size_t count, Visitor&& visit) {
  require_gaussians(first, count);
  const chacha_nonce nonce = make_nonce(purpose, step);
  alignas(64) float z[gaussian_tile];
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t element = first + done;
    const auto offset = static_cast<std::size_t>(element % gaussian_tile);
    const std::size_t piece = std::min(gaussian_tile - offset, count - done);
    fill_gaussian_tile<Lanes>(key, nonce, element / gaussian_tile, z);
    visit(done, static_cast<const float*>(z) + offset, piece);
    done += piece;
  }
  wipe(z, sizeof z);
}

}  // namespace detail

/// Adds standard_deviation * z(first), standard_deviation * z(first + 1), ... to `values`, where z(e) is the standard
/// Gaussian that belongs to (key, purpose, step, e). Each element is one fused multiply-add in Scalar (float or
/// double); z itself is a float and is converted, so a double sum gets exactly standard_deviation * double(z). For
/// float the standard deviation is rounded up. Throws std::invalid_argument when the deviation is negative or not
/// finite and std::out_of_range beyond `gaussians_per_step` elements; nothing is written then.
template <class Scalar, int Lanes = detail::native_lanes>
requires(std::is_same_v<Scalar, float> ||
         std::is_same_v<Scalar, double>) void add_gaussian(const chacha_key& key, random_purpose purpose,
                                                           std::uint64_t step, std::uint64_t first,
                                                           double standard_deviation, std::span<Scalar> values) {
  detail::require_standard_deviation(standard_deviation);
  const auto scale = detail::rounded_up<Scalar>(standard_deviation);
  detail::for_each_gaussian_piece<Lanes>(key, purpose, step, first, values.size(),
                                         [&](std::size_t at, const float* z, std::size_t count) {
                                           detail::add_scaled_gaussians<Lanes>(scale, z, values.data() + at, count);
                                         });
}

/// Standard Gaussians z(first), z(first + 1), ... into `values`; the same numbers that `add_gaussian` scales and adds.
template <class Scalar, int Lanes = detail::native_lanes>
requires(std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>) void fill_gaussian(
    const chacha_key& key, random_purpose purpose, std::uint64_t step, std::uint64_t first, std::span<Scalar> values) {
  detail::for_each_gaussian_piece<Lanes>(key, purpose, step, first, values.size(),
                                         [&](std::size_t at, const float* z, std::size_t count) {
                                           for (std::size_t i = 0; i < count; ++i)
                                             values[at + i] = static_cast<Scalar>(z[i]);
                                         });
}

/// The one standard Gaussian z(element), made by scalar code from three scalar ChaCha20 blocks: slow, and equal bit for
/// bit to what the functions above give.
[[nodiscard]] inline float gaussian(const chacha_key& key, random_purpose purpose, std::uint64_t step,
                                    std::uint64_t element) {
  detail::require_gaussians(element, 1);
  const chacha_nonce nonce = make_nonce(purpose, step);
  const auto place = static_cast<std::uint32_t>(element % detail::gaussian_tile);
  const auto block = static_cast<std::uint32_t>(48 * (element / detail::gaussian_tile)) + place % 16;
  const std::size_t row = place % 256 / 16;
  float along_cosine = 0;
  float along_sine = 0;
  detail::box_muller<1>(chacha20_block(key, nonce, block)[row], chacha20_block(key, nonce, block + 16)[row],
                        chacha20_block(key, nonce, block + 32)[row], along_cosine, along_sine);
  return place < 256 ? along_cosine : along_sine;
}

}  // namespace pergrad::inline v0_1
