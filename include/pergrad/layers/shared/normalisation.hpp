// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/normalisation.hpp - what the normalising layers share: options, moments, and one row forward
// and back
//
// Of the n values that are normalised together, with mu their mean, s^2 their biased variance and r = 1/sqrt(s^2 +
// eps):
//     xhat_i = (x_i - mu) r             y_i = gain_i xhat_i + shift_i
//     dx_i   = r (g_i - mean(g) - xhat_i mean(g xhat)),   g_i = gain_i dy_i        (Ba et al. 2016, arXiv:1607.06450)
// The root mean square has mu = 0 and r = 1/sqrt(mean(x^2) + eps), and no mean(g) (Zhang & Sennrich 2019,
// arXiv:1910.07467). Parameters: dL/dgain = sum dy xhat, dL/dshift = sum dy, over the positions that share them.
//
// Moments are taken in double, in two passes: the second one sums the deviations from the first one's mean and corrects
// with their own mean (Chan, Golub & LeVeque 1983), so a constant input has exactly variance 0 and its own value as
// mean. Every value is divided by n before it is added: no sum overflows that its mean would not.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <pergrad/initialise.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1 {

/// Option of a normalising layer: how many of the last axes are normalised together.
template <std::size_t Count>
struct axes {};
/// Option of a normalising layer: neither gain nor shift. PyTorch: `affine=False`, `elementwise_affine=False`.
struct no_affine {};
/// Option of a normalising layer: what is added to the variance, Numerator / Denominator.
template <std::uintmax_t Numerator, std::uintmax_t Denominator = 1>
struct eps {};

namespace detail {

/// Options of a normalising layer.
struct norm_options {
  std::size_t axes = 1;
  double epsilon = 1e-5;
  bool affine = true;
  bool bias = true;
  bool axes_given = false;
  bool bias_given = false;
  bool epsilon_given = false;
  bool unknown_given = false;  ///< something that is no option at all, or an epsilon of 0
};

template <std::size_t Count>
constexpr void apply(norm_options& options, pergrad::axes<Count> /*option*/) noexcept {
  options.axes = Count;
  options.axes_given = true;
}
constexpr void apply(norm_options& options, no_affine /*option*/) noexcept { options.affine = false; }
constexpr void apply(norm_options& options, no_bias /*option*/) noexcept {
  options.bias = false;
  options.bias_given = true;
}
template <std::uintmax_t Numerator, std::uintmax_t Denominator>
constexpr void apply(norm_options& options, pergrad::eps<Numerator, Denominator> /*option*/) noexcept {
  options.epsilon_given = true;
  if constexpr (Numerator == 0 || Denominator == 0) {
    options.unknown_given = true;
  } else {
    options.epsilon = static_cast<double>(static_cast<long double>(Numerator) / static_cast<long double>(Denominator));
  }
}

/// Gains 1 and shifts 0 wherever PyTorch's layers would choose for themselves; initialisers of "every parameter"
/// (uniform, normal, constant) are of these, too.
template <class Initialiser, class Scalar>
void initialise_affine(const Initialiser& initialiser, std::uint64_t first, std::size_t gains,
                       std::span<Scalar> parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if constexpr (std::is_base_of_v<layer_default, Initialiser>) {
      parameters[i] = i < gains ? Scalar{1} : Scalar{0};
    } else {
      parameters[i] =
          static_cast<Scalar>(i < gains ? initialiser.weight(first + i, fans{}) : initialiser.bias(first + i, fans{}));
    }
  }
}

namespace normalisation {

using on_host::index;
using on_host::load_narrow;
using on_host::narrow;
using on_host::widen;
using wide = on_host::vector<double>;
inline constexpr auto wide_lanes = static_cast<index>(on_host::vector_lanes<double>);

template <class Scalar>
inline void store_narrow(Scalar* to, narrow<Scalar> value) noexcept {
  std::memcpy(to, &value, sizeof value);
}
/// The first `count` lanes; the others are 0.
template <class Scalar>
[[nodiscard]] inline narrow<Scalar> load_narrow(const Scalar* from, index count) noexcept {
  Scalar lanes[on_host::vector_lanes<double>]{};
  for (index i = 0; i < count; ++i) lanes[i] = from[i];
  return load_narrow(lanes);
}
template <std::size_t First = 0, std::size_t Count = on_host::vector_lanes<double>>
[[nodiscard]] inline double sum_of_lanes(wide values) noexcept {
  if constexpr (Count == 1) {
    return values[First];
  } else {
    return sum_of_lanes<First, Count / 2>(values) + sum_of_lanes<First + Count / 2, Count / 2>(values);
  }
}
[[nodiscard]] inline double sum_of_first_lanes(wide values, index count) noexcept {
  double sum = 0;
  for (index lane = 0; lane < count; ++lane) sum += values[lane];
  return sum;
}

/// Sums over i < count, in double and in an order that depends on `count` only. `f(load)` gives the summands of one
/// vector of elements; `load(from)` is how it reads them.
template <std::size_t Sums, class Function>
[[nodiscard]] inline std::array<double, Sums> reduce(index count, Function&& f) noexcept {
  wide sums[2][Sums]{};
  index i = 0;
  for (; i + 2 * wide_lanes <= count; i += 2 * wide_lanes) {
    for (index half = 0; half < 2; ++half) {
      const std::array<wide, Sums> here =
          f([first = i + half * wide_lanes](const auto* from) { return load_narrow(from + first); });
      for (std::size_t s = 0; s < Sums; ++s) sums[half][s] += here[s];
    }
  }
  std::array<double, Sums> totals{};
  for (std::size_t s = 0; s < Sums; ++s) totals[s] = sum_of_lanes(sums[0][s] + sums[1][s]);
  for (; i < count; i += wide_lanes) {
    const index rest = count - i < wide_lanes ? count - i : wide_lanes;
    const std::array<wide, Sums> here = f([&](const auto* from) { return load_narrow(from + i, rest); });
    for (std::size_t s = 0; s < Sums; ++s) totals[s] += sum_of_first_lanes(here[s], rest);
  }
  return totals;
}

/// How a value becomes xhat: xhat = (x - mean) rate + rest. `rest` is what the mean's rounding to `Scalar` lost, times
/// the rate.
template <class Scalar>
struct normaliser {
  Scalar mean = 0;
  Scalar rate = 1;
  Scalar rest = 0;

  constexpr normaliser() noexcept = default;
  /// From the first pass's mean, and mean and mean square of the deviations from it. A variance that overflows makes
  /// the rate 0.
  normaliser(double first_mean, double deviation, double square, double epsilon) noexcept {
    const double exact_mean = first_mean + deviation;
    const double variance = std::isinf(square) ? square : square - deviation * deviation;
    const double exact_rate = 1 / std::sqrt((variance < 0 ? 0.0 : variance) + epsilon);  // a NaN stays a NaN
    mean = static_cast<Scalar>(exact_mean);
    rate = static_cast<Scalar>(exact_rate);
    rest = static_cast<Scalar>((static_cast<double>(mean) - exact_mean) * exact_rate);
  }
};

/// Of a row of `count` values: centred for a layer norm, not for the root mean square.
template <bool Centred, class Scalar>
[[nodiscard]] inline normaliser<Scalar> normaliser_of_row(const Scalar* x, index count, double epsilon) noexcept {
  const wide share = on_host::splat(1 / static_cast<double>(count));
  if constexpr (Centred) {
    const double mean = reduce<1>(count, [&](const auto& load) { return std::array{widen(load(x)) * share}; })[0];
    const wide centre = on_host::splat(mean);
    const auto [deviation, square] = reduce<2>(count, [&](const auto& load) {
      const wide here = widen(load(x)) - centre;
      return std::array{here * share, here * share * here};
    });
    return {mean, deviation, square, epsilon};
  } else {
    const double square = reduce<1>(count, [&](const auto& load) {
      const wide value = widen(load(x));
      return std::array{value * share * value};
    })[0];
    return {0, 0, square, epsilon};
  }
}

/// xhat and y of a row. `gain` and `shift` may be null: 1 and 0.
template <bool Centred, class Scalar>
inline void forward_row(const Scalar* x, index count, const normaliser<Scalar>& by, const Scalar* gain,
                        const Scalar* shift, Scalar* xhat, Scalar* y) noexcept {
  const auto run = [&](auto with_gain, auto with_shift) {
    on_host::for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
      using vector = on_host::vector<Scalar>;
      vector value = lanes.load(x + i);
      if constexpr (Centred) {
        value = (value - on_host::splat(by.mean)) * on_host::splat(by.rate) + on_host::splat(by.rest);
      } else {
        value = value * on_host::splat(by.rate);
      }
      lanes.store(xhat + i, value);
      if constexpr (with_gain) value = value * lanes.load(gain + i);
      if constexpr (with_shift) value = value + lanes.load(shift + i);
      lanes.store(y + i, value);
    });
  };
  if (gain == nullptr) {
    run(std::false_type{}, std::false_type{});
  } else if (shift == nullptr) {
    run(std::true_type{}, std::false_type{});
  } else {
    run(std::true_type{}, std::true_type{});
  }
}

/// dx of a row. `gain` may be null: 1.
template <bool Centred, class Scalar>
inline void backward_row(const Scalar* xhat, Scalar rate, const Scalar* gain, const Scalar* dy, index count,
                         Scalar* dx) noexcept {
  const wide share = on_host::splat(1 / static_cast<double>(count));
  const auto run = [&](auto with_gain) {
    const auto slope = [&](const auto& load, index i) {
      if constexpr (with_gain) {
        return load(dy + i) * load(gain + i);
      } else {
        return load(dy + i);
      }
    };
    const auto [mean, projection] = reduce<2>(count, [&](const auto& load) {
      const wide weighted = widen(slope(load, 0)) * share;
      return std::array{weighted, weighted * widen(load(xhat))};
    });
    const auto mean_here = static_cast<Scalar>(mean);
    const auto projection_here = static_cast<Scalar>(projection);
    on_host::for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
      auto value = slope([&](const Scalar* from) { return lanes.load(from); }, i);
      if constexpr (Centred) value = value - on_host::splat(mean_here);
      value = value - lanes.load(xhat + i) * on_host::splat(projection_here);
      lanes.store(dx + i, value * on_host::splat(rate));
    });
  };
  if (gain == nullptr) {
    run(std::false_type{});
  } else {
    run(std::true_type{});
  }
}

}  // namespace normalisation
}  // namespace detail
}  // namespace pergrad::inline v0_1
