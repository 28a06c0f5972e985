// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/transformer_encoder_layer.hpp - one block of a transformer's encoder, composed of other layers
//
// Norm behind (Vaswani et al. 2017, arXiv:1706.03762):
//     h = norm1(x + attention(x)),    y = norm2(h + W2 f(W1 h + b1) + b2)
// Norm first:
//     h = x + attention(norm1(x)),    y = h + W2 f(W1 norm2(h) + b1) + b2
// both with dropout on the attention's probabilities, on its output, behind f and on what W2 gives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/layers/activations.hpp>
#include <pergrad/layers/dropout.hpp>
#include <pergrad/layers/layer_norm.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/layers/multihead_attention.hpp>
#include <pergrad/layers/shared/attention.hpp>
#include <pergrad/layers/shared/probability.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

/// Option of `transformer_encoder_layer`: layer norms in front of attention and feed-forward instead of behind them.
/// PyTorch: `norm_first=True`.
struct pre_norm {};
/// Option of `transformer_encoder_layer`: GELU instead of ReLU. PyTorch: `activation="gelu"`.
struct gelu_activation {};
/// Option of `transformer_encoder_layer`: `dropout_rate<0.1>`. Without it nothing is dropped. PyTorch:
/// `dropout=0.1`, which is PyTorch's default.
template <probability Probability>
struct dropout_rate {};

namespace detail {

/// The end of a block's feed-forward part: y = x2 + dropout(W x + b), back to as many features as the block has, which
/// only its second input knows. Parameters: weight `[features, hidden]`, bias.
template <probability Probability>
struct feed_forward_end : keeps_every_length {
  static constexpr const char* name = "residual_linear";
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  static constexpr bool drops = Probability.numerator != 0;

  [[nodiscard]] static constexpr shape output_shape(shape /*in*/, shape second) noexcept {
    return {second.e0, second.e1};
  }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in, shape second) noexcept {
    return second.e1 * (in.e1 + 1);
  }
  [[nodiscard]] static constexpr block_list<2> blocks(shape in, shape second) noexcept {
    return {{{"weight", {second.e1, in.e1}}, {"bias", {second.e1}}}};
  }
  [[nodiscard]] static constexpr auto settings() noexcept {
    return std::array{Probability.numerator, Probability.denominator};
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape /*in*/, shape second) noexcept {
    return drops ? second.size() : 0;
  }
  [[nodiscard]] static constexpr mistake check(shape in, shape second) noexcept {
    return in.rank() == 2 && second.rank() == 2 && in.e0 == second.e0 ? mistake::none : mistake::branches_do_not_fit;
  }
  [[nodiscard]] static constexpr std::array<matrix, 1> matrices(shape in, shape second) noexcept {
    return {matrix{0, second.e1, in.e1}};
  }
  [[nodiscard]] static constexpr auto factors(shape in, shape second) noexcept {
    const operand delta{drops ? source::saved : source::backprop, 0, second.e1};
    return list_factors(outer_sum(in.e0, second.e1, delta, in.e1, {source::activation, 0, in.e1}),
                        elementwise_sum(in.e0, second.e1, delta));
  }
  [[nodiscard]] static constexpr std::array<position_projection, 1> projections(shape in, shape second) noexcept {
    return {position_projection{.positions = in.e0,
                                .weights = {0, second.e1, in.e1},
                                .x = {source::activation, 0, in.e1},
                                .y = {source::output, 0, second.e1},
                                .delta = {drops ? source::saved : source::backprop, 0, second.e1},
                                .bias = second.e1 * in.e1}};
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, shape second, const Initialiser& initialiser, std::uint64_t first,
                         std::span<Scalar> parameters) {
    const fans fan{static_cast<double>(in.e1), static_cast<double>(second.e1)};
    initialise_block(initialiser, fan, in.e1 * second.e1, first, parameters);
  }

  /// Behind the projection elements know nothing of each other.
  [[nodiscard]] static constexpr std::size_t part_count(shape /*in*/, shape second) noexcept {
    return dropout<Probability>::parts_of_mask(second.size());
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const auto hidden = static_cast<std::ptrdiff_t>(team.in.e1);
    const auto features = static_cast<std::ptrdiff_t>(team.in2.e1);
    if (!team.projected)
      multiply_positions(team, lengths_of{team}, static_cast<std::ptrdiff_t>(team.in.e0),
                         {team.x.first, team.x.step, hidden}, team.transposed(0, 0, features, hidden),
                         team.parameters + features * hidden, {team.y.first, team.y.step, features});
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const part_range own = dropout<Probability>::part_of_mask(team, team.length(b) * features);
      auto* y = team.y(b) + own.first;
      const auto* x2 = team.x2(b) + own.first;
      if constexpr (drops) {
        auto* mask = team.saved(b) + own.first;
        dropout<Probability>::draw_mask(team, b, own, mask);
        team.map(own.count, [&](const auto& at) { at.put(y, at(y) * at(mask) + at(x2)); });
      } else {
        team.map(own.count, [&](const auto& at) { at.put(y, at(y) + at(x2)); });
      }
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto positions = static_cast<std::ptrdiff_t>(team.in.e0);
    const auto hidden = static_cast<std::ptrdiff_t>(team.in.e1);
    const auto features = static_cast<std::ptrdiff_t>(team.in2.e1);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const auto* dy = team.dy(b);
      const part_range own = range_of_part(team, positions * features);
      dy += own.first;
      if (team.wants_dx2) team.copy(own.count, dy, team.dx2(b) + own.first);
      if constexpr (drops) {
        const std::ptrdiff_t behind = team.length(b) * features - own.first;
        const std::ptrdiff_t count = behind < 0 ? 0 : behind < own.count ? behind : own.count;
        auto* delta = team.saved(b) + own.first;
        team.map(count, [&](const auto& at) { at.put(delta, at(delta) * at(dy)); });
        team.fill(own.count - count, delta + count, scalar{0});
      }
    }
    if (!team.wants_dx || team.projected) return;
    const position_rows<const scalar> delta{drops ? team.saved.first : team.dy.first,
                                            drops ? team.saved.step : team.dy.step, features};
    multiply_positions(team, lengths_of{team}, positions, delta, team.matrix(0, features, hidden), nullptr,
                       {team.dx.first, team.dx.step, hidden});
    clear_beyond(team, team.dx, lengths_of{team}, positions, hidden);
  }
};

/// What the options of a `transformer_encoder_layer` say, in any order.
template <class... Options>
struct transformer_options {
  static constexpr probability rate = 0;
  static constexpr bool rate_given = false;
  static constexpr bool norm_first = false;
  static constexpr bool with_gelu = false;
};
template <class... Rest>
struct transformer_options<pre_norm, Rest...> : transformer_options<Rest...> {
  static constexpr bool norm_first = true;
};
template <class... Rest>
struct transformer_options<gelu_activation, Rest...> : transformer_options<Rest...> {
  static constexpr bool with_gelu = true;
};
template <probability Probability, class... Rest>
struct transformer_options<dropout_rate<Probability>, Rest...> : transformer_options<Rest...> {
  static constexpr probability rate = Probability;
  static constexpr bool rate_given = true;
};
template <probability Probability, class... Rest>
requires(transformer_options<Rest...>::rate_given &&
         !std::is_same_v<dropout_rate<transformer_options<Rest...>::rate>,
                         dropout_rate<Probability>>) struct transformer_options<dropout_rate<Probability>, Rest...>
    : transformer_options<Rest...> {
  using wrong = no_such_option<dropout_rate<Probability>>;
};
template <class Unknown, class... Rest>
struct transformer_options<Unknown, Rest...> : transformer_options<Rest...> {
  using wrong = no_such_option<Unknown>;
};

template <std::size_t Heads, std::size_t FeedForward, class Options>
struct transformer_block {
  static constexpr probability rate = Options::rate;
  static constexpr bool drops = rate.numerator != 0;
  using drop = std::conditional_t<drops, sequential<dropout<rate>>, sequential<>>;
  using attention =
      std::conditional_t<drops, multihead_attention<Heads, attention_dropout<rate>>, multihead_attention<Heads>>;
  using activation = std::conditional_t<Options::with_gelu, gelu, relu>;
  // The norms' parameters come last. Nodes behind norm1, norm behind: hidden, activation, dropout, end; norm first:
  // attention, dropout, sum, norm2, hidden, activation, dropout, end.
  static constexpr std::size_t dropped = drops ? 1 : 0;
  [[nodiscard]] static const char* part_name(std::size_t number) noexcept {
    constexpr const char* parts[2][5]{{"self_attn.*", "norm1.*", "linear1.*", "linear2.*", "norm2.*"},
                                      {"norm1.*", "self_attn.*", "norm2.*", "linear1.*", "linear2.*"}};
    return parts[Options::norm_first ? 1 : 0][number];
  }
  using after =
      sequential<residual<attention, drop>, parameters_later<3 + dropped, layer_norm<>>,
                 merge<feed_forward_end<rate>, sequential<linear<FeedForward>, activation, drop>, sequential<>>,
                 layer_norm<>>;
  using before =
      sequential<residual<parameters_later<6 + 2 * dropped, layer_norm<>>, attention, drop>,
                 merge<feed_forward_end<rate>,
                       sequential<parameters_later<3 + dropped, layer_norm<>>, linear<FeedForward>, activation, drop>,
                       sequential<>>>;
  using type = std::conditional_t<Options::norm_first, before, after>;
};
template <std::size_t Heads, std::size_t FeedForward, class Options>
requires requires { typename Options::wrong; }
struct transformer_block<Heads, FeedForward, Options> {
  using type = sequential<typename Options::wrong>;
};

}  // namespace detail

/// `transformer_encoder_layer<Heads, FeedForward, Options...>` on `{positions, features}`, of any length each; keeps
/// the shape. Heads must divide the features; `FeedForward` is the width between the two linear layers. Options in any
/// order: `pre_norm`, `gelu_activation`, `dropout_rate<0.1>`. PyTorch: `nn.TransformerEncoderLayer(
/// features, Heads, FeedForward, dropout, batch_first=True)`; parameters in its order: those of the attention, linear1,
/// linear2, norm1, norm2.
template <std::size_t Heads, std::size_t FeedForward, class... Options>
struct transformer_encoder_layer {
  using block = detail::transformer_block<Heads, FeedForward, detail::transformer_options<Options...>>;
  using unfolds_to = typename block::type;
  [[nodiscard]] static const char* part_name(std::size_t number) noexcept { return block::part_name(number); }
};

}  // namespace pergrad::inline v0_1
