// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/unit_gradients.hpp - gradients of units of privacy, each the sum of several rows' gradients, and
// their clipped share of a total
//
// What a unit adds is computed from its own rows alone, one after the other: rows of an evaluation do not depend on
// what else is in the batch, and its place among other units changes no bit. Its numbers are there, so their squares
// are added up as they are: the norm has no error but that of a double sum (privacy/clip.hpp, `error` 0). Shares are
// rounded and added up as integers, so D = C / g + sqrt(d) / 2 (privacy/sensitivity.hpp, integers only).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/gradients/request.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/privacy/sensitivity.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::detail {

/// Where the parameters of layers with parameters of their own lie, in the order of `group_of_layer`.
struct parameter_stretch {
  std::size_t first = 0;
  std::size_t count = 0;
};
template <class Structure>
[[nodiscard]] constexpr auto list_layer_stretches() {
  std::array<parameter_stretch, count_layer_groups<Structure>()> list{};
  std::size_t layer = 0;
  for (std::size_t i = 0; i < Structure::size; ++i) {
    if (Structure::trained_counts[i] > 0 && Structure::owners[i] == i) {
      list[layer++] = {Structure::parameter_offsets[i], Structure::trained_counts[i]};
    }
  }
  return list;
}

/// Gradients of up to `most` units, and room for as many rows.
template <class Network>
class unit_gradients {
 public:
  using scalar = typename Network::scalar;
  static constexpr std::size_t width = Network::parameter_count;
  static constexpr auto stretches = list_layer_stretches<typename Network::structure>();

  explicit unit_gradients(std::size_t most)
      : units_{most * width, "gradients of units", uninitialised},
        rows_{most * width, "gradients of their rows", uninitialised},
        row_counts_(most),
        norms_(most),
        weights_(most) {}

  void begin(std::size_t units) noexcept { std::fill_n(row_counts_.begin(), count_ = units, 0U); }
  /// Where an evaluation writes the gradients of `count` rows.
  [[nodiscard]] std::span<scalar> rows(std::size_t count) noexcept { return {rows_.data(), count * width}; }
  /// Row i of those is one of unit units[i].
  void add_rows(const thread_pool& pool, std::span<const std::uint32_t> units) {
    pool.parallel((width + stretch - 1) / stretch, [&](std::size_t number, std::size_t) {
      const std::size_t first = number * stretch;
      const std::size_t count = std::min(stretch, width - first);
      for (std::size_t i = 0; i < units.size(); ++i) {
        const scalar* const from = rows_.data() + i * width + first;
        scalar* const to = units_.data() + units[i] * width + first;
        const bool begins = row_counts_[units[i]] == 0 && (i == 0 || units[i - 1] != units[i]);
        for (std::size_t k = 0; k < count; ++k) to[k] = begins ? from[k] : to[k] + from[k];
      }
    });
    for (const std::uint32_t unit : units) ++row_counts_[unit];
  }
  [[nodiscard]] std::uint32_t rows_of(std::size_t unit) const noexcept { return row_counts_[unit]; }
  /// The norms of the units' gradients before clipping; one without a row has 0.
  [[nodiscard]] double norm_of(std::size_t unit) const noexcept { return norms_[unit]; }

  /// Averages if wanted, multiplies each element by its scale if there are any, clips each unit by `rule`, and adds
  /// what is left, rounded to the grid, to `integers`.
  template <class Rule>
  void add_clipped(const thread_pool& pool, const Rule& rule, bool averaged, const release_grid& grid,
                   std::int64_t* integers, const scalar* scales = nullptr) {
    pool.parallel(count_, [&](std::size_t unit, std::size_t) { weigh(unit, rule, averaged, grid.unit, scales); });
    const auto steps = static_cast<double>(std::int64_t{1} << grid.steps);
    pool.parallel((width + stretch - 1) / stretch, [&](std::size_t number, std::size_t) {
      const std::size_t first = number * stretch;
      const std::size_t end = std::min(first + stretch, width);
      for (std::size_t layer = 0; layer < stretches.size(); ++layer) {
        const std::size_t from = std::max(first, stretches[layer].first);
        const std::size_t to = std::min(end, stretches[layer].first + stretches[layer].count);
        for (std::size_t unit = 0; unit < count_ && from < to; ++unit) {
          const scalar weight = weights_[unit][Rule::per_layer ? layer : 0];
          if (weight == 0) continue;  // what is not finite must not be multiplied
          on_host::add_rounded_to(integers + from, static_cast<double>(weight) * steps,
                                  units_.data() + unit * width + from, static_cast<on_host::index>(to - from));
        }
      }
    });
  }

 private:
  static constexpr std::size_t stretch = 4096;
  using layer_weights = std::array<scalar, stretches.size() == 0 ? 1 : stretches.size()>;

  template <class Rule>
  void weigh(std::size_t unit, const Rule& rule, bool averaged, int grid_unit, const scalar* scales) noexcept {
    scalar* const values = units_.data() + unit * width;
    weights_[unit].fill(0);
    norms_[unit] = 0;
    if (row_counts_[unit] == 0) return;
    if (averaged) {
      const auto rows = static_cast<scalar>(row_counts_[unit]);
      for (std::size_t k = 0; k < width; ++k) values[k] /= rows;
    }
    if (scales != nullptr) {
      for (std::size_t k = 0; k < width; ++k) values[k] *= scales[k];
    }
    std::array<norm_bound, stretches.size()> layers{};
    sample_facts<scalar> facts;
    for (std::size_t layer = 0; layer < stretches.size(); ++layer) {
      for (std::size_t k = 0; k < stretches[layer].count; ++k) {
        const auto value = static_cast<double>(values[stretches[layer].first + k]);
        layers[layer].squared += value * value;
      }
      facts.norm += layers[layer];
    }
    facts.layers = layers;
    norms_[unit] = std::sqrt(facts.norm.squared);
    rule.template weigh<Network>(facts, grid_unit, weights_[unit].data());
  }

  aligned_buffer<scalar> units_;
  aligned_buffer<scalar> rows_;
  std::size_t count_ = 0;
  std::vector<std::uint32_t> row_counts_;
  std::vector<double> norms_;
  std::vector<layer_weights> weights_;
};

}  // namespace pergrad::inline v0_1::detail
