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
  template <class Initialiser, class Scalar>
  static void initialise(shape in, shape second, const Initialiser& initialiser, std::uint64_t first,
                         std::span<Scalar> parameters) {
    initialise_attention(lay_out(in, second), options.bias, initialiser, first, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const attention_layout at = lay_out(tile.in, tile.in2);
    const scalar* bias = options.bias ? tile.parameters + at.bias : nullptr;
    project(tile, of_queries(tile, at), tile.x, tile.transposed(0), bias);
    project(tile, of_memory(tile, at), tile.x2, tile.transposed(1), bias == nullptr ? nullptr : bias + at.features);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      set_learned_key(tile, at, b);
      attend(tile, at, b, tile.length(b), tile.length2(b) + at.extra);
    }
    project_context(tile, at, tile.transposed(2), options.bias);
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    const attention_layout at = lay_out(tile.in, tile.in2);
    project_context_backward(tile, at);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      attend_backward(tile, at, b, tile.length(b), tile.length2(b) + at.extra);
    }
    if (tile.wants_dx) project_backward(tile, of_queries(tile, at), tile.parameters, tile.dx);
    if (tile.wants_dx2) {
      project_backward(tile, of_memory(tile, at), tile.parameters + at.features * at.features, tile.dx2);
    }
  }

 private:
  [[nodiscard]] static constexpr attention_layout lay_out(shape in, shape second) noexcept {
    return lay_out_attention(in, second, Heads, false, options);
  }
  template <class Tile>
  [[nodiscard]] static projected_rows of_queries(const Tile& tile, const attention_layout& at) noexcept {
    return {tile.lengths, at.queries, at.features, at.query, at.query_step};
  }
  template <class Tile>
  [[nodiscard]] static projected_rows of_memory(const Tile& tile, const attention_layout& at) noexcept {
    return {tile.lengths2, at.positions, at.memory_features, at.key + at.extra * at.memory_step, at.memory_step};
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
