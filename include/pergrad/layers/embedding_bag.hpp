// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/embedding_bag.hpp - the mean (or sum) of a table's rows over the positions of a sample
//
//   y = (1 / n) sum over t of table[id_t],   n: positions that are there and are not padding
//
// All positions share one delta = dy / n, so a sample's gradient is known by that delta and by how often each id
// occurs:  G_b[id] = count_b(id) delta_b,  ‖G_b‖² = ‖delta_b‖² sum count².  No row is ever copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/layers/embedding.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `embedding_bag<Dim>` on `token_ids(positions, vocabulary)`: `{positions}` ids to `{Dim}`. Options: `bag_sum`
/// (default: the mean), `padding_idx<Id>`: positions that hold it are left out of the sum and of the count; a mean over
/// none is 0. PyTorch: `nn.EmbeddingBag(vocabulary, Dim, mode="mean")`; parameters: weight `[vocabulary, Dim]`.
template <std::size_t Dim, class... Options>
struct embedding_bag : detail::table_layer<Dim, Options...> {
  static constexpr const char* name = "embedding_bag";
  static constexpr bool knows_lengths = true;
  using detail::table_layer<Dim, Options...>::options;

  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return {Dim}; }
  [[nodiscard]] static constexpr auto settings() noexcept {
    return std::array{options.padding, std::size_t{options.sum}};
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape /*in*/) noexcept { return Dim; }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(row_sum(in.e0, in.ids, Dim, {.from = source::saved}, options.padding));
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    using scalar = typename Team::scalar;
    constexpr auto width = static_cast<std::ptrdiff_t>(Dim);
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const std::int32_t* ids = team.ids(b);
      const std::ptrdiff_t length = team.length(b);
      const auto divisor = divisor_of(team, ids, length);
      const scalar* table = team.parameters;
      scalar* y = team.y(b);
      team.map(width, [&](const auto& at) {
        // Chains of their own for every fourth position, to hide the latency of additions.
        auto first = at.zero();
        auto second = at.zero();
        auto third = at.zero();
        auto fourth = at.zero();
        const auto add = [&](auto& sum, std::int32_t id) {
          if (!is_padding(id)) sum += at(table + id * width);
        };
        std::ptrdiff_t t = 0;
        for (; t + 4 <= length; t += 4) {
          add(first, ids[t]);
          add(second, ids[t + 1]);
          add(third, ids[t + 2]);
          add(fourth, ids[t + 3]);
        }
        for (; t < length; ++t) add(first, ids[t]);
        at.put(y, ((first + second) + (third + fourth)) / divisor);
      });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    using scalar = typename Team::scalar;
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const scalar* dy = team.dy(b);
      scalar* delta = team.saved(b);
      const auto divisor = divisor_of(team, team.ids(b), team.length(b));
      team.map(static_cast<std::ptrdiff_t>(Dim), [&](const auto& at) { at.put(delta, at(dy) / divisor); });
    }
  }

 private:
  [[nodiscard]] PERGRAD_HD static constexpr bool is_padding(std::int32_t id) noexcept {
    constexpr std::size_t padding = options.padding;
    return static_cast<std::size_t>(id) == padding;
  }
  /// n of a mean, at least 1; 1 for a sum.
  template <class Team>
  [[nodiscard]] PERGRAD_HD static typename Team::scalar divisor_of(const Team& team, const std::int32_t* ids,
                                                                   std::ptrdiff_t length) {
    if constexpr (options.sum) {
      return 1;
    } else {
      const std::ptrdiff_t count = team.count(length, [&](std::ptrdiff_t t) { return !is_padding(ids[t]); });
      return static_cast<typename Team::scalar>(count == 0 ? 1 : count);
    }
  }
};

}  // namespace pergrad::inline v0_1
