// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/attention_cache.hpp - causal attention of some positions to those in front of them, whose keys
// and values were kept
//
// Position t of a causal layer sees the positions up to t, so what it makes of them never changes when others follow:
// their keys and values are computed once. Every number is the same chain of operations as in layers/shared/attention,
// where rows stop at what they see, so both agree bit for bit.
#pragma once

#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/layers/shared/attention.hpp>
#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1::detail {

/// Positions, at most, that go through a layer together.
inline constexpr std::ptrdiff_t most_positions_at_once = 64;

/// Where everything lies that a layer keeps from call to call, and what it needs for the time of one.
struct cache_layout {
  std::ptrdiff_t key_step = 0;   ///< kept: keys, turned: [all heads' features][key_step]
  std::ptrdiff_t values = 0;     ///< kept: [positions][all heads' features]
  std::ptrdiff_t rotations = 0;  ///< kept: cosines, then sines, [positions][width / 2] each
  std::size_t kept_count = 0;
  std::ptrdiff_t projections = 0;  ///< scratch: [new positions][query_step], queries, keys and values
  std::ptrdiff_t context = 0;      ///< scratch: [new positions][features]
  std::ptrdiff_t scores = 0;       ///< scratch: [new positions][score_step]
  std::size_t scratch_count = 0;
};
[[nodiscard]] PERGRAD_HD constexpr cache_layout lay_out_cache(const attention_layout& at) noexcept {
  cache_layout cache;
  cache.key_step = at.score_step;
  cache.values = at.memory_width * cache.key_step;
  cache.rotations = cache.values + at.positions * at.memory_width;
  cache.kept_count = static_cast<std::size_t>(cache.rotations + (at.log_of_base > 0 ? at.positions * at.width : 0));
  cache.context = most_positions_at_once * at.query_step;
  cache.scores = cache.context + most_positions_at_once * at.features;
  cache.scratch_count = static_cast<std::size_t>(cache.scores + most_positions_at_once * at.score_step);
  return cache;
}

/// From the projections of positions `team.first` on, `team.in.e0` of them, to their context. Their keys and values
/// join those that are kept.
template <class Team>
PERGRAD_HD void attend_to_cache(const Team& team, const attention_layout& at) {
  using scalar = typename Team::scalar;
  const cache_layout cache = lay_out_cache(at);
  const std::ptrdiff_t first = team.first, count = static_cast<std::ptrdiff_t>(team.in.e0);
  scalar* const rows = team.scratch(0) + cache.projections;
  scalar* const context = team.scratch(0) + cache.context;
  scalar* const scores = team.scratch(0) + cache.scores;
  scalar* const key_columns = team.kept;
  scalar* const values = team.kept + cache.values;
  if (at.log_of_base != 0) {
    scalar* const cosines = team.kept + cache.rotations;
    const std::ptrdiff_t half = at.width / 2;
    if (first == 0) tabulate_rotations(team, at, cosines);
    rotate_rows(team, at, {cosines + first * half, cosines + (at.positions + first) * half}, count, rows, 1);
  }
  team.each(at.memory_width, [&](std::ptrdiff_t j) {
    for (std::ptrdiff_t t = 0; t < count; ++t) {
      key_columns[j * cache.key_step + first + t] = rows[t * at.query_step + at.features + j];
    }
  });
  team.map(count, at.memory_width, [&](std::ptrdiff_t t, const auto& here) {
    here.put(values + (first + t) * at.memory_width, here(rows + t * at.query_step + at.features + at.memory_width));
  });
  const scalar scale = at.template scale<scalar>();
  const std::ptrdiff_t step = at.score_step, all = first + count;
  for (std::ptrdiff_t head = 0; head < at.heads; ++head) {
    const std::ptrdiff_t column = head * at.width, of_memory = head / at.group * at.width;
    team.multiply({.rows = {count, at.query_step, step}, .depth = at.width, .columns = all}, rows + column,
                  {key_columns + of_memory * cache.key_step, cache.key_step}, scores);
    team.for_each_row(count, [&](std::ptrdiff_t i, const auto& row) {
      softmax_row(row, scores + i * step, first + i + 1, all, scale);
    });
    team.multiply({.rows = {count, step, at.features}, .depth = all, .columns = at.width}, scores,
                  {values + of_memory, at.memory_width}, context + column);
  }
}

}  // namespace pergrad::inline v0_1::detail
