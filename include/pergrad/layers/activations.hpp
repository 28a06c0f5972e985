// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/activations.hpp - functions of one number, element by element: y = value(x), dy/dx = derivative(x, y)
//
//     relu      max(x, 0)          1 where y > 0, else 0 (0 at 0, as PyTorch)
//     tanh      tanh x             1 - y^2
//     sigmoid   1 / (1 + e^-x)     y (1 - y)
//     softplus  log(1 + e^x)       sigmoid(x)
//     gelu      x Phi(x)           Phi(x) + x phi(x)            (Hendrycks & Gimpel 2016, arXiv:1606.08415)
//     gelu_tanh x (1 + t) / 2      (1 + t + x (1 - t^2) u') / 2 with t = tanh u, u = sqrt(2/pi) (x + 0.044715 x^3)
//     silu      x sigmoid(x)       s + y (1 - s), s = sigmoid(x)               (the same; swish)
//     leaky     x or a x           1 where y > 0, else a (a at 0, as PyTorch)  (Maas, Hannun & Ng 2013)
//     elu       x or a (e^x - 1)   1 where y > 0, else y + a = a e^x           (Clevert et al. 2016, arXiv:1511.07289)
#pragma once

#include <array>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/number.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Templates over a number or a vector of numbers, for hosts and devices.
struct activation {
  static constexpr bool on_device = true;
  static constexpr bool on_vectors = true;
};
/// Without a look at x, so that x need not be kept.
struct activation_from_output : activation {
  static constexpr bool derivative_from_output = true;
};

}  // namespace detail

/// PyTorch: `nn.ReLU`. A NaN stays a NaN, so that a sample with one is found and dropped.
struct relu : detail::activation_from_output {
  static constexpr const char* name = "relu";
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::select(x < Value{}, Value{}, x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return math::select(y > Value{}, Value{} + 1, Value{});
  }
};

/// PyTorch: `nn.Tanh`. Bounded activations help private training (Papernot et al. 2021, arXiv:2007.14191).
struct tanh : detail::activation_from_output {
  static constexpr const char* name = "tanh";
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::tanh(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return 1 - y * y;
  }
};

/// PyTorch: `nn.Sigmoid`.
struct sigmoid : detail::activation_from_output {
  static constexpr const char* name = "sigmoid";
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::sigmoid(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return y * (1 - y);
  }
};

/// PyTorch: `nn.Softplus` with beta 1 (computed exactly: PyTorch's switch to y = x above its threshold 20 differs by
/// 2e-9).
struct softplus : detail::activation {
  static constexpr const char* name = "softplus";
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::softplus(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value x, Value /*y*/) noexcept {
    return math::sigmoid(x);
  }
};

/// PyTorch: `nn.GELU`, the exact form with erf.
struct gelu : detail::activation {
  static constexpr const char* name = "gelu";
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return x * cdf(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value x, Value /*y*/) noexcept {
    using element = math::element_t<Value>;
    constexpr auto inverse_root_two_pi = static_cast<element>(0.39894228040143267793994605993438);
    return cdf(x) + x * (math::exp(x * x * static_cast<element>(-0.5)) * inverse_root_two_pi);
  }

 private:
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value cdf(Value x) noexcept {
    using element = math::element_t<Value>;
    constexpr auto inverse_root_two = static_cast<element>(0.70710678118654752440084436210485);
    return (math::erf(x * inverse_root_two) + 1) * static_cast<element>(0.5);
  }
};

/// PyTorch: `nn.GELU(approximate="tanh")`, GPT-2's; `gelu_new` and `gelu_pytorch_tanh` of Hugging Face's transformers.
/// -infinity gives NaN, as there.
struct gelu_tanh : detail::activation {
  static constexpr const char* name = "gelu_tanh";
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    using element = math::element_t<Value>;
    return x * ((inner(x) + 1) * static_cast<element>(0.5));
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value x, Value /*y*/) noexcept {
    using element = math::element_t<Value>;
    constexpr auto half = static_cast<element>(0.5);
    const Value t = inner(x);
    const Value slope = 1 - t * t;
    const Value of_inner = (x * x * static_cast<element>(3 * cubic) + 1) * static_cast<element>(root);
    // Where t does not change any more, squares of x may overflow.
    return (t + 1) * half + math::select(slope > Value{}, x * (slope * of_inner) * half, Value{});
  }

 private:
  static constexpr double root = 0.79788456080286535587989211986876;  // sqrt(2 / pi)
  static constexpr double cubic = 0.044715;
  /// tanh(sqrt(2 / pi) (x + 0.044715 x^3))
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value inner(Value x) noexcept {
    using element = math::element_t<Value>;
    return math::tanh(x * (x * x * static_cast<element>(cubic) + 1) * static_cast<element>(root));
  }
};

/// PyTorch: `nn.SiLU`. -infinity gives NaN, as there.
struct silu : detail::activation {
  static constexpr const char* name = "silu";
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return x * math::sigmoid(x);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value x, Value y) noexcept {
    const Value s = math::sigmoid(x);
    return s + y * (1 - s);
  }
};

namespace detail {

/// A function of one number with a constant that is not negative, so that the sign of y is that of x. Takes no options.
template <number Constant, class... Options>
struct activation_with_constant : activation_from_output {
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{Constant.value}; }
  [[nodiscard]] static constexpr mistake check(shape /*in*/) noexcept {
    return sizeof...(Options) == 0 && Constant.is_size() ? mistake::none : mistake::option_not_offered;
  }

 protected:
  template <class Value>
  [[nodiscard]] PERGRAD_HD static constexpr math::element_t<Value> constant() noexcept {
    return static_cast<math::element_t<Value>>(Constant.value);
  }
};

}  // namespace detail

/// `leaky_relu<>` or `leaky_relu<0.2>`: the slope below 0, finite and not negative. PyTorch: `nn.LeakyReLU`.
template <detail::number NegativeSlope = 0.01, class... Options>
struct leaky_relu : detail::activation_with_constant<NegativeSlope, Options...> {
  static constexpr const char* name = "leaky_relu";
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::select(x > Value{}, x, x * leaky_relu::template constant<Value>());
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return math::select(y > Value{}, Value{} + 1, math::splat<Value>(leaky_relu::template constant<Value>()));
  }
};

/// `elu<>` or `elu<0.5>`: how far below 0 it goes, finite and not negative. PyTorch: `nn.ELU`.
template <detail::number Alpha = 1.0, class... Options>
struct elu : detail::activation_with_constant<Alpha, Options...> {
  static constexpr const char* name = "elu";
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return math::select(x > Value{}, x, math::expm1(x) * elu::template constant<Value>());
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value /*x*/, Value y) noexcept {
    return math::select(y > Value{}, Value{} + 1, y + elu::template constant<Value>());
  }
};

}  // namespace pergrad::inline v0_1
