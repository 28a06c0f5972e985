// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/rules.hpp - one rule a layer: how large its output, dL/dx and its parameters' gradient can be
//
// X = ‖x‖₂, G = ‖dL/dy‖₂ (domain.hpp), T positions, gamma_n the rounding of n operations (upper.hpp).
//
//   affine       ‖y‖ <= ‖W‖ X + sqrt(T) ‖b‖,  ‖dx‖ <= ‖W‖ G,  ‖dW‖ <= V G,  ‖db‖ <= sqrt(T) G,  where V² = sum_t
//                ‖view_t(x)‖² <= c X², c windows that see one pixel: Cauchy-Schwarz, T positions of one product each
//   elementwise  |f(x)| <= s |x| + |f(0)|,  |f'| <= s
//   pools        a mean is a matrix with row sums 1: ‖y‖ <= sqrt(c / divisor) X; of a maximum each input has at most c
//   norms        ‖xhat‖ <= sqrt(n) of n numbers that are normalised together; dx <= max|gain| G / sqrt(eps)
//   tables       a row's length times sqrt(T)
//
// Rounding of an affine map: the host forms some convolutions by minimal filtering (Winograd). Componentwise, |computed
// - exact| <= gamma |A^T| (|U| |V|) |A| with |U| = |G||w||G^T|, |V| = |B^T||x||B| of its transforms. Of F(2 x 2, 3 x 3)
// the norms of the absolute transforms are at most 3, 6 and 5, and patches overlap fourfold: 3 6 5 2 = 180 = 60 sqrt(9
// taps). In pairs, 4, 6 and 4, an overlap of 2, and a convolution of a quarter of the taps, which has at most
// sqrt(taps / 4) times its weights' Frobenius norm: 96 sqrt(taps). So whichever way a convolution, its adjoint or its
// weights' gradient is formed, it is off by at most gamma_(n + 64) 96 sqrt(taps) ‖W‖_F X, n products a sum.
//
// Results below the smallest normal number may become 0, an error of 2^-126 an operation; with fewer than 2^31
// operations a value and gradients that are taken to be at least 2^-30 long that is less than 2^-50 G and 2^-60.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <ratio>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/certify/domain.hpp>
#include <pergrad/certify/into_ball.hpp>
#include <pergrad/certify/spectral.hpp>
#include <pergrad/concepts.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/layers/activations.hpp>
#include <pergrad/layers/added_bias.hpp>
#include <pergrad/layers/augment.hpp>
#include <pergrad/layers/channel_affine.hpp>
#include <pergrad/layers/dropout.hpp>
#include <pergrad/layers/embedding.hpp>
#include <pergrad/layers/embedding_bag.hpp>
#include <pergrad/layers/gated.hpp>
#include <pergrad/layers/group_norm.hpp>
#include <pergrad/layers/group_sort.hpp>
#include <pergrad/layers/layer_norm.hpp>
#include <pergrad/layers/mean_over_positions.hpp>
#include <pergrad/layers/parallel.hpp>
#include <pergrad/layers/positions.hpp>
#include <pergrad/layers/scale.hpp>
#include <pergrad/layers/sequence_bias.hpp>
#include <pergrad/layers/slices.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::certified {

inline constexpr double nothing_lost = 0x1p-50;  ///< for what becomes 0

// Affine
// ---------------------------------------------------------------------------------------------------------------

template <class Layer>
requires detail::has_affine<Layer>
[[nodiscard]] effect rule_of(std::type_identity<Layer> /*layer*/, const node_bounds& at) {
  const affine_map map = Layer::affine(at.in);
  const std::size_t taps = map.kernel.size();
  const std::size_t inner = map.view_width();            // products of an output
  const std::size_t outer = map.group_outputs() * taps;  // of an element of the adjoint
  const std::size_t windows = map.positions();
  const upper filtered = taps > 1 ? upper{96} * root_of(taps) : upper{1};
  const auto lost = [&](std::size_t products) {
    return at.rounds.gamma(products + 64) * filtered * at.weights.frobenius;
  };
  const std::size_t places = map.adjoint ? map.in_size.size() : windows;  // where a bias is added
  const upper bias = root_of(places) * at.weights.bias;
  effect result;
  const upper l2 = (at.weights.norm + lost(map.adjoint ? outer : inner)) * at.x.l2 + bias * at.rounds.growth(2);
  result.y = at.y(l2 * at.rounds.growth(2), intervals::inside::unbounded);
  result.dx = at.weights.norm + lost(map.adjoint ? inner : outer);
  // Of what is seen in windows: x, or of the adjoint dy.
  upper views = root_of(most_windows(map)) * at.x.l2;
  if (!map.adjoint) views = std::min(views, root_of(windows * map.in_channels * taps) * at.x.largest);
  result.block = views * at.rounds.growth(windows + 2) + at.rounds.gamma(windows + 64) * filtered * at.x.l2;
  if (map.bias) result.block = length_of(result.block, root_of(places) * at.rounds.growth(places));
  return result;
}
template <class Layer, class Scalar>
requires detail::has_affine<Layer>
[[nodiscard]] weight_bound measure_of(std::type_identity<Layer> /*layer*/, shape in, std::span<const Scalar> weights) {
  return measure_affine(Layer::affine(in), weights);
}

// Elementwise
// ----------------------------------------------------------------------------------------------------------

/// Of functions whose slope is 1 above 0, and below at most this.
[[nodiscard]] constexpr steepest_at bent_by(double slope_below) noexcept {
  return slope_below <= 1 ? steepest_at::upper_end : steepest_at::unknown;
}
template <class Layer>
inline constexpr element_bounds bounds_of_function{.slope = -1};
template <class Layer>
requires requires {
  { Layer::element_bounds } -> std::convertible_to<element_bounds>;
}
inline constexpr element_bounds bounds_of_function<Layer> = Layer::element_bounds;
template <>
inline constexpr element_bounds bounds_of_function<relu>{.is_monotone = true, .steepest = steepest_at::upper_end};
template <>
inline constexpr element_bounds bounds_of_function<tanh>{
    .largest = 1, .is_monotone = true, .steepest = steepest_at::zero};
template <>
inline constexpr element_bounds bounds_of_function<sigmoid>{
    .slope = 0.25, .at_zero = 0.5, .largest = 1, .is_monotone = true, .steepest = steepest_at::zero};
template <>
inline constexpr element_bounds bounds_of_function<softplus>{
    .at_zero = 0.6931471805599454, .is_monotone = true, .steepest = steepest_at::upper_end};
template <>
inline constexpr element_bounds bounds_of_function<gelu>{.slope = 1.13};  // 1.12904...; |f(x)| <= |x|
template <>
inline constexpr element_bounds bounds_of_function<gelu_tanh>{.slope = 1.13};  // 1.12900...
template <>
inline constexpr element_bounds bounds_of_function<silu>{.slope = 1.1};  // 1.09984...
template <detail::number Slope, class... Options>
inline constexpr element_bounds bounds_of_function<leaky_relu<Slope, Options...>>{
    .slope = std::max(1.0, Slope.value), .is_monotone = true, .steepest = bent_by(Slope.value)};
template <detail::number Alpha, class... Options>
inline constexpr element_bounds bounds_of_function<elu<Alpha, Options...>>{
    .slope = std::max(1.0, Alpha.value), .is_monotone = true, .steepest = bent_by(Alpha.value)};
template <class Ratio>
inline constexpr element_bounds bounds_of_function<scale<Ratio>>{
    .slope = (Ratio::num < 0 ? -1.0 : 1.0) * static_cast<double>(Ratio::num) / static_cast<double>(Ratio::den),
    .is_monotone = true,
    .steepest = steepest_at::upper_end};

/// Functions are computed to 2 units in the last place (simd/math.hpp), of which products and sums make less than 16.
template <class Layer>
requires(detail::has_value<Layer>&& bounds_of_function<Layer>.slope >= 0) [[nodiscard]] effect
    rule_of(std::type_identity<Layer> /*layer*/, const node_bounds& at) {
  constexpr element_bounds f = bounds_of_function<Layer>;
  const upper grows = at.rounds.growth(16);
  const upper slope = upper{f.slope} * grows;
  effect result;
  // tanh of a NaN is a NaN.
  if (at.x.l2.is_finite()) {
    result.y = at.y(slope * at.x.l2 + root_of(at.in.size()) * f.at_zero * grows,
                    std::min(slope * at.x.largest + upper{f.at_zero} * grows, upper{f.largest} * grows));
  }
  result.dx = slope;
  return result;
}

// Pools
// ----------------------------------------------------------------------------------------------------------------

namespace inside {

/// What windows along one axis are: inputs that the largest has, and windows that see one input, at most.
struct window_counts {
  std::size_t longest = 1;
  std::size_t overlap = 1;
};
template <class Range>
[[nodiscard]] window_counts count_windows(std::size_t inputs, std::size_t outputs, const Range& range) {
  std::vector<std::size_t> seen(inputs);
  window_counts found{0, 0};
  for (std::size_t o = 0; o < outputs; ++o) {
    const window_range window = range(o);
    found.longest = std::max(found.longest, window.end - window.begin);
    for (std::size_t i = window.begin; i < window.end; ++i) found.overlap = std::max(found.overlap, ++seen[i]);
  }
  return found;
}
/// The least divisor of a mean.
template <class Layer>
[[nodiscard]] std::size_t least_divisor(shape in, extent out) {
  std::size_t least = ~std::size_t{0};
  for (std::size_t d = 0; d < out.depth; ++d) {
    for (std::size_t i = 0; i < out.height; ++i) {
      for (std::size_t j = 0; j < out.width; ++j) {
        if constexpr (requires { Layer::divisor(in, d, i, j); }) {
          least = std::min(least, Layer::divisor(in, d, i, j));
        } else {
          least = std::min(least, Layer::divisor(in, i, j));
        }
      }
    }
  }
  return least;
}

}  // namespace inside

/// Windows whose function is known: one of one's own says `bounds`.
template <class Layer>
concept has_known_windows = detail::has_windows<Layer> && detail::has_known_rule<Layer>;
template <class Layer>
requires has_known_windows<Layer>
[[nodiscard]] effect rule_of(std::type_identity<Layer> /*layer*/, const node_bounds& at) {
  const extent in = detail::image_size(at.in);
  const extent out = detail::image_size(at.out);
  const auto rows = inside::count_windows(in.height, out.height, [&](std::size_t i) { return Layer::rows(at.in, i); });
  const auto columns =
      inside::count_windows(in.width, out.width, [&](std::size_t j) { return Layer::columns(at.in, j); });
  inside::window_counts planes;
  if constexpr (requires { Layer::planes(at.in, std::size_t{}); }) {
    planes = inside::count_windows(in.depth, out.depth, [&](std::size_t d) { return Layer::planes(at.in, d); });
  }
  const std::size_t overlap = rows.overlap * columns.overlap * planes.overlap;
  const std::size_t longest = rows.longest * columns.longest * planes.longest;
  const upper grows = at.rounds.growth(longest + overlap + 4);
  effect result;
  if constexpr (Layer::known_rule == window_rule::maximum) {
    result.dx = root_of(overlap) * grows;
    result.y = at.y(result.dx * at.x.l2, at.x.largest);
  } else {
    const auto divisor = static_cast<double>(inside::least_divisor<Layer>(at.in, out));
    const upper row_sum = upper{longest} / divisor;
    result.dx = sqrt(row_sum * (upper{overlap} / divisor)) * grows;
    result.y = at.y(result.dx * at.x.l2, row_sum * at.x.largest * grows);
    result.formed = std::min(upper{longest} * at.x.largest, root_of(longest) * at.x.l2);
  }
  return result;
}

// Structure
// ------------------------------------------------------------------------------------------------------------

/// The same values, or some of them, in another order.
[[nodiscard]] inline effect moves_values(const node_bounds& at) { return {.y = at.y(at.x.l2, at.x.largest)}; }

template <class Layer>
requires detail::is_reshape<Layer>
[[nodiscard]] effect rule_of(std::type_identity<Layer> /*layer*/, const node_bounds& at) { return moves_values(at); }
template <std::size_t First, std::size_t Count>
[[nodiscard]] effect rule_of(std::type_identity<slice<First, Count>> /*layer*/, const node_bounds& at) {
  return moves_values(at);
}
template <std::size_t First, std::size_t Count>
[[nodiscard]] effect rule_of(std::type_identity<take_positions<First, Count>> /*layer*/, const node_bounds& at) {
  return moves_values(at);
}
[[nodiscard]] inline effect rule_of(std::type_identity<select_last> /*layer*/, const node_bounds& at) {
  return moves_values(at);
}
[[nodiscard]] inline effect rule_of(std::type_identity<augment<random_flip>> /*layer*/, const node_bounds& at) {
  return moves_values(at);
}
template <std::size_t Pixels>
[[nodiscard]] effect rule_of(std::type_identity<augment<random_shift<Pixels>>> /*layer*/, const node_bounds& at) {
  return moves_values(at);
}
template <std::size_t Size>
[[nodiscard]] effect rule_of(std::type_identity<group_sort<Size>> /*layer*/, const node_bounds& at) {
  return moves_values(at);
}
/// A change of one's own says `bounds(node_bounds)`, whatever its random words are, and without a change.
template <class Change>
requires requires(const node_bounds& at) {
  { Change::bounds(at) } -> std::same_as<effect>;
}
[[nodiscard]] effect rule_of(std::type_identity<augment<Change>> /*layer*/, const node_bounds& at) {
  return Change::bounds(at);
}
template <detail::number Radius>
[[nodiscard]] effect rule_of(std::type_identity<into_ball<Radius>> /*layer*/, const node_bounds& at) {
  // The length is known to n roundings of a double; the factor and the products round once.
  const upper grows = at.rounds.growth(16) + upper{at.in.size() + 16} * 0x1p-50;
  return {.y = at.y(std::min(at.x.l2, upper{Radius.value}) * grows, at.x.largest * grows), .dx = grows};
}
template <class Layer>
requires detail::is_branch_sum<Layer>
[[nodiscard]] effect rule_of(std::type_identity<Layer> /*layer*/, const node_bounds& at) {
  const upper grows = at.rounds.growth(1);
  return {.y = at.y((at.x.l2 + at.x2.l2) * grows, (at.x.largest + at.x2.largest) * grows)};
}
template <class Layer>
requires(std::is_same_v<Layer, detail::concatenate> || std::is_same_v<Layer, detail::concatenate_channels>)
    [[nodiscard]] effect rule_of(std::type_identity<Layer> /*layer*/, const node_bounds& at) {
  return {.y = at.y(length_of(at.x.l2, at.x2.l2), std::max(at.x.largest, at.x2.largest))};
}
[[nodiscard]] inline effect rule_of(std::type_identity<elementwise_product> /*layer*/, const node_bounds& at) {
  const upper grows = at.rounds.growth(1);
  return {.y = at.y(std::min(at.x.l2 * at.x2.largest, at.x.largest * at.x2.l2) * grows,
                    at.x.largest * at.x2.largest * grows),
          .dx = at.x2.largest * grows,
          .dx2 = at.x.largest * grows};
}
template <probability Probability, class... Options>
[[nodiscard]] effect rule_of(std::type_identity<dropout<Probability, Options...>> /*layer*/, const node_bounds& at) {
  const upper grows = upper{dropout<Probability, Options...>::share} * at.rounds.growth(2);
  return {.y = at.y(grows * at.x.l2, grows * at.x.largest), .dx = grows};
}
[[nodiscard]] inline effect rule_of(std::type_identity<mean_over_positions> /*layer*/, const node_bounds& at) {
  // Of one position it may be the value itself.
  const upper share = at.in.varying_axis() == 0 ? sqrt(upper{1} / static_cast<double>(at.in.e0)) : upper{1};
  const upper grows = share * at.rounds.growth(at.in.e0 + 2);
  return {.y = at.y(grows * at.x.l2, at.x.largest * at.rounds.growth(at.in.e0 + 2)),
          .dx = grows,
          .formed = std::min(upper{at.in.e0} * at.x.largest, root_of(at.in.e0) * at.x.l2)};
}

// Positions and biases
// ---------------------------------------------------------------------------------------------------

[[nodiscard]] inline effect rule_of(std::type_identity<sinusoidal_positions> /*layer*/, const node_bounds& at) {
  const upper grows = at.rounds.growth(4);  // sin² + cos² = 1, of each pair of features
  return {.y = at.y((at.x.l2 + root_of(at.in.e0 * ((at.in.e1 + 1) / 2))) * grows, (at.x.largest + upper{1}) * grows)};
}
[[nodiscard]] inline effect adds_bias(const node_bounds& at, std::size_t times) {
  const upper grows = at.rounds.growth(1);
  return {.y = at.y((at.x.l2 + root_of(times) * at.weights.bias) * grows, (at.x.largest + at.weights.bias) * grows),
          .block = root_of(times) * at.rounds.growth(times)};
}
[[nodiscard]] inline effect rule_of(std::type_identity<learned_positions> /*layer*/, const node_bounds& at) {
  return adds_bias(at, 1);
}
[[nodiscard]] inline effect rule_of(std::type_identity<added_bias> /*layer*/, const node_bounds& at) {
  return adds_bias(at, at.in.rank() == 1 ? 1 : at.in.e0);
}
[[nodiscard]] inline effect rule_of(std::type_identity<sequence_bias> /*layer*/, const node_bounds& at) {
  return {.y = at.y(length_of(at.x.l2, at.weights.bias), std::max(at.x.largest, at.weights.bias)), .block = 1};
}
template <class Scalar>
[[nodiscard]] weight_bound bias_alone(std::span<const Scalar> weights) {
  return {.bias = l2_norm_of(weights)};
}
template <class Scalar>
[[nodiscard]] weight_bound measure_of(std::type_identity<learned_positions> /*layer*/, shape /*in*/,
                                      std::span<const Scalar> weights) {
  return bias_alone(weights);
}
template <class Scalar>
[[nodiscard]] weight_bound measure_of(std::type_identity<added_bias> /*layer*/, shape /*in*/,
                                      std::span<const Scalar> weights) {
  return bias_alone(weights);
}
template <class Scalar>
[[nodiscard]] weight_bound measure_of(std::type_identity<sequence_bias> /*layer*/, shape /*in*/,
                                      std::span<const Scalar> weights) {
  return bias_alone(weights);
}

// Gains and norms
// --------------------------------------------------------------------------------------------------------

/// The largest of the first `gains`, and the length of the rest.
template <class Scalar>
[[nodiscard]] weight_bound gains_and_shifts(std::span<const Scalar> weights, std::size_t gains) {
  weight_bound result = weight_bound::of_none();
  result.bias = l2_norm_of(weights.subspan(gains));
  for (const Scalar each : weights.first(gains)) {
    result.norm = std::max(result.norm, upper{std::fabs(static_cast<double>(each))});
  }
  return result;
}
[[nodiscard]] inline effect rule_of(std::type_identity<channel_affine> /*layer*/, const node_bounds& at) {
  const std::size_t pixels = at.in.size() / at.in.e0;
  const upper grows = at.rounds.growth(pixels + 2);
  return {.y = at.y((at.weights.norm * at.x.l2 + root_of(pixels) * at.weights.bias) * grows,
                    (at.weights.norm * at.x.largest + at.weights.bias) * grows),
          .dx = at.weights.norm * grows,
          .block = length_of(at.x.l2, root_of(pixels)) * grows};
}
template <class Scalar>
[[nodiscard]] weight_bound measure_of(std::type_identity<channel_affine> /*layer*/, shape in,
                                      std::span<const Scalar> weights) {
  return gains_and_shifts(weights, in.e0);
}

namespace inside {

/// `together` numbers are normalised together; a gain is for `uses` numbers, as many as there are in a shift's sum.
/// Moments are taken in double, in two passes: they are off by less than n 2^-50 max |x|, and what the mean's rounding
/// to the scalar leaves of x - mean, u max |x|, is added with a rounding of its own; both times the rate.
[[nodiscard]] inline effect normalises(const node_bounds& at, std::size_t together, std::size_t uses, double epsilon,
                                       bool has_gains) {
  const double u = at.rounds.unit;
  const upper rate = sqrt(upper{1} / epsilon) * at.rounds.growth(4);
  const upper off = (upper{16.0 * u * u} + upper{together} * 0x1p-46) * at.x.largest * rate;
  const upper one = upper{1 + 0x1p-16} + off;  // the root mean square of what is normalised
  const upper gain = has_gains ? at.weights.norm : upper{1};
  const upper grows = at.rounds.growth(uses + 4);
  const upper all = root_of(at.in.size()) * one;
  const upper largest = root_of(together) * one;
  effect result;
  if (!at.x.l2.is_finite()) return result;
  result.y = at.y((gain * all + root_of(uses) * at.weights.bias) * grows, (gain * largest + at.weights.bias) * grows);
  const upper centred = upper{1 + 0x1p-10} + upper{8} * off + off * off;
  result.dx = rate * gain * centred;
  result.inside = upper{4} * gain * centred;  // before the rate, which may be small
  if (has_gains) result.block = length_of(std::min(all, root_of(uses) * largest), root_of(uses)) * grows;
  return result;
}

}  // namespace inside

template <bool Centred, class... Options>
struct of_row_norm {
  using layer = detail::row_norm<Centred, Options...>;
  [[nodiscard]] static std::size_t row_size(shape in) {
    std::size_t size = 1;
    for (std::size_t axis = in.rank() - layer::options.axes; axis < in.rank(); ++axis) size *= in[axis];
    return size;
  }
  [[nodiscard]] static effect rule(const node_bounds& at) {
    // As the layer has it: of the root mean square it is the scalar's epsilon.
    const double epsilon = Centred || layer::options.epsilon_given ? layer::options.epsilon : 2 * at.rounds.unit;
    const std::size_t size = row_size(at.in);
    return inside::normalises(at, size, at.in.size() / size, epsilon, layer::affine);
  }
  [[nodiscard]] static std::size_t gains(shape in) { return layer::affine ? row_size(in) : 0; }
  template <class Scalar>
  [[nodiscard]] static weight_bound measure(shape in, std::span<const Scalar> weights) {
    return gains_and_shifts(weights, gains(in));
  }
};
// Of these types and none that is derived from one: that computes something else.
template <class... Options>
of_row_norm<true, Options...> norm_rule_of(std::type_identity<layer_norm<Options...>>);
template <class... Options>
of_row_norm<false, Options...> norm_rule_of(std::type_identity<rms_norm<Options...>>);

template <std::size_t Groups, class... Options>
struct of_grouped_norm {
  using layer = detail::grouped_norm<Groups, Options...>;
  [[nodiscard]] static effect rule(const node_bounds& at) {
    const std::size_t groups = Groups == 0 ? at.in.e0 : Groups;
    return inside::normalises(at, at.in.size() / groups, at.in.size() / at.in.e0, layer::options.epsilon,
                              layer::options.affine);
  }
  [[nodiscard]] static std::size_t gains(shape in) { return layer::options.affine ? in.e0 : 0; }
  template <class Scalar>
  [[nodiscard]] static weight_bound measure(shape in, std::span<const Scalar> weights) {
    return gains_and_shifts(weights, gains(in));
  }
};
template <std::size_t Groups, class... Options>
of_grouped_norm<Groups, Options...> norm_rule_of(std::type_identity<group_norm<Groups, Options...>>);
template <class... Options>
of_grouped_norm<0, Options...> norm_rule_of(std::type_identity<instance_norm1d<Options...>>);
template <class... Options>
of_grouped_norm<0, Options...> norm_rule_of(std::type_identity<instance_norm2d<Options...>>);
template <class... Options>
of_grouped_norm<0, Options...> norm_rule_of(std::type_identity<instance_norm3d<Options...>>);

template <class Layer>
requires requires(std::type_identity<Layer> layer) { norm_rule_of(layer); }
[[nodiscard]] effect rule_of(std::type_identity<Layer> /*layer*/, const node_bounds& at) {
  return decltype(norm_rule_of(std::type_identity<Layer>{}))::rule(at);
}
template <class Layer, class Scalar>
requires requires(std::type_identity<Layer> layer) { norm_rule_of(layer); }
[[nodiscard]] weight_bound measure_of(std::type_identity<Layer> /*layer*/, shape in, std::span<const Scalar> weights) {
  return decltype(norm_rule_of(std::type_identity<Layer>{}))::measure(in, weights);
}

// Tables
// -----------------------------------------------------------------------------------------------------------------

template <std::size_t Dim, class... Options>
[[nodiscard]] effect rule_of(std::type_identity<embedding<Dim, Options...>> /*layer*/, const node_bounds& at) {
  const upper root = root_of(at.in.e0);  // a sample may hold one id everywhere
  return {.y = at.y(root * at.weights.norm, at.weights.norm), .dx = 0, .block = root * at.rounds.growth(at.in.e0)};
}
template <std::size_t Dim, class... Options>
[[nodiscard]] effect rule_of(std::type_identity<embedding_bag<Dim, Options...>> /*layer*/, const node_bounds& at) {
  const upper times = embedding_bag<Dim, Options...>::options.sum ? upper{at.in.e0} : upper{1};
  const upper grows = at.rounds.growth(2 * at.in.e0 + 4);
  return {.y = at.y(times * at.weights.norm * grows, times * at.weights.norm * grows),
          .dx = 0,
          .block = times * grows,
          .formed = upper{at.in.e0} * at.weights.norm};
}
template <std::size_t Dim, class... Options>
void is_a_table(const detail::table_layer<Dim, Options...>*);
template <class Layer, class Scalar>
requires requires(const Layer* layer) { is_a_table(layer); }
[[nodiscard]] weight_bound measure_of(std::type_identity<Layer> /*layer*/, shape in, std::span<const Scalar> table) {
  const std::size_t width = table.size() / in.ids;
  weight_bound result = weight_bound::of_none();
  for (std::size_t id = 0; id < in.ids; ++id) {
    result.norm = std::max(result.norm, l2_norm_of(table.subspan(id * width, width)));
  }
  return result;
}

// Layers of one's own
// ------------------------------------------------------------------------------------------------------

/// `bounds(node_bounds)` is the rule, `measure(in, weights)` says what of the parameters it reads: without it `weights`
/// are without bound.
template <class Layer>
requires requires(const node_bounds& at) {
  { Layer::bounds(at) } -> std::same_as<effect>;
}
[[nodiscard]] effect rule_of(std::type_identity<Layer> /*layer*/, const node_bounds& at) { return Layer::bounds(at); }
/// A layer of one's own that says what of its parameters its rule reads.
template <class Layer, class Scalar>
concept says_measure = requires(shape in, std::span<const Scalar> w) {
  { Layer::measure(in, w) } -> std::same_as<weight_bound>;
};
template <class Layer, class Scalar>
requires says_measure<Layer, Scalar>
[[nodiscard]] weight_bound measure_of(std::type_identity<Layer> /*layer*/, shape in, std::span<const Scalar> weights) {
  return Layer::measure(in, weights);
}

/// A layer, the library's or one's own, whose outputs and derivatives can be bounded.
template <class Layer>
concept has_rule = requires(const node_bounds& at) {
  rule_of(std::type_identity<Layer>{}, at);
};

}  // namespace pergrad::inline v0_1::certified
