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

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const std::int32_t* ids = tile.ids(b);
      const std::ptrdiff_t length = tile.length(b);
      scalar* y = tile.y(b);
      add_up<0>(tile.parameters, ids, length, y);
      const auto divisor = static_cast<scalar>(divisor_of(ids, length));
      for (std::size_t i = 0; i < Dim; ++i) y[i] /= divisor;
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const scalar* dy = tile.dy(b);
      scalar* delta = tile.saved(b);
      const auto divisor = static_cast<scalar>(divisor_of(tile.ids(b), tile.length(b)));
      for (std::size_t i = 0; i < Dim; ++i) delta[i] = dy[i] / divisor;
    }
  }

 private:
  [[nodiscard]] static constexpr bool is_padding(std::int32_t id) noexcept {
    return static_cast<std::size_t>(id) == options.padding;
  }
  /// n of a mean, at least 1; 1 for a sum.
  [[nodiscard]] static std::ptrdiff_t divisor_of(const std::int32_t* ids, std::ptrdiff_t length) noexcept {
    if (options.sum) return 1;
    std::int32_t count = 0;
    for (std::ptrdiff_t t = 0; t < length; ++t) count += is_padding(ids[t]) ? 0 : 1;
    return count == 0 ? 1 : count;
  }

  /// Columns from `First` on of the sum of rows, a block at a time: its sums stay in registers, in chains of their own
  /// for every fourth position.
  template <std::size_t First, class Scalar>
  static void add_up(const Scalar* table, const std::int32_t* ids, std::ptrdiff_t length, Scalar* y) noexcept {
    constexpr std::size_t left = Dim - First;
    constexpr std::size_t block = left >= 32 ? 32 : left >= 16 ? 16 : left;
    constexpr std::ptrdiff_t chains = 4;
    Scalar sums[chains][block] = {};
    const auto add = [&](Scalar(&sum)[block], std::int32_t id) {
      if (is_padding(id)) return;
      const Scalar* row = table + id * static_cast<std::ptrdiff_t>(Dim) + First;
      for (std::size_t i = 0; i < block; ++i) sum[i] += row[i];
    };
    const std::ptrdiff_t whole = length / chains * chains;
    for (std::ptrdiff_t t = 0; t < whole; t += chains) {
      for (std::ptrdiff_t c = 0; c < chains; ++c) add(sums[c], ids[t + c]);
    }
    for (std::ptrdiff_t t = whole; t < length; ++t) add(sums[0], ids[t]);
    for (std::size_t i = 0; i < block; ++i) {
      y[First + i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
    }
    if constexpr (left > block) add_up<First + block>(table, ids, length, y);
  }
};

}  // namespace pergrad::inline v0_1
