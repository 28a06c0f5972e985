// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/cross_attention.hpp - attention between two branches: positions of one ask the positions of the other
//
//     Q = X W_q^T + b_q,    [K | V] = M W_kv^T + b_kv,    then as in self-attention (layers/multihead_attention.hpp)
// with X and M what the two branches make of the same input. Queries and memory differ in their positions, so the
// projections' gradients are two outer-product sums:  sum_t dQ_t (x) X_t  and  sum_s [dK | dV]_s (x) M_s.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/layers/shared/attention.hpp>
#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// The branch of a `cross_attention` that asks. Without layers: the input itself.
template <class... Layers>
struct queries {};
/// The branch of a `cross_attention` that is asked. Without layers: the input itself.
template <class... Layers>
struct memory {};

namespace detail {

/// The node in which the branches of a `cross_attention` meet: `{positions, features}` and `{positions, features}`.
template <std::size_t Heads, class... Options>
struct attention_to_memory : attention_layer<Heads, Options...> {
  static constexpr const char* name = "cross_attention";
  using attention_layer<Heads, Options...>::options;

  [[nodiscard]] static constexpr shape output_shape(shape in, shape /*second*/) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in, shape second) noexcept {
    return lay_out(in, second).parameter_count;
  }
  [[nodiscard]] static constexpr auto blocks(shape in, shape second) noexcept {
    return attention_to_memory::blocks_of(in, second);
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in, shape second) noexcept {
    return lay_out(in, second).saved_count;
  }
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in, shape second) noexcept {
    return lay_out(in, second).scratch_count;
  }
  [[nodiscard]] static constexpr std::size_t part_count(shape in, shape second) noexcept {
    return static_cast<std::size_t>(lay_out(in, second).part_count());
  }
  [[nodiscard]] static constexpr std::size_t part_scratch_count(shape in, shape second) noexcept {
    return static_cast<std::size_t>(lay_out(in, second).part_scratch_count());
  }
  [[nodiscard]] static constexpr mistake check(shape in, shape second) noexcept {
    return attention_to_memory::check_inputs(in, second);
  }
  [[nodiscard]] static constexpr std::array<matrix, 3> matrices(shape in, shape second) noexcept {
    const std::size_t features = in.e1;
    return {matrix{0, features, features}, matrix{features * features, 2 * features, second.e1},
            matrix{static_cast<std::size_t>(lay_out(in, second).out_weight), features, features}};
  }
  [[nodiscard]] static constexpr auto factors(shape in, shape second) noexcept {
    const attention_layout at = lay_out(in, second);
    const std::size_t features = in.e1;
    const auto key = static_cast<std::size_t>(at.key);
    const operand query{source::saved, static_cast<std::size_t>(at.query), features};
    const operand keys{source::saved, key + static_cast<std::size_t>(at.extra) * 2 * features, 2 * features};
    const operand backprop{source::backprop, 0, features};
    const operand context{source::saved, static_cast<std::size_t>(at.context), features};
    factor_list<3 + (options.bias ? 3U : 0U) + (options.kv_bias ? 1U : 0U)> list;
    std::size_t count = 0;
    list[count++] = outer_sum(in.e0, features, query, features, {source::activation, 0, features});
    list[count++] = outer_sum(second.e0, 2 * features, keys, second.e1, {source::second_activation, 0, second.e1});
    if (options.bias) {
      list[count++] = elementwise_sum(in.e0, features, query);
      list[count++] = elementwise_sum(second.e0, 2 * features, keys);
    }
    if (options.kv_bias) list[count++] = elementwise_sum(1, 2 * features, {source::saved, key});
    list[count++] = outer_sum(in.e0, features, backprop, features, context);
    if (options.bias) list[count++] = elementwise_sum(in.e0, features, backprop);
    return list;
  }
  [[nodiscard]] static constexpr std::array<position_projection, 3> projections(shape in, shape second) noexcept {
    const attention_layout at = lay_out(in, second);
    const std::size_t features = in.e1;
    const auto place = [](std::ptrdiff_t offset) { return static_cast<std::size_t>(offset); };
    const operand query{source::saved, place(at.query), features};
    const operand keys{source::saved, place(at.key + at.extra * at.memory_step), 2 * features};
    const std::size_t none = position_projection{}.bias;
    return {position_projection{.positions = in.e0,
                                .weights = {0, features, features},
                                .x = {source::activation, 0, features},
                                .y = query,
                                .delta = query,
                                .bias = has_bias ? place(at.bias) : none},
            position_projection{.positions = second.e0,
                                .weights = {features * features, 2 * features, second.e1},
                                .x = {source::second_activation, 0, second.e1},
                                .y = keys,
                                .delta = keys,
                                .bias = has_bias ? place(at.bias) + features : none},
            position_projection{.positions = in.e0,
                                .weights = {place(at.out_weight), features, features},
                                .x = {source::saved, place(at.context), features},
                                .y = {source::output, 0, features},
                                .delta = {source::backprop, 0, features},
                                .bias = has_bias ? place(at.out_bias) : none}};
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, shape second, const Initialiser& initialiser, std::uint64_t first,
                         std::span<Scalar> parameters) {
    initialise_attention(lay_out(in, second), options.bias, initialiser, first, parameters);
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    using scalar = typename Team::scalar;
    const attention_layout at = lay_out(team.in, team.in2);
    const scalar* bias = has_bias ? team.parameters + at.bias : nullptr;
    if (!team.projected) {
      project(team, of_queries(at), team.x, team.transposed(0, 0, at.features, at.features), bias);
      project(team, of_memory(at), team.x2,
              team.transposed(1, at.features * at.features, 2 * at.features, at.memory_features),
              bias == nullptr ? nullptr : bias + at.features);
    }
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      set_learned_key(team, at, b);
      attend(team, at, b, team.length(b), team.length2(b) + at.extra);
    }
    if (!team.projected)
      project_context(team, at, team.transposed(2, at.out_weight, at.features, at.features), has_bias);
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    const attention_layout at = lay_out(team.in, team.in2);
    if (!team.projected) project_context_backward(team, at);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      attend_backward(team, at, b, team.length(b), team.length2(b) + at.extra);
    }
    if (team.projected) return;
    if (team.wants_dx) project_backward(team, of_queries(at), team.matrix(0, at.features, at.features), team.dx);
    if (team.wants_dx2) {
      project_backward(team, of_memory(at), team.matrix(at.features * at.features, 2 * at.features, at.memory_features),
                       team.dx2);
    }
  }

 private:
  static constexpr bool has_bias = options.bias;
  [[nodiscard]] PERGRAD_HD static constexpr attention_layout lay_out(shape in, shape second) noexcept {
    constexpr attention_options chosen = options;
    return lay_out_attention(in, second, Heads, false, chosen);
  }
  [[nodiscard]] PERGRAD_HD static projected_rows of_queries(const attention_layout& at) noexcept {
    return {false, at.queries, at.features, at.query, at.query_step};
  }
  [[nodiscard]] PERGRAD_HD static projected_rows of_memory(const attention_layout& at) noexcept {
    return {true, at.positions, at.memory_features, at.key + at.extra * at.memory_step, at.memory_step};
  }
};

}  // namespace detail

/// `cross_attention<Heads, queries<Layers...>, memory<Layers...>, Options...>` on `{positions, features}`: both
/// branches start from the same input; the output is `{positions of queries, features of queries}`. Heads must divide
/// the features of the queries. Options in any order: `causal` (query t sees the memory up to t), `no_bias`, `kv_bias`,
/// `attention_dropout<0.1>`.
/// PyTorch: `nn.MultiheadAttention(features, Heads, kdim=m, vdim=m, batch_first=True)(x, memory, memory)` with m the
/// memory's features; parameters: those of the branches, then in_proj_weight `[3 features, features]` or, if m differs,
/// q_proj_weight `[features, features]`, k_proj_weight and v_proj_weight `[features, m]`; in_proj_bias; bias_k and
/// bias_v with `kv_bias`; out_proj.weight, out_proj.bias.
/// Where samples have lengths of their own, positions of the memory beyond its length are not seen. A query that sees
/// nothing gets the output's bias alone.
template <std::size_t Heads, class... BranchesAndOptions>
struct cross_attention {
  [[nodiscard]] static constexpr detail::mistake check(shape /*in*/) noexcept {
    return detail::mistake::branches_not_given;
  }
};
template <std::size_t Heads, class... OfQueries, class... OfMemory, class... Options>
struct cross_attention<Heads, queries<OfQueries...>, memory<OfMemory...>, Options...> {
  using unfolds_to =
      merge<detail::attention_to_memory<Heads, Options...>, sequential<OfQueries...>, sequential<OfMemory...>>;
  template <class Names>
  static void name_parts(Names& names) {
    names.template list_at<OfQueries...>("queries.");
    names.template list_at<OfMemory...>("memory.");
    names.rest(1);
  }
};

}  // namespace pergrad::inline v0_1
