// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/multihead_attention.hpp - self-attention of several heads: every position asks every position
//
//     [Q | K | V] = X W_in^T + b_in
//     C = the heads' softmax(Q K^T / sqrt(d)) V, side by side
//     Y = C W_out^T + b_out
// (Vaswani et al. 2017, arXiv:1706.03762; the heads: layers/shared/attention.hpp). Only the two projections have
// parameters, so with D = [dQ | dK | dV] the per-sample gradients are the outer-product sums
//     G_in = sum_t D_t (x) X_t,    G_out = sum_t dY_t (x) C_t
// and one Gram matrix of X serves the norm of all three projections. How the features are cut into heads is no matter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/layers/shared/attention.hpp>
#include <pergrad/layers/shared/attention_cache.hpp>
#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `multihead_attention<Heads, Options...>` on `{positions, features}`, of any length each; keeps the shape. Heads must
/// divide the features. Options in any order: `causal`, `no_bias`, `kv_bias`, `attention_dropout<0.1>`.
/// PyTorch: `nn.MultiheadAttention(features, Heads, batch_first=True)` with x as query, key and value; parameters:
/// in_proj_weight `[3 features, features]`, in_proj_bias, bias_k and bias_v with `kv_bias`, out_proj.weight
/// `[features, features]`, out_proj.bias. Positions beyond a sample's length are not seen by any other.
template <std::size_t Heads, class... Options>
struct multihead_attention : detail::attention_layer<Heads, Options...> {
  static constexpr const char* name = "multihead_attention";
  static constexpr bool forgets_values = true;
  using detail::attention_layer<Heads, Options...>::options;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return lay_out(in).parameter_count; }
  [[nodiscard]] static constexpr auto blocks(shape in) noexcept { return multihead_attention::blocks_of(in, in); }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return lay_out(in).saved_count; }
  /// For kernels of a device that know what attention is.
  [[nodiscard]] static constexpr detail::attention_layout attention_of(shape in) noexcept { return lay_out(in); }
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in) noexcept { return lay_out(in).scratch_count; }
  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept {
    return static_cast<std::size_t>(lay_out(in).part_count());
  }
  [[nodiscard]] static constexpr std::size_t part_scratch_count(shape in) noexcept {
    return static_cast<std::size_t>(lay_out(in).part_scratch_count());
  }
  [[nodiscard]] static constexpr auto check(shape in) noexcept { return multihead_attention::check_inputs(in, in); }
  [[nodiscard]] static constexpr std::array<matrix, 2> matrices(shape in) noexcept {
    return {matrix{0, 3 * in.e1, in.e1}, matrix{static_cast<std::size_t>(lay_out(in).out_weight), in.e1, in.e1}};
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    const detail::attention_layout at = lay_out(in);
    const std::size_t features = in.e1;
    const operand projected{source::saved, static_cast<std::size_t>(at.query), 3 * features};
    const operand backprop{source::backprop, 0, features};
    const operand context{source::saved, static_cast<std::size_t>(at.context), features};
    factor_list<2 + (options.bias ? 2U : 0U) + (options.kv_bias ? 1U : 0U)> list;
    std::size_t count = 0;
    list[count++] = outer_sum(in.e0, 3 * features, projected, features, {source::activation, 0, features});
    if (options.bias) list[count++] = elementwise_sum(in.e0, 3 * features, projected);
    if (options.kv_bias) {
      list[count++] = elementwise_sum(1, 2 * features, {source::saved, static_cast<std::size_t>(at.key)});
    }
    list[count++] = outer_sum(in.e0, features, backprop, features, context);
    if (options.bias) list[count++] = elementwise_sum(in.e0, features, backprop);
    return list;
  }
  [[nodiscard]] static constexpr std::array<position_projection, 2> projections(shape in) noexcept {
    const detail::attention_layout at = lay_out(in);
    const std::size_t features = in.e1;
    const auto place = [](std::ptrdiff_t offset) { return static_cast<std::size_t>(offset); };
    const operand projected{source::saved, place(at.query), 3 * features};
    const std::size_t none = position_projection{}.bias;
    return {position_projection{.positions = in.e0,
                                .weights = {0, 3 * features, features},
                                .x = {source::activation, 0, features},
                                .y = projected,
                                .delta = projected,
                                .bias = has_bias ? place(at.bias) : none},
            position_projection{.positions = in.e0,
                                .weights = {place(at.out_weight), features, features},
                                .x = {source::saved, place(at.context), features},
                                .y = {source::output, 0, features},
                                .delta = {source::backprop, 0, features},
                                .bias = has_bias ? place(at.out_bias) : none}};
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    detail::initialise_attention(lay_out(in), options.bias, initialiser, first, parameters);
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const detail::attention_layout at = lay_out(team.in);
    if (!team.projected)
      detail::project(team, inputs(at), team.x, team.transposed(0, 0, 3 * at.features, at.features),
                      has_bias ? team.parameters + at.bias : nullptr);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      detail::set_learned_key(team, at, b);
      detail::attend(team, at, b, team.length(b), team.length(b) + at.extra);
    }
    if (!team.projected)
      detail::project_context(team, at, team.transposed(1, at.out_weight, at.features, at.features), has_bias);
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    const detail::attention_layout at = lay_out(team.in);
    if (!team.projected) detail::project_context_backward(team, at);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      detail::attend_backward(team, at, b, team.length(b), team.length(b) + at.extra);
    }
    if (team.wants_dx && !team.projected)
      detail::project_backward(team, inputs(at), team.matrix(0, 3 * at.features, at.features), team.dx);
  }

  // Some positions behind others (pergrad/team.hpp).
  [[nodiscard]] static constexpr std::size_t kept_count(shape in) noexcept { return cache(in).kept_count; }
  [[nodiscard]] static constexpr std::size_t scratch_count_behind(shape in) noexcept { return cache(in).scratch_count; }
  template <class Team>
  static void forward_behind(const Team& team) requires(options.causal && !options.kv_bias) {
    const detail::attention_layout at = lay_out(team.whole);
    const auto count = static_cast<std::ptrdiff_t>(team.in.e0);
    const auto multiply = [&](const product_sizes& sizes, const auto* left, const auto& right, auto* out,
                              std::ptrdiff_t bias) {
      if (has_bias) {
        team.multiply_bias(sizes, left, right, out, team.parameters + bias);
      } else {
        team.multiply(sizes, left, right, out);
      }
    };
    auto* const scratch = team.scratch(0);
    multiply({.rows = {count, at.features, at.query_step}, .depth = at.features, .columns = at.query_step}, team.x(0),
             team.transposed(0, 0, 3 * at.features, at.features), scratch, at.bias);
    detail::attend_to_cache(team, at);
    multiply({.rows = {count, at.features, at.features}, .depth = at.features, .columns = at.features},
             static_cast<const typename Team::scalar*>(scratch + detail::lay_out_cache(at).context),
             team.transposed(1, at.out_weight, at.features, at.features), team.y(0), at.out_bias);
  }

 private:
  [[nodiscard]] static constexpr detail::cache_layout cache(shape in) noexcept {
    return detail::lay_out_cache(lay_out(in));
  }
  static constexpr bool has_bias = options.bias;
  [[nodiscard]] PERGRAD_HD static constexpr detail::attention_layout lay_out(shape in) noexcept {
    constexpr detail::attention_options chosen = options;
    return detail::lay_out_attention(in, in, Heads, true, chosen);
  }
  /// Of queries, keys and values at once.
  [[nodiscard]] PERGRAD_HD static detail::projected_rows inputs(const detail::attention_layout& at) noexcept {
    return {false, at.queries, at.features, at.query, at.query_step};
  }
};

}  // namespace pergrad::inline v0_1
