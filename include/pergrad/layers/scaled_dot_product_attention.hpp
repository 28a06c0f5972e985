// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/scaled_dot_product_attention.hpp - attention without its projections, for projections of one's own
//
//     X = [Q | K | V];    Y = the heads' softmax(Q K^T / sqrt(d)) V, side by side
// (Vaswani et al. 2017, arXiv:1706.03762; the heads: layers/shared/attention.hpp). Between two linear layers this is
// multi-head attention, with the same parameters in the same order; between adapters it is attention with adapters.
#pragma once

#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/attention.hpp>
#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `scaled_dot_product_attention<Heads, Options...>` from `{positions, 3 features}`, queries, keys and values side by
/// side, to `{positions, features}`, of any length each. Three times the heads must divide the width of the input.
/// Options in any order: `causal`, `attention_dropout<0.1>`. No parameters. PyTorch:
/// `torch.nn.functional.scaled_dot_product_attention` for every head. Positions beyond a sample's length are not seen
/// by any other.
template <std::size_t Heads, class... Options>
struct scaled_dot_product_attention : detail::attention_layer<Heads, Options...> {
  static constexpr const char* name = "scaled_dot_product_attention";
  using detail::attention_layer<Heads, Options...>::options;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1 / 3}; }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return lay_out(in).saved_count; }
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in) noexcept { return lay_out(in).scratch_count; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (!options.bias || options.kv_bias) return detail::mistake::option_not_offered;
    const auto wrong = scaled_dot_product_attention::check_inputs(in, in);
    if (wrong != detail::mistake::none) return wrong;
    return in.e1 % (3 * Heads) != 0 ? detail::mistake::heads_do_not_divide : detail::mistake::none;
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const detail::attention_layout at = lay_out(team.in);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      team.copy(static_cast<std::ptrdiff_t>(team.in.size()), team.x(b), team.saved(b) + at.query);
      detail::attend(team, at, b, team.length(b), team.length(b));
      team.copy(static_cast<std::ptrdiff_t>(team.out.size()), team.saved(b) + at.context, team.y(b));
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    if (!team.wants_dx) return;
    const detail::attention_layout at = lay_out(team.in);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      team.copy(static_cast<std::ptrdiff_t>(team.out.size()), team.dy(b), team.scratch(b));
      detail::attend_backward(team, at, b, team.length(b), team.length(b));
      team.copy(static_cast<std::ptrdiff_t>(team.in.size()), team.saved(b) + at.query, team.dx(b));
    }
  }

 private:
  [[nodiscard]] PERGRAD_HD static constexpr detail::attention_layout lay_out(shape in) noexcept {
    constexpr detail::attention_options chosen = options;
    const shape of_one{in.e0, in.e1 / 3};
    return detail::lay_out_attention(of_one, of_one, Heads, true, chosen);
  }
};

}  // namespace pergrad::inline v0_1
