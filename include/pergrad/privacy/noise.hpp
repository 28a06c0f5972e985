// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise.hpp - Gaussian noise that is a pure function of key, purpose, step and element.
//
// Two ChaCha20 words make one pair of Gaussians by Box & Muller 1958, and seldom three:
//     z = sqrt(-2 ln u) * (cos 2 pi v, sin 2 pi v)
// * u is a fraction of 40 bits, the first word and 8 bits of the second, and v has the other 24. Where the first word
//   is below 2^16, in 1 of 65,536 pairs, 32 bits of a third word continue u. So behind its leading zeros u keeps 25
//   bits or more, one more than a float has, down to 2^-48, and it reaches 2^-72: |z| reaches sqrt(144 ln 2) = 9.991. A
//   24- or 32-bit uniform would cut the tail at 5.8 or 6.8 sigma, an event an attacker could see.
// * u = (1 + t / 2) 2^k with -1 <= t <= 0, and -2 ln u = -2 k ln 2 - 2 log1p(t / 2), terms that are never negative.
//   Read as a signed integer the first word is u below one half and u - 1 from there on, so u close to 1 keeps its
//   relative precision too: the smallest radius is 9.5e-7.
// * v is a quarter turn about one of the four axis directions and a place g in [-1/2, 1/2] on it: two short
//   polynomials, no range reduction. A step of g turns by 2^-24, 3.7e-7 of the radius: 3 to 6 units in the last place
//   of a float.
// * All arithmetic is single IEEE float operations; every product that meets a sum is an explicit fma. The bits are the
//   same on every compiler, optimisation level, vector width and machine with IEEE-754 (round to nearest).
// Polynomials are best approximations rounded to float: relative errors 2.4e-8 (log1p), 3.5e-8 (sine), 9.5e-9 (cosine).
//
// Which element uses which words: elements come in tiles of 512, a tile owns blocks 48 t ... 48 t + 47 of the nonce.
// For row p = 0..15 and column c = 0..15, word p of blocks 48 t + c, 48 t + 16 + c and 48 t + 32 + c are the first,
// second and third of a pair whose Gaussians are elements 512 t + 16 p + c (cosine) and 512 t + 256 + 16 p + c (sine).
// A block with a third word is made for the pair that needs it. No order of work, no split of a range and no number of
// threads can change a value. Nothing is kept: no state, no heap.
//
// The third word is a branch that depends on the noise: one tile in 256 takes longer. Who could time single tiles would
// learn that a tile has a pair with a radius beyond sqrt(32 ln 2) = 4.71 sigma, and who times a whole step about how
// many there are. That says nothing of the data, and of the noise no element, no sign and no sum; but the accountant
// does not count it, as it counts no timing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/processor.hpp>
#include <pergrad/privacy/chacha20.hpp>
#include <pergrad/privacy/lanes.hpp>
#include <pergrad/privacy/purpose.hpp>

namespace pergrad::inline v0_1 {

/// Gaussians that one (purpose, step) can give before the 32-bit block counter is used up: about 4.6e10.
inline constexpr std::uint64_t gaussians_per_step = (chacha_blocks_per_nonce / 48) * 512;

namespace detail {

inline constexpr std::size_t gaussian_tile = 512;

/// Arrays that are read at a tile's elements as soon as its Gaussians are made: what of them is not in the cache comes
/// in meanwhile. Making Gaussians waits for no memory, so nothing else would ask for it before.
struct tile_arrays {
  static constexpr std::size_t most = 4;
  const void* first[most]{};  ///< at the tile's first element
  std::size_t count = 0;
  std::size_t bytes = 0;  ///< of a tile's elements; 0: nothing is to be fetched

  template <class Scalar>
  void add(const Scalar* at) noexcept {
    first[count++] = at;
    bytes = gaussian_tile * sizeof(Scalar);
  }
  /// Fetches one of `parts` even parts of each.
  void fetch(std::size_t part, std::size_t parts) const noexcept {
    constexpr std::size_t cache_line = 64;
    const std::size_t lines = bytes / cache_line;
    for (std::size_t k = 0; k < count; ++k) {
      for (std::size_t line = part * lines / parts; line < (part + 1) * lines / parts; ++line) {
        __builtin_prefetch(static_cast<const char*>(first[k]) + line * cache_line);
      }
    }
  }
};

/// Where the first word of a pair is less, its radius has words of its own: 1 of 65,536 pairs.
inline constexpr std::uint32_t first_long_radius = 0x1'0000;

/// Makes the Gaussians of those pairs of a tile again whose first word is below `first_long_radius`. Word `lane` of row
/// p of the columns [column, column + lanes) is first[p * lanes + lane], and so is the second. Scalar code for all
/// families.
void replace_long_radii(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t tile, std::size_t column,
                        std::size_t lanes, const std::uint32_t* first, const std::uint32_t* second,
                        float (&z)[gaussian_tile]) noexcept;

/// What one family of kernels does for noise: all Gaussians of a tile, and out[i] = scale z[i] + sum[i], each one fused
/// multiply-add (`sum` may be `out`). All families give the same bits.
struct gaussian_kernels {
  void (*fill_tile)(const chacha_key&, const chacha_nonce&, std::uint64_t tile, const tile_arrays& wanted,
                    float (&z)[gaussian_tile]) noexcept;
  void (*add_float)(float scale, const float* z, const float* sum, float* out, std::size_t count) noexcept;
  void (*add_double)(double scale, const float* z, const double* sum, double* out, std::size_t count) noexcept;
};

}  // namespace detail

}  // namespace pergrad::inline v0_1

#define PERGRAD_FAMILY_TEXT "pergrad/privacy/noise_text.hpp"
#include <pergrad/detail/every_family_text.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

[[gnu::cold]] inline void replace_long_radii(const chacha_key& key, const chacha_nonce& nonce, std::uint64_t tile,
                                             std::size_t column, std::size_t lanes, const std::uint32_t* first,
                                             const std::uint32_t* second, float (&z)[gaussian_tile]) noexcept {
  for (std::size_t at = 0; at < 16 * lanes; ++at) {
    if (first[at] >= first_long_radius) continue;
    const std::size_t row = at / lanes;
    const std::size_t place = 16 * row + column + at % lanes;
    const std::uint32_t third =
        chacha20_block(key, nonce, static_cast<std::uint32_t>(48 * tile + 32 + place % 16))[row];
    box_muller<1>(long_uniform(first[at], second[at], third), second[at], z[place], z[256 + place]);
  }
}

/// The kernels of a family, which must be compiled into the program.
[[nodiscard]] inline const gaussian_kernels& gaussians_of(on_host::kernel_family family) noexcept {
  return PERGRAD_OF_FAMILY(family, gaussians);
}

inline void require_gaussians(std::uint64_t first, std::uint64_t count) {
  if (first > gaussians_per_step || count > gaussians_per_step - first) {
    throw_out_of_range({"pergrad: gaussian noise: elements [", first, ", +", count, ") exceed the ", gaussians_per_step,
                        " elements of one step"});
  }
}

inline void require_standard_deviation(double standard_deviation) {
  if (!(standard_deviation >= 0 && standard_deviation <= std::numeric_limits<double>::max())) {
    throw_invalid_argument(
        {"pergrad: standard deviation of noise must be finite and not negative, got ", standard_deviation});
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
    throw_invalid_argument({"pergrad: standard deviation of noise does not fit the type of the sum, got ", x});
  }
  return result;
}

/// out[i] = scale z[i] + sum[i], each one fused multiply-add. `sum` may be `out`. With `native_lanes` the kernels in
/// use do it, with another number that many lanes of the flags' vectors.
template <int Lanes, class Scalar>
inline void add_scaled_gaussians(Scalar scale, const float* z, const Scalar* sum, Scalar* out,
                                 std::size_t count) noexcept {
  if constexpr (Lanes != native_lanes) {
    add_scaled_lanes<Lanes>(scale, z, sum, out, count);
  } else if constexpr (std::is_same_v<Scalar, float>) {
    gaussians_of(on_host::kernel_family_in_use()).add_float(scale, z, sum, out, count);
  } else {
    gaussians_of(on_host::kernel_family_in_use()).add_double(scale, z, sum, out, count);
  }
}

/// Nothing is read beside the Gaussians.
struct no_arrays {
  void operator()(std::size_t, tile_arrays&) const noexcept {}
};

/// Calls visit(offset in the range, pointer to z, count) for every piece of elements [first, first + count), and before
/// that, of pieces that are whole tiles, want(offset in the range, tile_arrays): what `visit` will read.
template <int Lanes, class Visitor, class Want = no_arrays>
void for_each_gaussian_piece(const chacha_key& key, random_purpose purpose, std::uint64_t step, std::uint64_t first,
                             std::size_t count, Visitor&& visit, const Want& want = {}) {
  require_gaussians(first, count);
  const chacha_nonce nonce = make_nonce(purpose, step);
  alignas(64) float z[gaussian_tile];
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t element = first + done;
    const auto offset = static_cast<std::size_t>(element % gaussian_tile);
    const std::size_t piece = std::min(gaussian_tile - offset, count - done);
    tile_arrays wanted;
    if (piece == gaussian_tile) want(done, wanted);
    if constexpr (Lanes == native_lanes) {
      gaussians_of(on_host::kernel_family_in_use()).fill_tile(key, nonce, element / gaussian_tile, wanted, z);
    } else {
      fill_gaussian_tile<Lanes>(key, nonce, element / gaussian_tile, wanted, z);
    }
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
                                           Scalar* const to = values.data() + at;
                                           detail::add_scaled_gaussians<Lanes>(scale, z, to, to, count);
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

/// The one standard Gaussian z(element), made by scalar code from two or three scalar ChaCha20 blocks: slow, and equal
/// bit for bit to what the functions above give.
[[nodiscard]] inline float gaussian(const chacha_key& key, random_purpose purpose, std::uint64_t step,
                                    std::uint64_t element) {
  detail::require_gaussians(element, 1);
  const chacha_nonce nonce = make_nonce(purpose, step);
  const auto place = static_cast<std::uint32_t>(element % detail::gaussian_tile);
  const auto block = static_cast<std::uint32_t>(48 * (element / detail::gaussian_tile)) + place % 16;
  const std::size_t row = place % 256 / 16;
  const std::uint32_t first = chacha20_block(key, nonce, block)[row];
  const std::uint32_t second = chacha20_block(key, nonce, block + 16)[row];
  const float y = first < detail::first_long_radius
                      ? detail::long_uniform(first, second, chacha20_block(key, nonce, block + 32)[row])
                      : detail::short_uniform<1>(first, second);
  float along_cosine = 0;
  float along_sine = 0;
  detail::box_muller<1>(y, second, along_cosine, along_sine);
  return place < 256 ? along_cosine : along_sine;
}

}  // namespace pergrad::inline v0_1
