// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/sinusoidal_positions.hpp - y_t = x_t + p_t,  p[t, 2k] = sin(t w_k), p[t, 2k + 1] = cos(t w_k)
//
// w_k = 10000^(-2k / features) (Vaswani et al. 2017, arXiv:1706.03762, section 3.5). The table is made for every tile,
// in double: from one position to the next, (cos, sin) turns by the angle w_k. Errors of the turning add up to about t
// units in the last place of a double, which is less than what a float holds for t up to 10^8.
#pragma once

#include <cmath>
#include <cstddef>

#include <pergrad/layers/shared/added_table.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// On `{positions, features}`; keeps the shape and has no parameters. An odd number of features ends in a sine.
struct sinusoidal_positions : detail::added_table {
  static constexpr const char* name = "sinusoidal_positions";
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in) noexcept { return in.size(); }

  template <class Tile>
  static void forward(const Tile& tile) {
    auto* table = tile.scratch(0);
    fill(tile.in.e0, tile.in.e1, table);
    add(tile, table);
  }

 private:
  template <class Scalar>
  static void fill(std::size_t positions, std::size_t features, Scalar* table) {
    constexpr std::size_t together = 8;  // frequencies side by side, to hide the latency of their chains
    for (std::size_t first = 0; first < features; first += 2 * together) {
      double sine[together];
      double cosine[together];
      double turn_sine[together];
      double turn_cosine[together];
      for (std::size_t k = 0; k < together; ++k) {
        const double exponent = -static_cast<double>(first + 2 * k) / static_cast<double>(features);
        const double frequency = std::pow(10000.0, exponent);
        sine[k] = 0;
        cosine[k] = 1;
        turn_sine[k] = std::sin(frequency);
        turn_cosine[k] = std::cos(frequency);
      }
      const std::size_t here = features - first < 2 * together ? features - first : 2 * together;
      for (std::size_t t = 0; t < positions; ++t) {
        Scalar* row = table + t * features + first;
        for (std::size_t i = 0; i < here; ++i) {
          row[i] = static_cast<Scalar>(i % 2 == 0 ? sine[i / 2] : cosine[i / 2]);
        }
        for (std::size_t k = 0; k < together; ++k) {
          const double before = sine[k];
          sine[k] = before * turn_cosine[k] + cosine[k] * turn_sine[k];
          cosine[k] = cosine[k] * turn_cosine[k] - before * turn_sine[k];
        }
      }
    }
  }
};

}  // namespace pergrad::inline v0_1
