// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/learned_positions.hpp - y_t = x_t + p_t with one learned p_t a position
//
// The table's per-sample gradient is dy itself: zero behind a sample's length, where dy is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/layers/shared/added_table.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// On `{positions, features}`; keeps the shape. Parameters: the table `[positions, features]`. PyTorch: `x +
/// self.table[:x.shape[1]]`; first values as those of `nn.Embedding`, N(0, 1).
struct learned_positions : detail::added_table {
  static constexpr const char* name = "learned_positions";
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept { return in.size(); }
  [[nodiscard]] static constexpr block_list<1> blocks(shape in) noexcept { return {{{"weight", {in.e0, in.e1}}}}; }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    return list_factors(elementwise_sum(1, in.size(), {source::backprop}));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    const auto features = static_cast<double>(in.e1);
    detail::initialise_rows(initialiser, {features, features}, first, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    add(tile, tile.parameters);
  }
};

}  // namespace pergrad::inline v0_1
