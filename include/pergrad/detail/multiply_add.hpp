// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/multiply_add.hpp - products that meet sums, and square roots, with roundings that no compiler chooses
//
// Whether `a * b + c` rounds once or twice is the compiler's affair: it depends on its rules about contraction, and for
// a b + c d even on the order in which it looks at the products. Where two loops over the same formula have to agree in
// every bit, they say it here.
#pragma once

#include <cstddef>
#include <type_traits>

#include <pergrad/detail/intrinsics.hpp>
#include <pergrad/detail/no_fast_math.hpp>
#include <pergrad/detail/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// Whether `multiply_add` rounds once. Without such an instruction the target rounds product and sum apart, and no
/// compiler can do otherwise.
#if defined(__FMA__) || defined(__aarch64__)
inline constexpr bool multiply_add_is_fused = true;
#else
inline constexpr bool multiply_add_is_fused = false;
#endif

/// a * b + c, lane by lane.
template <class Scalar>
[[nodiscard]] inline vector<Scalar> multiply_add(std::type_identity_t<vector<Scalar>> a,
                                                 std::type_identity_t<vector<Scalar>> b,
                                                 std::type_identity_t<vector<Scalar>> c) noexcept {
  constexpr bool is_float = std::is_same_v<Scalar, float>;
#if defined(__AVX512F__)
  if constexpr (is_float) return _mm512_fmadd_ps(a, b, c);
  if constexpr (!is_float) return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  if constexpr (is_float) return _mm256_fmadd_ps(a, b, c);
  if constexpr (!is_float) return _mm256_fmadd_pd(a, b, c);
#elif defined(__aarch64__)
  if constexpr (is_float) return vfmaq_f32(c, a, b);
  if constexpr (!is_float) return vfmaq_f64(c, a, b);
#else
  static_cast<void>(is_float);
  return a * b + c;
#endif
}

/// Correctly rounded square roots of numbers that are not negative.
template <class Scalar>
[[nodiscard]] inline vector<Scalar> square_root(std::type_identity_t<vector<Scalar>> x) noexcept {
  constexpr bool is_float = std::is_same_v<Scalar, float>;
#if defined(__AVX512F__)  // masked, as g++ 12 warns of its own header in the plain form
  if constexpr (is_float) return _mm512_maskz_sqrt_ps(0xffff, x);
  if constexpr (!is_float) return _mm512_maskz_sqrt_pd(0xff, x);
#elif defined(__AVX__)
  if constexpr (is_float) return _mm256_sqrt_ps(x);
  if constexpr (!is_float) return _mm256_sqrt_pd(x);
#elif defined(__SSE2__)
  if constexpr (is_float) return _mm_sqrt_ps(x);
  if constexpr (!is_float) return _mm_sqrt_pd(x);
#elif defined(__aarch64__)
  if constexpr (is_float) return vsqrtq_f32(x);
  if constexpr (!is_float) return vsqrtq_f64(x);
#else
  for (std::size_t lane = 0; lane < vector_lanes<Scalar>; ++lane) {
    x[lane] = is_float ? static_cast<Scalar>(__builtin_sqrtf(static_cast<float>(x[lane]))) : __builtin_sqrt(x[lane]);
  }
  return x;
#endif
}

}  // namespace pergrad::inline v0_1::on_host
