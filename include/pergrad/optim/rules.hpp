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
#include <pergrad/detail/rounded.hpp>

namespace pergrad::inline v0_1::rules {

// Each rounded once: of numbers, or lane by lane of what a host's sweep takes at a time.

/// a * b + c
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value fused(Value a, Value b, Value c) noexcept {
  if constexpr (std::is_floating_point_v<Value>) {
    return rounded::fma(a, b, c);
  } else {
    return on_host::multiply_add<math::element_t<Value>>(a, b, c);
  }
}
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value product(Value a, Value b) noexcept {
  if constexpr (std::is_floating_point_v<Value>) {
    return rounded::multiply(a, b);
  } else {
    return a * b;
  }
}
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value quotient(Value a, Value b) noexcept {
  if constexpr (std::is_floating_point_v<Value>) {
    return rounded::divide(a, b);
  } else {
    return a / b;
  }
}
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value difference(Value a, Value b) noexcept {
  if constexpr (std::is_floating_point_v<Value>) {
    return rounded::subtract(a, b);
  } else {
    return a - b;
  }
}
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value square_root(Value x) noexcept {
  if constexpr (std::is_floating_point_v<Value>) {
    return rounded::square_root(x);
  } else {
    return on_host::square_root<math::element_t<Value>>(x);
  }
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
