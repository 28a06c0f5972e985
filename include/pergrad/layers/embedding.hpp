// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/embedding.hpp - y_t = table[id_t]: a row of parameters for every integer id
//
// Per-sample gradient  G_b[id] = sum over t with id_{b,t} = id of delta_{b,t}:  a row sum. Its norm is that of the rows
// after they are summed, not the sum of the positions' norms: the same id may occur twice (Lee & Kifer 2020,
// arXiv:2009.03106; Denison et al. 2022, arXiv:2211.11896).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

/// Layer option of `embedding` and `embedding_bag`: the id that stands for no word. Its row has no gradient and is 0
/// at first; an embedding reads it like any other, a bag leaves it out.
template <std::size_t Id>
struct padding_idx {
  static constexpr std::size_t value = Id;
};
/// Layer option of `embedding_bag`: the sum over positions, not the mean.
struct bag_sum {};

namespace detail {

/// Options of layers with a table.
struct table_options {
  std::size_t padding = ~std::size_t{0};  ///< none
  bool sum = false;
  bool unknown_given = false;

  friend constexpr bool operator==(const table_options&, const table_options&) noexcept = default;
};
template <std::size_t Id>
constexpr void apply(table_options& options, padding_idx<Id> option) noexcept {
  options.padding = option.value;
}
constexpr void apply(table_options& options, bag_sum) noexcept { options.sum = true; }

/// What layers with a table `[vocabulary][Dim]` have in common.
template <std::size_t Dim, class... Options>
struct table_layer {
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  static constexpr bool takes_ids = true;
  static constexpr table_options options = gather<table_options, Options...>();

  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return in.ids * Dim; }
  [[nodiscard]] static constexpr block_list<1> blocks(shape in) noexcept { return {{{"weight", {in.ids, Dim}}}}; }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (in.ids == 0 || in.rank() != 1) return mistake::needs_ids;
    if (Dim == 0) return mistake::zero_is_no_size;
    const bool padding_is_an_id = options.padding == ~std::size_t{0} || options.padding < in.ids;
    return options.unknown_given || !padding_is_an_id ? mistake::option_not_offered : mistake::none;
  }
  /// N(0, 1) where an initialiser means "what PyTorch does", which is what `nn.Embedding` does; any other as it says,
  /// with fan_in = Dim and fan_out = vocabulary, as torch.nn.init counts. The padding row is 0.
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> table) {
    initialise_rows(initialiser, {static_cast<double>(Dim), static_cast<double>(in.ids)}, first, table);
    if (options.padding < in.ids) std::ranges::fill(table.subspan(options.padding * Dim, Dim), Scalar{0});
  }
};

}  // namespace detail

/// `embedding<Dim>` on `token_ids(positions, vocabulary)`: `{positions}` ids to `{positions, Dim}`. Option:
/// `padding_idx<Id>`. PyTorch: `nn.Embedding(vocabulary, Dim)`; parameters: weight `[vocabulary, Dim]`.
template <std::size_t Dim, class... Options>
struct embedding : detail::table_layer<Dim, Options...> {
  static constexpr const char* name = "embedding";
  static constexpr bool forgets_values = true;
  static constexpr bool by_position = true;
  using detail::table_layer<Dim, Options...>::options;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, Dim}; }
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{options.padding}; }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return options.sum ? detail::mistake::option_not_offered : detail::table_layer<Dim, Options...>::check(in);
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(
        row_sum(in.e0, in.ids, Dim, {.from = source::backprop, .position_stride = Dim}, options.padding));
  }

  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept { return count_parts(in.e0, in.e0 * Dim); }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    constexpr auto width = static_cast<std::ptrdiff_t>(Dim);
    const part_range rows = range_of_part(team, static_cast<std::ptrdiff_t>(team.in.e0));
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const std::int32_t* ids = team.ids(b) + rows.first;
      const auto* table = team.parameters;
      auto* y = team.y(b) + rows.first * width;
      team.map(rows.count, width,
               [=](std::ptrdiff_t t, const auto& at) { at.put(y + t * width, at(table + ids[t] * width)); });
    }
  }
  /// Nothing to do: ids have no gradient, and the table's is derived from its factors.
  template <class Team>
  PERGRAD_HD static void backward(const Team& /*team*/) {}
};

}  // namespace pergrad::inline v0_1
