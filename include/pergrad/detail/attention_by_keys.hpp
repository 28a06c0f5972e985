// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/attention_by_keys.hpp - a head's attention with its scores turned: keys are their rows, queries their
// columns
//
// The formulas of detail/attention.hpp, each transposed but the last two:
//     S^T = K Q^T / sqrt(d),    P^T = softmax of each column of S^T,    Y^T = V^T P^T
//     dP^T = V dY^T,    dS^T = P^T o (dP^T - columnsum(dY^T o Y^T)) / sqrt(d),
//     dQ^T = K^T dS^T,    dK = dS^T Q,    dV = P^T dY
// A product's columns are padded to whole vectors. Heads are narrow, 25 features take two vectors of 16 lanes, while a
// sequence has many queries: Y^T and dQ^T have them as columns. Maxima and sums of a softmax go from row to row, so no
// lane asks another one. Y stays transposed: what reads it does so with strides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <pergrad/detail/attention_layout.hpp>
#include <pergrad/detail/attention_softmax.hpp>

namespace pergrad::inline v0_1::detail {

/// Calls f(first, count) for stretches of queries as even as whole vectors allow: a stretch of the scores stays in the
/// first caches from the product that forms it to the one that uses it.
template <class Function>
void for_each_stretch(std::ptrdiff_t queries, Function&& f) {
  constexpr std::ptrdiff_t most = 64;
  const std::ptrdiff_t stretches = (queries + most - 1) / most;
  const std::ptrdiff_t step = stretches == 0 ? most : ((queries + stretches - 1) / stretches + 15) / 16 * 16;
  for (std::ptrdiff_t first = 0; first < queries; first += step) f(first, std::min(step, queries - first));
}

/// `attend` (detail/attention.hpp).
template <class Tile>
void attend_by_keys(const Tile& tile, const attention_layout& at, std::ptrdiff_t sample, std::ptrdiff_t queries,
                    std::ptrdiff_t keys) {
  using scalar = typename Tile::scalar;
  scalar* const saved = tile.saved(sample);
  scalar* const turned = tile.scratch(0) + at.turned;  // the first sample's, which stays in the nearest cache
  const auto scale = static_cast<scalar>(1 / std::sqrt(static_cast<double>(at.width)));
  const std::ptrdiff_t step = at.score_step;
  for (std::ptrdiff_t head = 0; head < at.heads; ++head) {
    const std::ptrdiff_t column = head * at.width;
    scalar* const scores = saved + at.probabilities + head * at.head_scores;
    scalar* const context = saved + at.context + column * step;
    Tile::turn(saved + at.query + column, at.query_step, queries, at.width, turned, step);
    for_each_stretch(queries, [&](std::ptrdiff_t first, std::ptrdiff_t count) {
      multiply_matrices<Tile, scalar>(keys, at.width, count, saved + at.key + column, at.memory_step, 1, turned + first,
                                      step, scores + first, step);
      softmax_columns(scores + first, keys, count, step, scale);
      multiply_matrices<Tile, scalar>(at.width, keys, count, saved + at.value + column, 1, at.memory_step,
                                      scores + first, step, context + first, step);
    });
  }
  for (std::ptrdiff_t f = 0; queries < at.queries && f < at.features; ++f) {
    std::fill(saved + at.context + f * step + queries, saved + at.context + f * step + at.queries, scalar{0});
  }
}

/// `attend_backward` (detail/attention.hpp) but for the positions beyond those that are there.
template <class Tile>
void attend_backward_by_keys(const Tile& tile, const attention_layout& at, std::ptrdiff_t sample,
                             std::ptrdiff_t queries, std::ptrdiff_t keys) {
  using scalar = typename Tile::scalar;
  scalar* const saved = tile.saved(sample);
  scalar* const turned = tile.scratch(0) + at.turned;
  scalar* const gradients = tile.scratch(0) + at.score_gradients;
  scalar* const query_gradients = tile.scratch(0) + at.query_gradients;
  const auto scale = static_cast<scalar>(1 / std::sqrt(static_cast<double>(at.width)));
  const std::ptrdiff_t step = at.score_step;
  for (std::ptrdiff_t head = 0; head < at.heads; ++head) {
    const std::ptrdiff_t column = head * at.width;
    const scalar* const context_gradient = tile.scratch(sample) + column;
    const scalar* const context = saved + at.context + column * step;
    const scalar* const probabilities = saved + at.probabilities + head * at.head_scores;
    scalar* const query = saved + at.query + column;
    scalar* const key = saved + at.key + column;
    scalar* const value = saved + at.value + column;
    Tile::turn(context_gradient, at.features, queries, at.width, turned, step);
    for_each_stretch(queries, [&](std::ptrdiff_t first, std::ptrdiff_t count) {
      multiply_matrices<Tile, scalar>(keys, at.width, count, value, at.memory_step, 1, turned + first, step,
                                      gradients + first, step);
      softmax_columns_backward(probabilities + first, gradients + first, keys, count, step, scale, context + first,
                               static_cast<const scalar*>(turned + first), at.width);
      multiply_matrices<Tile, scalar>(at.width, keys, count, key, 1, at.memory_step, gradients + first, step,
                                      query_gradients + first, step);
    });
    multiply_matrices<Tile, scalar>(keys, queries, at.width, gradients, step, 1, query, at.query_step, key,
                                    at.memory_step);
    multiply_matrices<Tile, scalar>(keys, queries, at.width, probabilities, step, 1, context_gradient, at.features,
                                    value, at.memory_step);
    Tile::turn(query_gradients, step, at.width, queries, query, at.query_step);
  }
}

}  // namespace pergrad::inline v0_1::detail
