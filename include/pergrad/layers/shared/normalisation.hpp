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

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/limits.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/rounded.hpp>
#include <pergrad/team.hpp>

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

  friend constexpr bool operator==(const norm_options&, const norm_options&) noexcept = default;
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
  PERGRAD_HD normaliser(double first_mean, double deviation, double square, double epsilon) noexcept {
    const double exact_mean = first_mean + deviation;
    const double variance = square > limits::largest<double> ? square : square - deviation * deviation;
    // A NaN stays a NaN.
    const double exact_rate = 1 / rounded::square_root((variance < 0 ? 0.0 : variance) + epsilon);
    mean = static_cast<Scalar>(exact_mean);
    rate = static_cast<Scalar>(exact_rate);
    rest = static_cast<Scalar>((static_cast<double>(mean) - exact_mean) * exact_rate);
  }
};

/// The formulas, centred for a layer norm, not for the root mean square.
template <bool Centred>
struct formula {
  /// `Of`: one value for all, or one a lane.
  template <class Value, class Of>
  [[nodiscard]] PERGRAD_HD static Value forward(Value x, Of mean, Of rate, Of rest) noexcept {
    return Centred ? (x - mean) * rate + rest : x * rate;
  }
  /// dx from g = gain dy, and the means of g and of g xhat.
  template <class Value, class Of>
  [[nodiscard]] PERGRAD_HD static Value backward(Value g, Value xhat, Of mean, Of projection, Of rate) noexcept {
    return (Centred ? g - mean - xhat * projection : g - xhat * projection) * rate;
  }
};

/// Of a row of `count` values.
template <bool Centred, class Team>
[[nodiscard]] PERGRAD_HD normaliser<typename Team::scalar> normaliser_of_row(const Team& team, std::ptrdiff_t count,
                                                                             const typename Team::scalar* x,
                                                                             double epsilon) {
  const double share = 1 / static_cast<double>(count);
  if constexpr (Centred) {
    const double mean = team.template reduce<1>(count, [&](const auto& at) { return values(at(x) * share); })[0];
    const auto sums = team.template reduce<2>(count, [&](const auto& at) {
      const auto deviation = at(x) - mean;
      return values(deviation * share, deviation * share * deviation);
    });
    return {mean, sums[0], sums[1], epsilon};
  } else {
    const auto sums = team.template reduce<1>(count, [&](const auto& at) {
      const auto value = at(x);
      return values(value * share * value);
    });
    return {0, 0, sums[0], epsilon};
  }
}

/// xhat and y of a row. `gain` and `shift` may be null: 1 and 0.
template <bool Centred, class Team>
PERGRAD_HD void forward_row(const Team& team, std::ptrdiff_t count, const typename Team::scalar* x,
                            const normaliser<typename Team::scalar>& by, const typename Team::scalar* gain,
                            const typename Team::scalar* shift, typename Team::scalar* xhat, typename Team::scalar* y) {
  team.map(count, [&](const auto& at) {
    auto value = formula<Centred>::forward(at(x), by.mean, by.rate, by.rest);
    at.put(xhat, value);
    if (gain != nullptr) value = value * at(gain);
    if (shift != nullptr) value = value + at(shift);
    at.put(y, value);
  });
}
/// dx of a row. `gain` may be null: 1.
template <bool Centred, class Team>
PERGRAD_HD void backward_row(const Team& team, std::ptrdiff_t count, const typename Team::scalar* xhat,
                             typename Team::scalar rate, const typename Team::scalar* gain,
                             const typename Team::scalar* dy, typename Team::scalar* dx) {
  using scalar = typename Team::scalar;
  const double share = 1 / static_cast<double>(count);
  const auto slope = [&](const auto& at) { return gain == nullptr ? at(dy) : at(dy) * at(gain); };
  const auto sums = team.template reduce<2>(count, [&](const auto& at) {
    const auto weighted = slope(at) * share;
    return values(weighted, weighted * at(xhat));
  });
  const auto mean = static_cast<scalar>(sums[0]);
  const auto projection = static_cast<scalar>(sums[1]);
  team.map(count, [&](const auto& at) {
    at.put(dx, formula<Centred>::backward(slope(at), at(xhat), mean, projection, rate));
  });
}

}  // namespace normalisation
}  // namespace detail
}  // namespace pergrad::inline v0_1
