// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/rules.hpp - what an optimizer does to one parameter, stated once for host and device
//
//   SGD       w <- w - step g
//   momentum  v <- momentum v + factor g;  w <- w - rate v
//   Adam      g' = factor g;  m <- b1 m + (1 - b1) g';  v <- b2 v + (1 - b2) g'²;
//             w <- w - rate m / (sqrt(v) correction + stability)        (Kingma & Ba 2015, arXiv:1412.6980)
//
// Adam's rate and correction hold the bias corrections of the step: rate / (1 - b1^t) and 1 / sqrt(1 - b2^t). Every
// product that meets a sum is an explicit fma, so host, device and every compiler make the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1::rules {

/// a * b + c, rounded once.
[[nodiscard]] PERGRAD_HD inline float fused(float a, float b, float c) noexcept { return __builtin_fmaf(a, b, c); }
[[nodiscard]] PERGRAD_HD inline double fused(double a, double b, double c) noexcept { return __builtin_fma(a, b, c); }
/// a * b and a / b, rounded: said so, or device code may take a * b into an fma and divide in a hurry.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar product(Scalar a, Scalar b) noexcept {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Scalar) == 4) return __fmul_rn(a, b);
  if constexpr (sizeof(Scalar) == 8) return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar quotient(Scalar a, Scalar b) noexcept {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Scalar) == 4) return __fdiv_rn(a, b);
  if constexpr (sizeof(Scalar) == 8) return __ddiv_rn(a, b);
#else
  return a / b;
#endif
}
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar difference(Scalar a, Scalar b) noexcept {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Scalar) == 4) return __fsub_rn(a, b);
  if constexpr (sizeof(Scalar) == 8) return __dsub_rn(a, b);
#else
  return a - b;
#endif
}
[[nodiscard]] PERGRAD_HD inline float square_root(float x) noexcept {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}
[[nodiscard]] PERGRAD_HD inline double square_root(double x) noexcept {
#ifdef __CUDA_ARCH__
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

template <class Scalar>
struct sgd_rule {
  Scalar step;  ///< rate times the gradient's public factor

  PERGRAD_HD void operator()(Scalar gradient, Scalar& parameter) const noexcept {
    parameter = fused(-step, gradient, parameter);
  }
};

template <class Scalar>
struct momentum_rule {
  Scalar factor;  ///< the gradient's
  Scalar rate;
  Scalar momentum;

  PERGRAD_HD void operator()(Scalar gradient, Scalar& parameter, Scalar& velocity) const noexcept {
    velocity = fused(momentum, velocity, product(factor, gradient));
    parameter = fused(-rate, velocity, parameter);
  }
};

template <class Scalar>
struct adam_rule {
  Scalar factor;  ///< the gradient's
  Scalar rate;    ///< over 1 - b1^t
  Scalar beta1;
  Scalar rest1;  ///< 1 - b1, rounded once
  Scalar beta2;
  Scalar rest2;
  Scalar correction;  ///< 1 / sqrt(1 - b2^t)
  Scalar stability;

  PERGRAD_HD void operator()(Scalar gradient, Scalar& parameter, Scalar& first, Scalar& second) const noexcept {
    const Scalar value = product(factor, gradient);
    first = fused(beta1, first, product(rest1, value));
    second = fused(beta2, second, product(product(rest2, value), value));
    const Scalar denominator = fused(square_root(second), correction, stability);
    parameter = difference(parameter, quotient(product(rate, first), denominator));
  }
};

/// rate / (1 - b1^t) and 1 / sqrt(1 - b2^t) of step t = 1, 2, ...
struct adam_bias {
  double rate;
  double correction;
};
[[nodiscard]] inline adam_bias adam_bias_at(std::uint64_t step, double rate, double beta1, double beta2) {
  const auto count = static_cast<double>(step);
  return {rate / (1 - std::pow(beta1, count)), 1 / std::sqrt(1 - std::pow(beta2, count))};
}

/// Adam's rule with constants that are rounded once, from double: 1 - 0.999F would be off by 1e-5.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline adam_rule<Scalar> make_adam(double rate, double correction, double beta1, double beta2,
                                                            double stability, double factor) noexcept {
  return {static_cast<Scalar>(factor),     static_cast<Scalar>(rate),     static_cast<Scalar>(beta1),
          static_cast<Scalar>(1 - beta1),  static_cast<Scalar>(beta2),    static_cast<Scalar>(1 - beta2),
          static_cast<Scalar>(correction), static_cast<Scalar>(stability)};
}

}  // namespace pergrad::inline v0_1::rules
