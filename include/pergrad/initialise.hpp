// SPDX-License-Identifier: Apache-2.0
// pergrad/initialise.hpp - first values of the parameters, by PyTorch's names and with PyTorch's defaults
//
// Initial values are public: they need no secure randomness. Every value is a pure function of (seed, parameter index),
// so a network starts alike on any machine. fan_in = in / groups * taps, fan_out = out * taps as
// torch.nn.init counts them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// splitmix64 of (seed, index): public randomness, not for anything private (Steele, Lea & Flood 2014).
[[nodiscard]] constexpr std::uint64_t public_bits(std::uint64_t seed, std::uint64_t index) noexcept {
  std::uint64_t state = seed * 0xD1342543DE82EF95U + (index + 1) * 0x9E3779B97F4A7C15U;
  state = (state ^ (state >> 30U)) * 0xBF58476D1CE4E5B9U;
  state = (state ^ (state >> 27U)) * 0x94D049BB133111EBU;
  return state ^ (state >> 31U);
}
/// Uniform in [0, 1) with 53 bits.
[[nodiscard]] constexpr double public_uniform(std::uint64_t seed, std::uint64_t index) noexcept {
  return static_cast<double>(public_bits(seed, index) >> 11U) * 0x1p-53;
}
/// Of uniform numbers that no index below 2^63 has: one seed gives some parameters normal numbers and others uniform
/// ones.
[[nodiscard]] inline double public_normal(std::uint64_t seed, std::uint64_t index) noexcept {
  const std::uint64_t first = (std::uint64_t{1} << 63U) + 2 * index;
  const double radius = std::sqrt(-2 * std::log1p(-public_uniform(seed, first)));
  return radius * std::cos(2 * std::numbers::pi * public_uniform(seed, first + 1));
}

struct fans {
  double in = 1;
  double out = 1;
};

}  // namespace detail

/// PyTorch's own default of `nn.Linear` and `nn.Conv2d` (reset_parameters): weights and biases uniform in
/// ±1/sqrt(fan_in).
struct layer_default {
  std::uint64_t seed = 0;
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept { return bias(index, fan); }
  [[nodiscard]] double bias(std::uint64_t index, detail::fans fan) const noexcept {
    return (2 * detail::public_uniform(seed, index) - 1) / std::sqrt(fan.in);
  }
};
/// `nn.init.kaiming_uniform_`: weights uniform in ±gain sqrt(3 / fan_in), gain = sqrt(2 / (1 + a²)); biases as
/// `layer_default`.
struct kaiming_uniform : layer_default {
  double negative_slope = 0;
  constexpr explicit kaiming_uniform(std::uint64_t with_seed, double a = 0)
      : layer_default{with_seed}, negative_slope{a} {}
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept {
    const double bound = std::sqrt(6 / ((1 + negative_slope * negative_slope) * fan.in));
    return bound * (2 * detail::public_uniform(seed, index) - 1);
  }
};
/// `nn.init.kaiming_normal_`: weights N(0, gain² / fan_in); biases as `layer_default`.
struct kaiming_normal : layer_default {
  double negative_slope = 0;
  constexpr explicit kaiming_normal(std::uint64_t with_seed, double a = 0)
      : layer_default{with_seed}, negative_slope{a} {}
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept {
    return std::sqrt(2 / ((1 + negative_slope * negative_slope) * fan.in)) * detail::public_normal(seed, index);
  }
};
/// `nn.init.xavier_uniform_`: weights uniform in ±gain sqrt(6 / (fan_in + fan_out)); biases as `layer_default`.
struct xavier_uniform : layer_default {
  double gain = 1;
  constexpr explicit xavier_uniform(std::uint64_t with_seed, double with_gain = 1)
      : layer_default{with_seed}, gain{with_gain} {}
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept {
    return gain * std::sqrt(6 / (fan.in + fan.out)) * (2 * detail::public_uniform(seed, index) - 1);
  }
};
/// `nn.init.xavier_normal_`: weights N(0, gain² · 2 / (fan_in + fan_out)); biases as `layer_default`.
struct xavier_normal : layer_default {
  double gain = 1;
  constexpr explicit xavier_normal(std::uint64_t with_seed, double with_gain = 1)
      : layer_default{with_seed}, gain{with_gain} {}
  [[nodiscard]] double weight(std::uint64_t index, detail::fans fan) const noexcept {
    return gain * std::sqrt(2 / (fan.in + fan.out)) * detail::public_normal(seed, index);
  }
};
/// `nn.init.uniform_` on every parameter: uniform in [low, high), in single precision, too.
struct uniform {
  std::uint64_t seed = 0;
  double low = 0;
  double high = 1;
  [[nodiscard]] double weight(std::uint64_t index, detail::fans /*fan*/) const noexcept {
    const double value = low + (high - low) * detail::public_uniform(seed, index);
    return is_high(value) ? low : value;  // as PyTorch has it
  }
  [[nodiscard]] double bias(std::uint64_t index, detail::fans fan) const noexcept { return weight(index, fan); }

 private:
  /// Whether a value is `high` when it is rounded, where single precision tells the ends apart.
  [[nodiscard]] bool is_high(double value) const noexcept {
    const auto single = [](double of) { return static_cast<float>(of); };
    const bool floats = std::fabs(high) <= static_cast<double>(std::numeric_limits<float>::max()) &&
                        std::fabs(low) <= static_cast<double>(std::numeric_limits<float>::max()) &&
                        single(low) != single(high);
    return value == high || (floats && single(value) == single(high));
  }
};
/// `nn.init.normal_` on every parameter: N(mean, standard_deviation²).
struct normal {
  std::uint64_t seed = 0;
  double mean = 0;
  double standard_deviation = 1;
  [[nodiscard]] double weight(std::uint64_t index, detail::fans /*fan*/) const noexcept {
    return mean + standard_deviation * detail::public_normal(seed, index);
  }
  [[nodiscard]] double bias(std::uint64_t index, detail::fans fan) const noexcept { return weight(index, fan); }
};
/// `nn.init.constant_` on every parameter.
struct constant {
  double value = 0;
  [[nodiscard]] double weight(std::uint64_t /*index*/, detail::fans /*fan*/) const noexcept { return value; }
  [[nodiscard]] double bias(std::uint64_t /*index*/, detail::fans /*fan*/) const noexcept { return value; }
};
/// `nn.init.zeros_` on every parameter.
struct zeros : constant {};
/// `nn.init.ones_` on every parameter.
struct ones : constant {
  constexpr ones() : constant{1} {}
};

namespace detail {

/// Rows of a table (embedding, positions): N(0, 1), as `nn.Embedding` begins, where an initialiser means "what PyTorch
/// does"; any other as it says.
template <class Initialiser, class Scalar>
void initialise_rows(const Initialiser& initialiser, fans fan, std::uint64_t first, std::span<Scalar> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if constexpr (std::is_same_v<Initialiser, layer_default>) {
      rows[i] = static_cast<Scalar>(public_normal(initialiser.seed, first + i));
    } else {
      rows[i] = static_cast<Scalar>(initialiser.weight(first + i, fan));
    }
  }
}

/// Weights, then biases, all of one fan.
template <class Initialiser, class Scalar>
void initialise_block(const Initialiser& initialiser, fans fan, std::size_t weights, std::uint64_t first,
                      std::span<Scalar> parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] =
        static_cast<Scalar>(i < weights ? initialiser.weight(first + i, fan) : initialiser.bias(first + i, fan));
  }
}

/// Fills one layer's parameters. A layer may bring its own `initialise(in, initialiser, first_index, parameters)`; one
/// with two inputs takes the second's shape behind the first's.
template <class Layer, class Initialiser, class Scalar>
void initialise_parameters(const Initialiser& initialiser, shape in, std::uint64_t first, std::span<Scalar> parameters,
                           [[maybe_unused]] shape second = {}) {
  const float_environment proven;
  if constexpr (requires { Layer::initialise(in, second, initialiser, first, parameters); }) {
    Layer::initialise(in, second, initialiser, first, parameters);
  } else if constexpr (requires { Layer::initialise(in, initialiser, first, parameters); }) {
    Layer::initialise(in, initialiser, first, parameters);
  } else if constexpr (has_affine<Layer>) {
    constexpr auto real = [](std::size_t count) { return static_cast<double>(count); };
    const affine_map map = Layer::affine(in);
    const fans fan{real(map.view_width()), real(map.out_channels * map.kernel.size())};
    initialise_block(initialiser, fan, map.weight_count(), first, parameters);
  } else {
    const fans fan{static_cast<double>(in.size()), static_cast<double>(output_shape_of<Layer>(in).size())};
    initialise_block(initialiser, fan, parameters.size(), first, parameters);
  }
}

}  // namespace detail
}  // namespace pergrad::inline v0_1
