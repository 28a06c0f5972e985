// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/sequence_rules.hpp - rules of recurrent layers and of attention
//
// Recurrent, T steps, w >= ‖W_ih‖, ‖W_hh‖. A unit of dL/dh is e_k of the gates' gradients k steps earlier:
//   rnn    e_k = w^k                                  as |f'| <= 1
//   gru    e_k = a (1 + w a)^k                        a² = (Q/4)² + ((M + 1)/4)² + 1 of (dr, dz, dn), with |h| <= M
//                                                     and |q_n| <= Q = w sqrt(H) M + ‖b‖; dh z is a path beside gates
//   lstm   e = b c + h/4,  h' = w e,  c' = c + h'     of dh and dc, b² = 1 + (1 + C²)/16, |c| <= C = T + |c_0|
// The gates' gradients of all steps are a convolution of dL/dy with e, so D G long, D = sum e_k (of the last output
// alone its norm); then dx <= w D G, and the parameters' D G sqrt(X² + ‖h‖² + T a bias). D is exponential in T: small
// weights and few steps have a bound of use.
//
// Attention: rows of P sum to 1, so ‖P‖ <= sqrt(queries); diag p - p p^T has no norm above 1/2, so with queries, keys
// and values of norms q, k, v, and m = 1 / (1 - p) of dropout,
//   ‖PV‖ <= m sqrt(queries) v    dQ <= m v k / (2 sqrt(d)) G    dK <= m v q / (2 sqrt(d)) G    dV <= m sqrt(queries) G
// Of X = [Q | K | V], v sqrt(q² + k²) <= X² / 2. Layers with projections have these between two affine maps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

#include <pergrad/certify/domain.hpp>
#include <pergrad/certify/rules.hpp>
#include <pergrad/certify/spectral.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/cross_attention.hpp>
#include <pergrad/layers/dropout.hpp>
#include <pergrad/layers/gru.hpp>
#include <pergrad/layers/lstm.hpp>
#include <pergrad/layers/multihead_attention.hpp>
#include <pergrad/layers/recurrent.hpp>
#include <pergrad/layers/rnn.hpp>
#include <pergrad/layers/scaled_dot_product_attention.hpp>
#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/layers/shared/probability.hpp>
#include <pergrad/layers/transformer_encoder_layer.hpp>
#include <pergrad/layers/with_state.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::certified {

namespace inside {

/// The largest norm of matrices that lie one behind the other among a layer's parameters.
struct matrix_place {
  std::size_t offset;
  std::size_t rows;
  std::size_t columns;
};
template <class Scalar>
[[nodiscard]] upper largest_norm(std::span<const Scalar> parameters, std::initializer_list<matrix_place> places) {
  upper most;
  for (const matrix_place& at : places) {
    dense_matrix weights{at.rows, at.columns};
    std::copy_n(parameters.begin() + static_cast<std::ptrdiff_t>(at.offset), at.rows * at.columns,
                weights.values.begin());
    most = std::max(most, spectral_norm(std::move(weights)));
  }
  return most;
}
/// A norm, and what is lost in products of `depth` terms with a matrix of this rank: its Frobenius norm times gamma.
[[nodiscard]] inline upper with_roundoff(const node_bounds& at, std::size_t depth, std::size_t rank) {
  return at.weights.norm * (upper{1} + at.rounds.gamma(depth + 64) * root_of(rank));
}
/// Beyond it something inside a layer might overflow.
inline constexpr double largest_inside = 0x1p120;

}  // namespace inside

// Recurrent layers
// -----------------------------------------------------------------------------------------------------

template <class Cell, std::size_t Hidden, std::size_t Biases, bool Reversed, bool Last, bool Given,
          detail::mistake Wrong>
[[nodiscard]] effect rule_of(
    std::type_identity<detail::recurrent_core<Cell, Hidden, Biases, Reversed, Last, Given, Wrong>> /*layer*/,
    const node_bounds& at) {
  constexpr bool is_relu = std::is_same_v<Cell, detail::rnn_cell<true>>;
  constexpr bool is_gru = std::is_same_v<Cell, detail::gru_cell>;
  constexpr bool is_lstm = std::is_same_v<Cell, detail::lstm_cell>;
  const std::size_t steps = at.in.e0;
  const upper grows = at.rounds.growth(16 * steps + 64);
  const upper w =
      inside::with_roundoff(at, at.in.e1 + (Cell::gates + 1) * Hidden, Cell::gates * Hidden) * at.rounds.growth(8);
  const upper bias = root_of(Biases) * at.weights.bias;
  const upper given = Given ? at.x2.l2 : upper{};
  const upper start = Given ? at.x2.largest : upper{};
  // Of a sequence that a pool has left nothing of, the last state is the given one.
  constexpr bool hands_on = Last && Given;
  const upper largest = (is_gru || hands_on ? std::max(upper{1}, start) : upper{1}) * grows;
  const upper one = at.rounds.growth(64);
  const upper of_gru = length_of(length_of((w * root_of(Hidden) * largest + bias) / 4, (largest + upper{1}) / 4), 1);
  const upper of_lstm = length_of(length_of(1, (start + upper{steps}) * grows / 4), 0.25);

  upper h = 1;  // dL/dh, dL/dc, k steps earlier
  upper c = is_lstm ? 1 : 0;
  upper sum, squares, squares_of_state;
  upper powers, power = 1;  // of w
  for (std::size_t k = 0; k < steps; ++k) {
    const upper gates = (is_gru ? of_gru * h : is_lstm ? of_lstm * c + h / 4 : h) * one;
    sum += gates;
    squares += gates * gates;
    h = (w * gates + (is_gru ? h : upper{})) * one;
    squares_of_state += h * h + c * c;
    if (is_lstm) c = (c + h) * one;
    powers += power;
    power *= w;
  }
  const upper before = w * at.x.l2 + root_of(steps) * (w * root_of(Hidden) * std::max(largest, start) + bias);
  if (!(before < inside::largest_inside)) return {};
  upper states = root_of(steps * Hidden) * largest;
  if (is_relu) states = (powers * (w * at.x.l2 + root_of(steps) * bias) + powers * w * given) * grows;
  if (hands_on) states = std::max(states, given * grows);

  effect result;
  result.y = is_relu ? at.y(states, states) : at.y(states, largest);
  result.inside = Last ? sqrt(squares) : sum;
  result.dx = w * result.inside;
  result.dx2 = hands_on ? std::max(upper{1}, sqrt(squares_of_state)) : sqrt(squares_of_state);
  result.block =
      result.inside * length_of(length_of(at.x.l2, length_of(states, given)), root_of(steps * Biases)) * grows;
  return result;
}
template <class Cell, std::size_t Hidden, std::size_t Biases, bool Reversed, bool Last, bool Given,
          detail::mistake Wrong>
[[nodiscard]] std::size_t weight_count_of(
    std::type_identity<detail::recurrent_core<Cell, Hidden, Biases, Reversed, Last, Given, Wrong>> /*layer*/, shape in,
    std::size_t /*parameters*/) {
  return Cell::gates * Hidden * (in.e1 + Hidden);
}
template <class Cell, std::size_t Hidden, std::size_t Biases, bool Reversed, bool Last, bool Given,
          detail::mistake Wrong, class Scalar>
[[nodiscard]] weight_bound measure_of(
    std::type_identity<detail::recurrent_core<Cell, Hidden, Biases, Reversed, Last, Given, Wrong>> layer, shape in,
    std::span<const Scalar> weights) {
  constexpr std::size_t gates = Cell::gates * Hidden;
  return {.norm = inside::largest_norm(weights, {{0, gates, in.e1}, {gates * in.e1, gates, Hidden}}),
          .frobenius = upper{},
          .bias = l2_norm_of(weights.subspan(weight_count_of(layer, in, weights.size())))};
}
/// A part of the states that were given.
template <std::size_t Hidden, std::size_t Kinds, std::size_t Index, std::size_t Total>
[[nodiscard]] effect rule_of(std::type_identity<detail::state_part<Hidden, Kinds, Index, Total>> /*layer*/,
                             const node_bounds& at) {
  return moves_values(at);
}

// Attention
// ------------------------------------------------------------------------------------------------------------

namespace inside {

/// How attention grows: of values m sqrt(queries), which of their gradients is the same; of scores m / (2 sqrt(d)).
struct attention_gains {
  upper values;
  upper scores;
  upper kept;  ///< m
};
/// `group` heads of queries share each head of keys and values.
[[nodiscard]] inline attention_gains of_attention(const node_bounds& at, std::size_t queries, std::size_t keys,
                                                  std::size_t width, std::size_t group, double kept) {
  const upper grows = at.rounds.growth(8 * (queries + keys + width) + 128);
  return {root_of(queries * group) * kept * grows, sqrt(upper{1} / (4 * static_cast<double>(width))) * kept * grows,
          grows * kept};
}
/// ‖W x + b‖ of all positions.
[[nodiscard]] inline upper projected(const node_bounds& at, upper w, upper x, std::size_t positions) {
  return (w * x + root_of(positions) * at.weights.bias) * at.rounds.growth(4);
}
/// What lies where among the parameters of a layer with projections; of the memory's features they tell.
template <class Layer, std::size_t Heads, bool Own>
[[nodiscard]] detail::attention_layout layout_of(std::size_t features, std::size_t parameters) {
  constexpr detail::attention_options options = Layer::options;
  const auto at = [&](std::size_t of_memory) {
    return detail::lay_out_attention(shape{1, features}, shape{1, of_memory}, Heads, Own, options);
  };
  const std::size_t rest = Own ? features : (parameters - at(1).parameter_count) / (2 * features) + 1;
  return at(rest);
}
template <class Layer, std::size_t Heads, bool Own, class Scalar>
[[nodiscard]] weight_bound measure_attention(std::size_t features, std::span<const Scalar> weights) {
  const auto at = layout_of<Layer, Heads, Own>(features, weights.size());
  const auto place = [](std::ptrdiff_t offset) { return static_cast<std::size_t>(offset); };
  const auto memory = place(at.memory_features);
  const matrix_place out{place(at.out_weight), features, features};
  weight_bound result = weight_bound::of_none();
  if constexpr (Own) {
    result.norm = largest_norm(weights, {{0, 3 * features, features}, out});
  } else {
    result.norm = largest_norm(weights, {{0, features, features}, {features * features, 2 * features, memory}, out});
  }
  result.bias = length_of(l2_norm_of(weights.subspan(place(at.bias), place(at.out_weight - at.bias))),
                          l2_norm_of(weights.subspan(place(at.out_bias))));
  return result;
}

}  // namespace inside

template <std::size_t Heads, class... Options>
[[nodiscard]] effect rule_of(std::type_identity<scaled_dot_product_attention<Heads, Options...>> /*layer*/,
                             const node_bounds& at) {
  constexpr detail::attention_options options = scaled_dot_product_attention<Heads, Options...>::options;
  const std::size_t group = options.memory_heads == 0 ? 1 : Heads / options.memory_heads;
  const auto gains = inside::of_attention(at, at.in.e0, at.in.e0, at.out.e1 / Heads, group, options.kept);
  const upper all = at.x.l2 * at.rounds.growth(8);  // turned by rotary positions, which rounds
  effect result;
  if (!(all * all < inside::largest_inside)) return result;
  result.y = at.y(gains.values * all, gains.kept * at.x.largest);
  result.dx = length_of(gains.scores * all * all / 2, gains.values) * at.rounds.growth(8);
  result.inside = result.dx + gains.kept * all;
  return result;
}

template <std::size_t Heads, class... Options>
[[nodiscard]] effect rule_of(std::type_identity<multihead_attention<Heads, Options...>> /*layer*/,
                             const node_bounds& at) {
  constexpr detail::attention_options options = multihead_attention<Heads, Options...>::options;
  const std::size_t features = at.in.e1;
  const std::size_t positions = at.in.e0 + 1;  // a learned key is one more
  const auto gains = inside::of_attention(at, at.in.e0, positions, features / Heads, 1, options.kept);
  const upper w = inside::with_roundoff(at, 3 * features, features);
  const upper all = inside::projected(at, w, at.x.l2, positions);
  effect result;
  if (!(all * all < inside::largest_inside)) return result;
  const upper context = gains.values * all;
  const upper l2 = inside::projected(at, w, context, at.in.e0);
  result.y = at.y(l2, l2);
  const upper backwards = w * length_of(gains.scores * all * all / 2, gains.values);
  result.inside = backwards + w * gains.kept * all;
  result.dx = w * backwards;
  const upper ones = root_of(positions);  // biases
  result.block =
      length_of(backwards * length_of(at.x.l2, ones), length_of(context, ones)) * at.rounds.growth(positions + 64);
  return result;
}
template <std::size_t Heads, class... Options, class Scalar>
[[nodiscard]] weight_bound measure_of(std::type_identity<multihead_attention<Heads, Options...>> /*layer*/, shape in,
                                      std::span<const Scalar> weights) {
  return inside::measure_attention<multihead_attention<Heads, Options...>, Heads, true>(in.e1, weights);
}

template <std::size_t Heads, class... Options>
[[nodiscard]] effect rule_of(std::type_identity<detail::attention_to_memory<Heads, Options...>> /*layer*/,
                             const node_bounds& at) {
  constexpr detail::attention_options options = detail::attention_to_memory<Heads, Options...>::options;
  const std::size_t features = at.in.e1;
  const std::size_t keys = at.in2.e0 + 1;
  const auto gains = inside::of_attention(at, at.in.e0, keys, features / Heads, 1, options.kept);
  const upper w = inside::with_roundoff(at, 3 * features + at.in2.e1, 2 * features);
  const upper q = inside::projected(at, w, at.x.l2, at.in.e0);
  const upper kv = inside::projected(at, w, at.x2.l2, keys);
  effect result;
  if (!((q + kv) * (q + kv) < inside::largest_inside)) return result;
  const upper context = gains.values * kv;
  const upper l2 = inside::projected(at, w, context, at.in.e0);
  result.y = at.y(l2, l2);
  const upper of_q = w * gains.scores * kv * kv / 2;
  const upper of_kv = w * length_of(gains.scores * kv * q, gains.values);
  result.inside = of_q + of_kv + w * gains.kept * kv;
  result.dx = w * of_q;
  result.dx2 = w * of_kv;
  const upper of_memory = of_kv * length_of(at.x2.l2, root_of(keys));
  const upper of_output = length_of(context, root_of(at.in.e0));
  result.block = length_of(length_of(of_q * length_of(at.x.l2, root_of(at.in.e0)), of_memory), of_output) *
                 at.rounds.growth(at.in.e0 + keys + 64);
  return result;
}
template <std::size_t Heads, class... Options, class Scalar>
[[nodiscard]] weight_bound measure_of(std::type_identity<detail::attention_to_memory<Heads, Options...>> /*layer*/,
                                      shape in, std::span<const Scalar> weights) {
  return inside::measure_attention<detail::attention_to_memory<Heads, Options...>, Heads, false>(in.e1, weights);
}

/// The end of an encoder's block: x2 + dropout(W x + b).
template <probability Probability>
[[nodiscard]] effect rule_of(std::type_identity<detail::feed_forward_end<Probability>> /*layer*/,
                             const node_bounds& at) {
  const upper kept = Probability.numerator == 0 ? upper{1} : upper{dropout<Probability>::share};
  const upper w = inside::with_roundoff(at, at.in.e1 + at.in2.e1, std::min(at.in.e1, at.in2.e1));
  const upper l2 = (kept * inside::projected(at, w, at.x.l2, at.in.e0) + at.x2.l2) * at.rounds.growth(4);
  const upper grows = at.rounds.growth(at.in.e0 + 64);
  return {.y = at.y(l2, l2),
          .dx = w * kept * at.rounds.growth(4),
          .block = kept * length_of(at.x.l2, root_of(at.in.e0)) * grows};
}
template <probability Probability>
[[nodiscard]] std::size_t weight_count_of(std::type_identity<detail::feed_forward_end<Probability>> /*layer*/, shape in,
                                          std::size_t parameters) {
  return parameters / (in.e1 + 1) * in.e1;
}
template <probability Probability, class Scalar>
[[nodiscard]] weight_bound measure_of(std::type_identity<detail::feed_forward_end<Probability>> layer, shape in,
                                      std::span<const Scalar> weights) {
  const std::size_t count = weight_count_of(layer, in, weights.size());
  return {.norm = inside::largest_norm(weights, {{0, count / in.e1, in.e1}}),
          .frobenius = upper{},
          .bias = l2_norm_of(weights.subspan(count))};
}

}  // namespace pergrad::inline v0_1::certified
