// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/attention_layout.hpp - options of attention layers, where their values and parameters lie,
// first values
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/layers/shared/probability.hpp>
#include <pergrad/layers/shared/rotations.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/rounded.hpp>

namespace pergrad::inline v0_1 {

/// Option of attention layers: position t sees the positions up to t only. PyTorch: `attn_mask` of the upper triangle.
struct causal {};
/// Option of attention layers: one more key and value, learned, that every query sees. PyTorch: `add_bias_kv=True`;
/// parameters bias_k and bias_v.
struct kv_bias {};
/// Option of attention layers: `attention_dropout<0.1>` drops probabilities, in training only. PyTorch: `dropout=0.1`.
template <probability Probability>
struct attention_dropout {};
/// Option of `scaled_dot_product_attention`: so many heads of keys and values, each for as many heads of queries
/// (Ainslie et al. 2023, arXiv:2305.13245). PyTorch: `enable_gqa=True`.
template <std::size_t Count>
struct key_value_heads {};
/// Option of `scaled_dot_product_attention`: rotary positions (Su et al. 2021, arXiv:2104.09864). Of position t, the
/// pair of features (j, j + width / 2) of every head's queries and keys is turned by the angle t Base^(-2 j / width).
/// LLaMA's; in transformers `rope_theta=Base`, without scaling.
template <std::size_t Base = 10'000>
struct rotary {};

namespace detail {

/// Options of an attention layer.
struct attention_options {
  bool bias = true;
  bool causal = false;
  bool kv_bias = false;
  bool unknown_given = false;    ///< something that is no option, or no probability
  std::uint32_t threshold = 0;   ///< 2^32 p: a probability is kept if its 32 random bits are not below
  double kept = 1;               ///< 1 / (1 - p)
  std::size_t memory_heads = 0;  ///< of keys and values; 0: as many as of queries
  double log_of_base = 0;        ///< of rotary positions; 0: none

  friend constexpr bool operator==(const attention_options&, const attention_options&) noexcept = default;
};

constexpr void apply(attention_options& options, no_bias) noexcept { options.bias = false; }
constexpr void apply(attention_options& options, pergrad::causal) noexcept { options.causal = true; }
constexpr void apply(attention_options& options, pergrad::kv_bias) noexcept { options.kv_bias = true; }
template <probability Probability>
constexpr void apply(attention_options& options, attention_dropout<Probability>) noexcept {
  if (!Probability.holds()) {
    options.unknown_given = true;
    return;
  }
  options.threshold = Probability.threshold();
  options.kept = Probability.scale();
}
template <std::size_t Count>
constexpr void apply(attention_options& options, key_value_heads<Count>) noexcept {
  options.memory_heads = Count;
  options.unknown_given |= Count == 0;
}
template <std::size_t Base>
constexpr void apply(attention_options& options, rotary<Base>) noexcept {
  options.unknown_given |= Base < 2;
  options.log_of_base = natural_logarithm(static_cast<double>(Base));
}

/// Where everything of an attention layer lies: elements from the beginning of a sample's saved values, of its scratch,
/// and of the parameters. The queries' projections share rows with the keys' and values' in self-attention.
struct attention_layout {
  std::ptrdiff_t queries = 0;    ///< positions that ask
  std::ptrdiff_t positions = 0;  ///< positions that are asked
  std::ptrdiff_t extra = 0;      ///< keys in front of them: 1 with kv_bias
  std::ptrdiff_t features = 0;
  std::ptrdiff_t memory_features = 0;
  std::ptrdiff_t heads = 0;
  std::ptrdiff_t width = 0;         ///< of a head
  std::ptrdiff_t group = 1;         ///< heads of queries that share one of keys and values
  std::ptrdiff_t memory_width = 0;  ///< of all heads of keys, or of values
  double log_of_base = 0;           ///< of rotary positions; 0: none
  bool causal = false;
  std::uint32_t threshold = 0;
  double kept = 1;

  std::ptrdiff_t query = 0;  ///< saved: projections, which the backward pass replaces by their gradients
  std::ptrdiff_t query_step = 0;
  std::ptrdiff_t key = 0;
  std::ptrdiff_t value = 0;
  std::ptrdiff_t memory_step = 0;
  std::ptrdiff_t context = 0;     ///< saved: the heads' results side by side, [queries][features]
  std::ptrdiff_t score_step = 0;  ///< from the keys of a query to those of the next one, in a tile
  std::size_t saved_count = 0;

  std::ptrdiff_t turned_keys = 0;       ///< scratch: a head's keys, [width][score_step]; before it dY
  std::ptrdiff_t turned_values = 0;     ///< scratch: as `turned_keys`
  std::ptrdiff_t probabilities = 0;     ///< scratch: a tile, [together()][score_step]
  std::ptrdiff_t score_gradients = 0;   ///< scratch: a tile
  std::ptrdiff_t dropped = 0;           ///< scratch: a tile, if anything is dropped
  std::ptrdiff_t memory_gradients = 0;  ///< scratch: of keys and values, [positions and the learned key][2 width]
  std::ptrdiff_t rotations = 0;         ///< scratch: cosines [positions][width / 2], then sines, of rotary positions
  std::size_t scratch_count = 0;

  std::ptrdiff_t bias = 0;  ///< parameters; the weights of the projections come first
  std::ptrdiff_t learned_key = 0;
  std::ptrdiff_t out_weight = 0;
  std::ptrdiff_t out_bias = 0;
  std::size_t parameter_count = 0;

  /// Heads of keys and values; with its heads of queries, each is a part of the layer.
  [[nodiscard]] PERGRAD_HD constexpr std::ptrdiff_t part_count() const noexcept { return heads / group; }
  /// Scratch that each part has for itself: all but dY.
  [[nodiscard]] PERGRAD_HD constexpr std::ptrdiff_t part_scratch_count() const noexcept {
    return static_cast<std::ptrdiff_t>(scratch_count) - turned_keys;
  }
  /// Keys that query i sees, of `keys` that are there.
  [[nodiscard]] PERGRAD_HD constexpr std::ptrdiff_t seen(std::ptrdiff_t i, std::ptrdiff_t keys) const noexcept {
    return causal && i + 1 + extra < keys ? i + 1 + extra : keys;
  }
  /// Queries of a tile: few where later ones see more.
  [[nodiscard]] PERGRAD_HD constexpr std::ptrdiff_t together() const noexcept {
    const std::ptrdiff_t most = causal ? 32 : 64;
    return queries < most ? queries : most;
  }
  /// As many of them from `first` on, of `count`.
  [[nodiscard]] PERGRAD_HD constexpr std::ptrdiff_t at_once(std::ptrdiff_t first, std::ptrdiff_t count) const noexcept {
    return count - first < together() ? count - first : together();
  }
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Scalar scale() const noexcept {
    return static_cast<Scalar>(1 / rounded::square_root(static_cast<double>(width)));
  }
};

/// `own`: attention of a sequence to itself; `memory` is then the same shape as `in`.
[[nodiscard]] PERGRAD_HD constexpr attention_layout lay_out_attention(shape in, shape memory, std::size_t heads,
                                                                      bool own,
                                                                      const attention_options& options) noexcept {
  constexpr auto whole_lines = [](std::ptrdiff_t count) { return (count + 15) / 16 * 16; };
  attention_layout at;
  at.queries = static_cast<std::ptrdiff_t>(in.e0);
  at.positions = static_cast<std::ptrdiff_t>(memory.e0);
  at.extra = options.kv_bias ? 1 : 0;
  at.features = static_cast<std::ptrdiff_t>(in.e1);
  at.memory_features = static_cast<std::ptrdiff_t>(memory.e1);
  at.heads = static_cast<std::ptrdiff_t>(heads);
  at.width = at.features / at.heads;
  at.group = options.memory_heads == 0 ? 1 : at.heads / static_cast<std::ptrdiff_t>(options.memory_heads);
  at.memory_width = at.features / at.group;
  at.log_of_base = options.log_of_base;
  at.causal = options.causal;
  at.threshold = options.threshold;
  at.kept = options.kept;
  const std::ptrdiff_t keys = at.positions + at.extra;
  at.score_step = whole_lines(keys);
  if (at.score_step % 32 == 0) at.score_step += 16;  // columns of scores spread over all sets of a cache

  at.query_step = at.features + (own ? 2 * at.memory_width : 0);
  at.query = own ? at.extra * at.query_step : 0;
  at.key = own ? at.features : whole_lines(at.queries * at.features);
  at.value = at.key + at.memory_width;
  at.memory_step = (own ? at.features : 0) + 2 * at.memory_width;
  at.context = whole_lines((own ? 0 : at.key) + keys * at.memory_step);
  at.saved_count = static_cast<std::size_t>(at.context + whole_lines(at.queries * at.features));

  const std::ptrdiff_t tile = at.together() * at.score_step;
  at.turned_keys = whole_lines(at.queries * at.features);
  at.turned_values = at.turned_keys + at.width * at.score_step;
  at.probabilities = at.turned_values + at.width * at.score_step;
  at.score_gradients = at.probabilities + tile;
  at.dropped = at.score_gradients + tile;
  at.memory_gradients = at.dropped + (at.threshold != 0 ? tile : 0);
  at.rotations = at.memory_gradients + whole_lines(2 * keys * at.width);
  at.scratch_count = static_cast<std::size_t>(at.rotations + (at.log_of_base > 0 ? at.positions * at.width : 0));

  at.bias = at.features * at.features + 2 * at.features * at.memory_features;
  at.learned_key = at.bias + (options.bias ? 3 * at.features : 0);
  at.out_weight = at.learned_key + 2 * at.extra * at.features;
  at.out_bias = at.out_weight + at.features * at.features;
  at.parameter_count = static_cast<std::size_t>(at.out_bias + (options.bias ? at.features : 0));
  return at;
}

/// What attention layers have in common, those that have one input with that in both places.
template <std::size_t Heads, class... Options>
struct attention_layer : keeps_every_length {
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  static constexpr attention_options options = gather<attention_options, Options...>();

  [[nodiscard]] static constexpr auto settings() noexcept {
    return std::array<std::size_t, 3>{Heads, options.causal ? 1U : 0U, options.threshold};
  }
  [[nodiscard]] static constexpr mistake check_inputs(shape in, shape memory) noexcept {
    if (options.memory_heads != 0 || options.log_of_base > 0) return mistake::option_not_offered;
    const mistake wrong = check_sequences(in, memory);
    if (wrong != mistake::none) return wrong;
    return in.e1 % Heads != 0 ? mistake::heads_do_not_divide : mistake::none;
  }
  [[nodiscard]] static constexpr mistake check_sequences(shape in, shape memory) noexcept {
    if (options.unknown_given) return mistake::option_not_offered;
    if (memory.ids != 0) return mistake::ids_into_a_float_layer;
    if (in.rank() != 2 || in.varying_axis() == 2) return mistake::needs_a_sequence;  // {channels, positions}
    if (memory.rank() != 2 || memory.varying_axis() == 2) return mistake::branches_do_not_fit;
    return Heads == 0 ? mistake::zero_is_no_size : mistake::none;
  }
  [[nodiscard]] static constexpr block_list<9> blocks_of(shape in, shape memory) noexcept {
    const std::size_t biases = options.bias ? in.e1 : 0;
    const std::size_t learned = options.kv_bias ? 1 : 0;
    const std::size_t packed = in.e1 == memory.e1 ? in.e1 : 0;
    const std::size_t apart = in.e1 - packed;
    return {{{"in_proj_weight", {3 * packed, in.e1}},
             {"q_proj_weight", {apart, in.e1}},
             {"k_proj_weight", {apart, memory.e1}},
             {"v_proj_weight", {apart, memory.e1}},
             {"in_proj_bias", {3 * biases}},
             {"bias_k", {learned, 1, in.e1}},
             {"bias_v", {learned, 1, in.e1}},
             {"out_proj.weight", {in.e1, in.e1}},
             {"out_proj.bias", {biases}}}};
  }
};

/// PyTorch's first values for `layer_default` (`nn.MultiheadAttention._reset_parameters`): Xavier's for projections and
/// learned keys, zero biases, ±1/sqrt(features) for the output's weight. Another initialiser decides everything itself.
template <class Initialiser, class Scalar>
void initialise_attention(const attention_layout& at, bool has_bias, const Initialiser& initialiser,
                          std::uint64_t first, std::span<Scalar> parameters) {
  const auto fan_in = static_cast<double>(at.features);
  const auto memory_in = static_cast<double>(at.memory_features);
  const bool packed = at.features == at.memory_features;
  const auto fill = [&](std::ptrdiff_t from, std::ptrdiff_t to, auto&& value) {
    for (std::ptrdiff_t i = from; i < to; ++i) {
      parameters[static_cast<std::size_t>(i)] = static_cast<Scalar>(value(first + static_cast<std::uint64_t>(i)));
    }
  };
  const auto biases = [&](std::ptrdiff_t from, std::ptrdiff_t to) {
    fill(from, to, [&](std::uint64_t i) {
      return std::is_same_v<Initialiser, layer_default> ? 0.0 : initialiser.bias(i, {fan_in, fan_in});
    });
  };
  const auto projection = [&](std::ptrdiff_t from, std::ptrdiff_t to, fans fan) {
    fill(from, to, [&](std::uint64_t i) {
      if constexpr (std::is_same_v<Initialiser, layer_default>) {
        return xavier_uniform{initialiser.seed}.weight(i, fan);
      } else {
        return initialiser.weight(i, fan);
      }
    });
  };
  const std::ptrdiff_t square = at.features * at.features;
  projection(0, square, {fan_in, packed ? 3 * fan_in : fan_in});
  projection(square, at.bias, {memory_in, packed ? 3 * fan_in : fan_in});
  if (has_bias) biases(at.bias, at.learned_key);
  fill(at.learned_key, at.out_weight, [&](std::uint64_t i) {
    if constexpr (std::is_same_v<Initialiser, layer_default>) {
      return xavier_normal{initialiser.seed}.weight(i, {fan_in, fan_in});
    } else {
      return initialiser.weight(i, {fan_in, fan_in});
    }
  });
  fill(at.out_weight, at.out_bias, [&](std::uint64_t i) { return initialiser.weight(i, {fan_in, fan_in}); });
  if (has_bias) biases(at.out_bias, static_cast<std::ptrdiff_t>(at.parameter_count));
}

}  // namespace detail
}  // namespace pergrad::inline v0_1
