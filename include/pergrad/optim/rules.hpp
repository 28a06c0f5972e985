// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/rules.hpp - what an optimizer does to one parameter, stated once for host and device
//
//   SGD       w <- w - step g
//   momentum  v <- momentum v + factor g;  w <- w - rate v
//   Adam      g' = factor g;  m <- b1 m + (1 - b1) g';  v <- b2 v + (1 - b2) g'²;
//             w <- w - rate m / (sqrt(v) correction + stability)        (Kingma & Ba 2015, arXiv:1412.6980)
//
// Adam's rate and correction hold the bias corrections of the step: rate / (1 - b1^t) and 1 / sqrt(1 - b2^t). Every
// product that meets a sum is an explicit fma, so host, device and every compiler make the same bits; but on a host
// without such an instruction the sweep over the parameters rounds twice (detail/multiply_add.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/lanes.hpp>
#include <pergrad/detail/multiply_add.hpp>

namespace pergrad::inline v0_1::rules {

/// a * b + c, rounded once: of numbers, or lane by lane of what a host's sweep takes at a time.
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value fused(Value a, Value b, Value c) noexcept {
  if constexpr (std::is_same_v<Value, float>) {
    return __builtin_fmaf(a, b, c);
  } else if constexpr (std::is_same_v<Value, double>) {
    return __builtin_fma(a, b, c);
  } else {
    return on_host::multiply_add<math::element_t<Value>>(a, b, c);
  }
}
/// a * b and a / b, rounded: said so, or device code may take a * b into an fma and divide in a hurry.
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value product(Value a, Value b) noexcept {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Value) == 4) return __fmul_rn(a, b);
  if constexpr (sizeof(Value) == 8) return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value quotient(Value a, Value b) noexcept {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Value) == 4) return __fdiv_rn(a, b);
  if constexpr (sizeof(Value) == 8) return __ddiv_rn(a, b);
#else
  return a / b;
#endif
}
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value difference(Value a, Value b) noexcept {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Value) == 4) return __fsub_rn(a, b);
  if constexpr (sizeof(Value) == 8) return __dsub_rn(a, b);
#else
  return a - b;
#endif
}
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value square_root(Value x) noexcept {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Value) == 4) return __fsqrt_rn(x);
  if constexpr (sizeof(Value) == 8) return __dsqrt_rn(x);
#else
  if constexpr (std::is_same_v<Value, float>) {
    return __builtin_sqrtf(x);
  } else if constexpr (std::is_same_v<Value, double>) {
    return __builtin_sqrt(x);
  } else {
    return on_host::square_root<math::element_t<Value>>(x);
  }
#endif
}
template <class Scalar>
struct sgd_rule {
  Scalar step;  ///< rate times the gradient's public factor

  template <class Value>
  PERGRAD_HD void operator()(Value gradient, Value& parameter) const noexcept {
    parameter = fused(math::splat<Value>(-step), gradient, parameter);
  }
};

template <class Scalar>
struct momentum_rule {
  Scalar factor;  ///< the gradient's
  Scalar rate;
  Scalar momentum;

  template <class Value>
  PERGRAD_HD void operator()(Value gradient, Value& parameter, Value& velocity) const noexcept {
    velocity = fused(math::splat<Value>(momentum), velocity, product(math::splat<Value>(factor), gradient));
    parameter = fused(math::splat<Value>(-rate), velocity, parameter);
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

  template <class Value>
  PERGRAD_HD void operator()(Value gradient, Value& parameter, Value& first, Value& second) const noexcept {
    const Value value = product(math::splat<Value>(factor), gradient);
    first = fused(math::splat<Value>(beta1), first, product(math::splat<Value>(rest1), value));
    second = fused(math::splat<Value>(beta2), second, product(product(math::splat<Value>(rest2), value), value));
    const Value denominator = fused(square_root(second), math::splat<Value>(correction), math::splat<Value>(stability));
    parameter = difference(parameter, quotient(product(math::splat<Value>(rate), first), denominator));
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
  return {static_cast<Scalar>(factor),     static_cast<Scalar>(rate),
          static_cast<Scalar>(beta1),      static_cast<Scalar>(difference(1.0, beta1)),
          static_cast<Scalar>(beta2),      static_cast<Scalar>(difference(1.0, beta2)),
          static_cast<Scalar>(correction), static_cast<Scalar>(stability)};
}

}  // namespace pergrad::inline v0_1::rules
