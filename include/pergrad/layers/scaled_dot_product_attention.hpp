// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/scaled_dot_product_attention.hpp - attention without its projections, for projections of one's own
//
//     X = [Q | K | V];    Y = the heads' softmax(Q K^T / sqrt(d)) V, side by side
// (Vaswani et al. 2017, arXiv:1706.03762; the heads: layers/shared/attention.hpp). With rotary positions, Q and K are
// turned before that, and their gradients turned back behind it. Between two linear layers this is
// multi-head attention, with the same parameters in the same order; between adapters it is attention with adapters.
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/attention.hpp>
#include <pergrad/layers/shared/attention_cache.hpp>
#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `scaled_dot_product_attention<Heads, Options...>` from `{positions, 3 features}`, queries, keys and values side by
/// side, to `{positions, features}`, of any length each. Three times the heads must divide the width of the input; with
/// `key_value_heads<Count>`, which divides the heads, Heads + 2 Count must, and with `rotary<Base>` a head's width is
/// even. Options in any order: these, `causal`, `attention_dropout<0.1>`. No parameters. PyTorch:
/// `torch.nn.functional.scaled_dot_product_attention` for every head. Positions beyond a sample's length are not seen
/// by any other.
template <std::size_t Heads, class... Options>
struct scaled_dot_product_attention : detail::attention_layer<Heads, Options...> {
  static constexpr const char* name = "scaled_dot_product_attention";
  static constexpr bool forgets_values = true;
  using detail::attention_layer<Heads, Options...>::options;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return of_queries(in); }
  [[nodiscard]] static constexpr auto settings() noexcept {
    const auto usual = detail::attention_layer<Heads, Options...>::settings();
    if constexpr (options.memory_heads == 0 && options.log_of_base == 0) {
      return usual;  // files of networks without these options keep their hash
    } else {
      return std::array{static_cast<double>(usual[0]), static_cast<double>(usual[1]), static_cast<double>(usual[2]),
                        static_cast<double>(memory_heads), options.log_of_base};
    }
  }
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
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (!options.bias || options.kv_bias) return detail::mistake::option_not_offered;
    const auto wrong = scaled_dot_product_attention::check_sequences(in, in);
    if (wrong != detail::mistake::none) return wrong;
    if (Heads % memory_heads != 0) return detail::mistake::key_value_heads_do_not_divide;
    if (in.e1 % all_heads != 0) return detail::mistake::heads_do_not_divide;
    const bool even = options.log_of_base == 0 || in.e1 / all_heads % 2 == 0;
    return even ? detail::mistake::none : detail::mistake::rotary_of_odd_width;
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const detail::attention_layout at = lay_out(team.in);
    const detail::attention_part part = detail::part_of(team, at);
    const std::ptrdiff_t first_query = part.first * at.group * at.width, of_queries = part.count * at.group * at.width;
    detail::make_rotations(team, at);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      detail::for_each_column_range(at, part, [&](std::ptrdiff_t first, std::ptrdiff_t width) {
        detail::copy_columns(team, at.positions, at.query_step, width, team.x(b) + first,
                             team.saved(b) + at.query + first);
      });
      detail::rotate(team, at, b, 1);
      detail::attend(team, at, b, team.length(b), team.length(b));
      detail::copy_columns(team, at.queries, at.features, of_queries, team.saved(b) + at.context + first_query,
                           team.y(b) + first_query);
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    if (!team.wants_dx) return;
    const detail::attention_layout at = lay_out(team.in);
    const detail::attention_part part = detail::part_of(team, at);
    const std::ptrdiff_t first_query = part.first * at.group * at.width, of_queries = part.count * at.group * at.width;
    detail::make_rotations(team, at);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      detail::copy_columns(team, at.queries, at.features, of_queries, team.dy(b) + first_query,
                           team.scratch(b) + first_query);
      detail::attend_backward(team, at, b, team.length(b), team.length(b));
      detail::rotate(team, at, b, -1);
      detail::for_each_column_range(at, part, [&](std::ptrdiff_t first, std::ptrdiff_t width) {
        detail::copy_columns(team, at.positions, at.query_step, width, team.saved(b) + at.query + first,
                             team.dx(b) + first);
      });
    }
  }

  // Some positions behind others (pergrad/team.hpp).
  [[nodiscard]] static constexpr std::size_t kept_count(shape in) noexcept { return cache(in).kept_count; }
  [[nodiscard]] static constexpr std::size_t scratch_count_behind(shape in) noexcept { return cache(in).scratch_count; }
  template <class Team>
  static void forward_behind(const Team& team) requires(options.causal) {
    const detail::attention_layout at = lay_out(team.whole);
    auto* const scratch = team.scratch(0);
    team.copy(static_cast<std::ptrdiff_t>(team.in.size()), team.x(0), scratch);
    detail::attend_to_cache(team, at);
    team.copy(static_cast<std::ptrdiff_t>(team.out.size()), scratch + detail::lay_out_cache(at).context, team.y(0));
  }

 private:
  [[nodiscard]] static constexpr detail::cache_layout cache(shape in) noexcept {
    return detail::lay_out_cache(lay_out(in));
  }
  static constexpr std::size_t memory_heads = options.memory_heads != 0 ? options.memory_heads : Heads != 0 ? Heads : 1;
  static constexpr std::size_t all_heads = Heads + 2 * memory_heads;
  [[nodiscard]] PERGRAD_HD static constexpr shape of_queries(shape in) noexcept {
    return {in.e0, in.e1 / all_heads * Heads};
  }
  [[nodiscard]] PERGRAD_HD static constexpr detail::attention_layout lay_out(shape in) noexcept {
    constexpr detail::attention_options chosen = options;
    const shape of_one = of_queries(in);
    return detail::lay_out_attention(of_one, of_one, Heads, true, chosen);
  }
};

}  // namespace pergrad::inline v0_1
