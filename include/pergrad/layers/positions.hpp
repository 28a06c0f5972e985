// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/positions.hpp - y_t = x_t + p_t with one p_t a position, learned or made of sines
//
// The per-sample gradient of learned ones is dy itself: zero behind a sample's length, where dy is. Sinusoidal ones are
//     p[t, 2k] = sin(t w_k),  p[t, 2k + 1] = cos(t w_k),  w_k = 10000^(-2k / features)
// (Vaswani et al. 2017, arXiv:1706.03762, section 3.5).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// On `{positions, features}`; keeps the shape and hands the gradient on as it is.
struct added_table {
  static constexpr bool on_tiles = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    return in.rank() == 2 ? mistake::none : mistake::needs_a_sequence;
  }

  /// y = x + table, of the input's shape.
  template <class Tile>
  static void add(const Tile& tile, const typename Tile::scalar* table) {
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const auto* x = tile.x(b);
      auto* y = tile.y(b);
      on_host::for_each_vector<typename Tile::scalar>(size, [&](std::ptrdiff_t i, const auto& lanes) {
        lanes.store(y + i, lanes.load(x + i) + lanes.load(table + i));
      });
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      std::copy_n(tile.dy(b), tile.in.size(), tile.dx(b));
    }
  }
};

}  // namespace detail

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
  /// The table is made for every tile, in double: from one position to the next, (cos, sin) turns by the angle w_k.
  /// Errors of the turning add up to about t units in the last place of a double, which is less than what a float holds
  /// for t up to 10^8.
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
