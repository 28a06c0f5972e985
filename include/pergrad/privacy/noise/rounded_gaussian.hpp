// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/rounded_gaussian.hpp - integers k = round(sigma z), z an ideal standard Gaussian: the noise of
// every release, a pure function of key, purpose, step and element
//
// A pair of ideal Gaussians (Box and Muller 1958) is a function of two infinite strings of random bits, U and V:
//     sigma sqrt(-2 ln U) (cos 2 pi V, sin 2 pi V)
// What is wanted are the two nearest integers. 64 bits of each string say them nearly always: the pair is computed in
// double, and a rounding is kept only where it is proven, where the distance d of x to its integer leaves room for all
// that can be wrong. Where it is not, once in some millions of pairs, exact_gaussian.hpp draws more bits. So k is
// exactly what ideal arithmetic on ideal bits gives, tails included, and it is the same integer on every compiler,
// processor, vector width and device, however each of them rounds on its way.
//
// What can be wrong, with G = sigma sqrt(2 E) the pair's radius, E = -ln U and s = 2 sigma²:
// * U's cell: E is that of its upper end, N 2^-64 = 2^(k - 64) (1 + t); within the cell E grows by at most 2 sqrt(2)
//   2^-k (at least 64 ln 2 of it are missing where U's bits are all 0, and k = 0 then). N is rounded by 2^-53 of it.
//   As G² = s E, an error e of E moves G by s e / (2 G).
// * Polynomials, relatively: ln 2^-51.2, sine 2^-54.5, cosine 2^-52.6 (Chebyshev nodes, coefficients rounded to
// double),
//   and their evaluation, a few roundings of 2^-53 each: E errs by less than 2^-50 E + 2^-53, G by 2^-50.4 G more, the
//   direction by less than 2^-50.
// So |error of x| G <= s (sqrt(2) 2^-k + 2^-54 + 2^-49 E), and the test takes s (2 2^-k + 2^-52 + 2^-47 E): a margin of
// four behind the roundings that were counted. A test makes the arithmetic worse on purpose and finds the same
// integers.
//
// Which element uses which words: elements come in blocks of 512, block t owns ChaCha20 blocks 64 t ... 64 t + 63 of
// the nonce. Words 4 p ... 4 p + 3 of block 64 t + b, p = 0..3, are the pair 64 p + b, whose integers are elements 512
// t + 64 p + b and 512 t + 256 + 64 p + b. The further bits of pair n of a step are one block under a nonce of their
// own. No order of work, no split of a range and no number of threads can change a value. Nothing is kept: no state, no
// heap.
//
// Time: no branch and no address depends on the noise but for pairs whose rounding is not proven at once; each takes
// some microseconds. Who times a step learns about how many there were: a number that tells of no element, sign or sum,
// and nothing of the data.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__aarch64__) && !defined(__CUDACC__)  // nvcc's front end does not know what is in it
#include <arm_neon.h>
#endif

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/privacy/noise/chacha20.hpp>
#include <pergrad/privacy/noise/exact_gaussian.hpp>
#include <pergrad/privacy/noise/purpose.hpp>
#include <pergrad/simd/processor.hpp>

namespace pergrad::inline v0_1 {

/// Integers that one (purpose, step) can give before the 32-bit block counter is used up: 2^35.
inline constexpr std::uint64_t gaussians_per_step = (chacha_blocks_per_nonce / 64) * 512;

namespace detail {

inline constexpr std::size_t gaussian_block = 512;

/// Standard deviations that the arithmetic above is good for.
inline constexpr double least_sigma = 0x1p4;
inline constexpr double most_sigma = 0x1p46;

inline constexpr double error_next_to_one = 0x1p-52;
inline constexpr double error_of_gaussian = 0x1p-47;

/// Coefficients, highest powers first. A device has them among a kernel's arguments, where an instruction reads them.
struct gaussian_polynomials {
  // of -ln(1 + t), odd and even powers
  double odd[9] = {0x1.ea1f67f905749p-6, 0x1.227d22feca091p-4, 0x1.092646c0ebbc0p-4,
                   0x1.3bb16646e15d8p-4, 0x1.7456903f23be8p-4, 0x1.c71c951a2eb08p-4,
                   0x1.249248fe0aaeap-3, 0x1.99999999919fap-3, 0x1.5555555555809p-2};
  double even[9] = {-0x1.0e98e2f6196a3p-4, -0x1.03a806343966bp-4, -0x1.22ea4afee4af9p-4,
                    -0x1.558447ee75e12p-4, -0x1.9997078eac01cp-4, -0x1.000009bc36855p-3,
                    -0x1.5555552eedc2ap-3, -0x1.0000000021d88p-2, -0x1.ffffffffffee9p-2};
  // of the sine and the cosine of a quarter of a turn, in y²
  double sine[7] = {0x1.e3f38399551bfp-38, -0x1.e30071afc3e59p-30, 0x1.50782fda12d96p-22, -0x1.32d2cce2e5b19p-15,
                    0x1.466bc677587f8p-9,  -0x1.4abbce625be41p-4,  0x1.921fb54442d18p-1};
  double cosine[7] = {0x1.f3dbcea61b1a4p-34, -0x1.a6c9c1be9eb49p-26, 0x1.e1f4fb60281f6p-19, -0x1.55d3c7dbfd139p-12,
                      0x1.03c1f081b0780p-6,  -0x1.3bd3cc9be458bp-2,  0x1.0000000000000p+0};
};
inline constexpr gaussian_polynomials polynomials{};

/// Is the rounding of a pair with this margin not proven?
[[nodiscard]] PERGRAD_HD inline bool is_open(double margin) noexcept { return !(margin >= 0); }

/// How sums and released values lie to the grid: sum * to_grid is a place in grid steps, integer * grid a value.
struct release_scale {
  double to_grid = 1;
  double grid = 1;
  double largest = 0;  ///< that the released type can hold
};
/// Places beyond are taken for the nearest of these: clamping brings no two of them further apart.
inline constexpr double most_on_grid = 0x1p50;

/// `a` or `b`, by masks: of a comparison a compiler may make a jump, and then time tells something of the sum.
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline double either(bool first, double a, double b) noexcept {
  const std::uint64_t mask = 0 - static_cast<std::uint64_t>(first);
  return __builtin_bit_cast(
      double, (__builtin_bit_cast(std::uint64_t, a) & mask) | (__builtin_bit_cast(std::uint64_t, b) & ~mask));
}
/// The value of a place on the grid, as near as Scalar comes.
template <class Scalar>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Scalar released_value(double on_grid,
                                                                          const release_scale& scale) noexcept {
  double value = on_grid * scale.grid;
  value = either(value < scale.largest, value, scale.largest);
  return static_cast<Scalar>(either(value > -scale.largest, value, -scale.largest));
}
/// The nearest place on the grid.
template <class Scalar>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline double on_grid(Scalar sum, const release_scale& scale) noexcept {
  constexpr double to_integer = 0x1.8p52;
  double place = static_cast<double>(sum) * scale.to_grid;
  place = either(place > -most_on_grid, place, -most_on_grid);
  place = either(place < most_on_grid, place, most_on_grid);
  return (place + to_integer) - to_integer;
}
/// What the kernels of one target do for a release. All give the same bits.
template <class Scalar>
struct release_kernels {
  bool (*fill_block)(const chacha_key&, const chacha_nonce&, std::uint64_t block, double twice_variance,
                     double (&k)[gaussian_block], double (&margins)[gaussian_block / 2]) noexcept;
  void (*release)(const double* k, const Scalar* sum, const release_scale&, Scalar* out, int count) noexcept;
};

}  // namespace detail

}  // namespace pergrad::inline v0_1

#define PERGRAD_TARGET_SOURCE "pergrad/privacy/noise/rounded_gaussian.inl"
#include <pergrad/simd/multi_target.inl>

namespace pergrad::inline v0_1::detail {

template <class Scalar>
[[nodiscard, gnu::noinline]] const release_kernels<Scalar>& release_kernels_in_use() noexcept {
  return PERGRAD_OF_TARGET(on_host::kernel_target_in_use(), releases<Scalar>);
}

inline void require_gaussians(std::uint64_t first, std::uint64_t count) {
  if (first > gaussians_per_step || count > gaussians_per_step - first) {
    throw_out_of_range({"pergrad: noise: elements [", first, ", +", count, ") exceed the ", gaussians_per_step,
                        " elements of one step"});
  }
}

/// The words of pair `pair` of a block, and those that continue them.
[[nodiscard]] inline gaussian_bits bits_of_pair(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t block,
                                                std::uint32_t pair) noexcept {
  gaussian_bits bits{};
  const chacha_block words = chacha20_block(key, nonce, static_cast<std::uint32_t>(64 * block) + pair % 64);
  const std::uint64_t number = 256 * block + pair;
  const chacha_block more = chacha20_block(key, continued(nonce, static_cast<std::uint32_t>(number >> 32U)),
                                           static_cast<std::uint32_t>(number));
  for (std::uint32_t i = 0; i < 2; ++i) {
    bits.u[i] = words[4 * (pair / 64) + i];
    bits.v[i] = words[4 * (pair / 64) + 2 + i];
  }
  for (std::uint32_t i = 0; i < 8; ++i) {
    bits.u[2 + i] = more[i];
    bits.v[2 + i] = more[8 + i];
  }
  return bits;
}

/// Makes those pairs of a block exact whose margin is negative.
[[gnu::cold]] inline void settle_roundings(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t block,
                                           double sigma, const double (&margins)[gaussian_block / 2],
                                           double (&k)[gaussian_block]) noexcept {
  for (std::uint32_t pair = 0; pair < gaussian_block / 2; ++pair) {
    if (!is_open(margins[pair])) continue;
    std::int64_t exact[2];
    exact_pair(bits_of_pair(key, nonce, block, pair), sigma, exact);
    k[pair] = static_cast<double>(exact[0]);
    k[pair + gaussian_block / 2] = static_cast<double>(exact[1]);
  }
}

/// The 512 integers of a block, as doubles. With `native_lanes` the kernels in use make them, with another number that
/// many lanes of the flags' vectors. `Scalar`: of what is released. Precondition: least_sigma <= sigma <= most_sigma.
template <int Lanes = native_lanes, class Scalar = float>
void fill_rounded_gaussians(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t block, double sigma,
                            double (&k)[gaussian_block]) noexcept {
  alignas(64) double margins[gaussian_block / 2];
  const double twice_variance = 2 * sigma * sigma;
  bool is_open = false;
  if constexpr (Lanes == native_lanes) {
    is_open = release_kernels_in_use<Scalar>().fill_block(key, nonce, block, twice_variance, k, margins);
  } else {
    is_open = fill_rounded_block<Lanes>(key, nonce, block, twice_variance, k, margins);
  }
  if (is_open) settle_roundings(key, nonce, block, sigma, margins, k);
  wipe(margins, sizeof margins);
}

}  // namespace pergrad::inline v0_1::detail
