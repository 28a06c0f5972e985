// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/rules.hpp - what an optimizer does to one parameter, stated once for host and device
//
//   SGD       w <- w - step g
//   momentum  v <- momentum v + factor g;  w <- w - rate v
//   Adam      g' = factor g;  m <- b1 m + (1 - b1) g';  v <- b2 v + (1 - b2) g'²;
//             w <- w - rate m / (sqrt(v) correction + stability)        (Kingma & Ba 2015, arXiv:1412.6980)
//   DP-AdamBC as Adam, with the denominator sqrt(max(v square - noise, floor))     (Tang et al. 2024,
//             arXiv:2312.14334)
//
// Before each of them w <- keep w, keep = 1 - rate * decay: decoupled weight decay (Loshchilov & Hutter 2019,
// arXiv:1711.05101), of Adam it is AdamW. Without decay keep is 1, and no bit of w moves. It reads parameters that were
// released, so it costs no privacy.
//
// Adam's rate and correction hold the bias corrections of the step: rate / (1 - b1^t) and 1 / sqrt(1 - b2^t). Every
// product that meets a sum is an explicit fma, so host, device and every compiler make the same bits; but on a host
// without such an instruction the sweep over the parameters rounds twice (simd/rounded.hpp).
#pragma once

#include <cmath>
#include <cstdint>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/simd/lanes.hpp>
#include <pergrad/simd/rounded.hpp>

namespace pergrad::inline v0_1::rules {

template <class Value, class Scalar>
[[nodiscard]] PERGRAD_HD inline Value kept(Value parameter, Scalar keep) noexcept {
  return rounded::multiply(math::splat<Value>(keep), parameter);
}

template <class Scalar>
struct sgd_rule {
  Scalar step;      ///< rate times the gradient's public factor
  Scalar keep = 1;  ///< of a parameter, as in each rule

  template <class Value>
  PERGRAD_HD void operator()(Value gradient, Value& parameter) const noexcept {
    parameter = rounded::fma(math::splat<Value>(-step), gradient, kept(parameter, keep));
  }
};

template <class Scalar>
struct momentum_rule {
  Scalar factor;  ///< the gradient's
  Scalar rate;
  Scalar momentum;
  Scalar keep = 1;

  template <class Value>
  PERGRAD_HD void operator()(Value gradient, Value& parameter, Value& velocity) const noexcept {
    velocity =
        rounded::fma(math::splat<Value>(momentum), velocity, rounded::multiply(math::splat<Value>(factor), gradient));
    parameter = rounded::fma(math::splat<Value>(-rate), velocity, kept(parameter, keep));
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
  Scalar keep = 1;

  template <class Value>
  PERGRAD_HD void operator()(Value gradient, Value& parameter, Value& first, Value& second) const noexcept {
    take(gradient, first, second);
    move(parameter, first, denominator(rounded::square_root(second)));
  }
  template <class Value>
  PERGRAD_HD void take(Value gradient, Value& first, Value& second) const noexcept {
    const Value value = rounded::multiply(math::splat<Value>(factor), gradient);
    first = rounded::fma(math::splat<Value>(beta1), first, rounded::multiply(math::splat<Value>(rest1), value));
    second = rounded::fma(math::splat<Value>(beta2), second,
                          rounded::multiply(rounded::multiply(math::splat<Value>(rest2), value), value));
  }
  /// `root`: of the second moment.
  template <class Value>
  [[nodiscard]] PERGRAD_HD Value denominator(Value root) const noexcept {
    return rounded::fma(root, math::splat<Value>(correction), math::splat<Value>(stability));
  }
  template <class Value>
  PERGRAD_HD void move(Value& parameter, Value first, Value denominator) const noexcept {
    parameter = rounded::fma(math::splat<Value>(keep), parameter,
                             rounded::divide(rounded::multiply(math::splat<Value>(-rate), first), denominator));
  }
};

template <class Scalar>
struct corrected_adam_rule {
  adam_rule<Scalar> adam;
  Scalar square;  ///< 1 / (1 - b2^t)
  Scalar noise;   ///< its share of the second moment over 1 - b2^t
  Scalar floor;

  template <class Value>
  PERGRAD_HD void operator()(Value gradient, Value& parameter, Value& first, Value& second) const noexcept {
    adam.take(gradient, first, second);
    adam.move(parameter, first, rounded::square_root(without_noise(second)));
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD Value without_noise(Value second) const noexcept {
    return math::max(rounded::fma(second, math::splat<Value>(square), math::splat<Value>(-noise)),
                     math::splat<Value>(floor));
  }
};

/// A step of a moving average (optim/parameter_average.hpp). Not as a sum of two shares, which need not add up to 1:
/// parameters that stay would move.
template <class Value, class Scalar>
[[nodiscard]] PERGRAD_HD inline Value averaged(Value average, Value parameter, Scalar way) noexcept {
  return rounded::fma(math::splat<Value>(way), rounded::subtract(parameter, average), average);
}

/// u of DP-AdamBC (optim/adam.hpp) behind a step with noise of this deviation in each element.
[[nodiscard]] inline double noise_share_behind(double share, double beta2, double deviation) noexcept {
  return beta2 * share + (1 - beta2) * (deviation * deviation);
}

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
                                                            double stability, double factor, double keep = 1) noexcept {
  return {static_cast<Scalar>(factor),     static_cast<Scalar>(rate),
          static_cast<Scalar>(beta1),      static_cast<Scalar>(rounded::subtract(1.0, beta1)),
          static_cast<Scalar>(beta2),      static_cast<Scalar>(rounded::subtract(1.0, beta2)),
          static_cast<Scalar>(correction), static_cast<Scalar>(stability),
          static_cast<Scalar>(keep)};
}

}  // namespace pergrad::inline v0_1::rules
