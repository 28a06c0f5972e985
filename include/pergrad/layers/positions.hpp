// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/positions.hpp - y_t = x_t + p_t with one p_t a position, learned or made of sines
//
// The per-sample gradient of learned ones is dy itself: zero behind a sample's length, where dy is. Sinusoidal ones are
//     p[t, 2k] = sin(t w_k),  p[t, 2k + 1] = cos(t w_k),  w_k = 10000^(-2k / features)
// (Vaswani et al. 2017, arXiv:1706.03762, section 3.5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/math.hpp>
#include <pergrad/simd/rounded.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// On `{positions, features}`; keeps the shape and hands the gradient on as it is.
struct added_table {
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return {in.e0, in.e1}; }
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept { return length; }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    return in.rank() == 2 ? mistake::none : mistake::needs_a_sequence;
  }

  /// y = x + table, of the input's shape.
  template <class Team>
  PERGRAD_HD static void add(const Team& team, const typename Team::scalar* table) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const auto* x = team.x(b);
      auto* y = team.y(b);
      team.map(static_cast<std::ptrdiff_t>(team.in.size()), [&](const auto& at) { at.put(y, at(x) + at(table)); });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      team.copy(static_cast<std::ptrdiff_t>(team.in.size()), team.dy(b), team.dx(b));
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

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    add(team, team.parameters);
  }
};

/// On `{positions, features}`; keeps the shape and has no parameters. An odd number of features ends in a sine.
struct sinusoidal_positions : detail::added_table {
  static constexpr const char* name = "sinusoidal_positions";
  [[nodiscard]] static constexpr std::size_t scratch_count(shape in) noexcept { return in.size(); }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    auto* table = team.scratch(0);
    fill(team, static_cast<std::ptrdiff_t>(team.in.e0), static_cast<std::ptrdiff_t>(team.in.e1), table);
    add(team, table);
  }

 private:
  /// The table is made for every tile, in double: from one position to the next, (cos, sin) turns by the angle w_k.
  /// Errors of the turning add up to about t units in the last place of a double, which is less than what a float holds
  /// for t up to 10^8.
  template <class Team>
  PERGRAD_HD static void fill(const Team& team, std::ptrdiff_t positions, std::ptrdiff_t features,
                              typename Team::scalar* table) {
    constexpr int together = 4;  // frequencies side by side, to hide the latency of their chains
    team.each((features + 2 * together - 1) / (2 * together), [&](std::ptrdiff_t group) {
      const std::ptrdiff_t first = group * 2 * together;
      double sine[together];
      double cosine[together];
      double turn_sine[together];
      double turn_cosine[together];
      for (int k = 0; k < together; ++k) {
        sine[k] = 0;
        cosine[k] = 1;
        turn_by(frequency(first + 2 * k, features), turn_sine[k], turn_cosine[k]);
      }
      for (std::ptrdiff_t t = 0; t < positions; ++t) {
        auto* row = table + t * features + first;
        for (int k = 0; k < together; ++k) {
          if (first + 2 * k < features) row[2 * k] = static_cast<typename Team::scalar>(sine[k]);
          if (first + 2 * k + 1 < features) row[2 * k + 1] = static_cast<typename Team::scalar>(cosine[k]);
          const double before = sine[k];
          sine[k] = before * turn_cosine[k] + cosine[k] * turn_sine[k];
          cosine[k] = cosine[k] * turn_cosine[k] - before * turn_sine[k];
        }
      }
    });
  }
  /// 10000^(-column / features), with the logarithm in two parts.
  [[nodiscard]] PERGRAD_HD static double frequency(std::ptrdiff_t column, std::ptrdiff_t features) noexcept {
    constexpr double log_of_base = 0x1.26bb1bbb55516p+3;
    constexpr double rest_of_log = -0x1.f48ad494ea3e9p-51;
    const double share = -static_cast<double>(column) / static_cast<double>(features);
    const double power = share * log_of_base;
    const double low = rounded::fma(share, log_of_base, -power) + share * rest_of_log;
    return math::exp(power) * (1 + low);
  }
  /// sin w and cos w for 0 <= w <= 1, by their series.
  PERGRAD_HD static void turn_by(double w, double& sine, double& cosine) noexcept {
    const double square = w * w;
    double of_sine = 1;
    double of_cosine = 1;
    for (int n = 10; n > 0; --n) {
      of_sine = 1 - square / (2 * n * (2 * n + 1)) * of_sine;
      of_cosine = 1 - square / (2 * n * (2 * n - 1)) * of_cosine;
    }
    sine = w * of_sine;
    cosine = of_cosine;
  }
};

}  // namespace pergrad::inline v0_1
