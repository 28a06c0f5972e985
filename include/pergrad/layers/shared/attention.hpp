// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/attention.hpp - scaled dot-product attention of several heads, one sample at a time, and its
// gradient
//
// Per head, with queries Q, keys K and values V of width d (Vaswani et al. 2017, arXiv:1706.03762, section 3.2):
//     S = Q K^T / sqrt(d),    P = softmax of each row of S,    Y = P V
// and backwards, with o the product element by element and rowsum(.) one number a row:
//     dP = dY V^T,    dS = P o (dP - rowsum(P o dP)) / sqrt(d),    dQ = dS K,    dK = dS^T Q,    dV = P^T dY
// Query i sees the first `seen(i)` keys: all that are there, or up to itself in a causal layer. The learned key and
// value of `kv_bias` come first, so that what a query sees is always a prefix, and every product stops at its end: a
// key that is not seen has probability zero because it is never touched. Dropped probabilities A = P o mask / (1 - p)
// take the place of P in Y and dV, and dP = (dY V^T) o mask / (1 - p). The mask is kept as the sign of P: P >= 0.
//
// Nothing here is a template of a layer, so all attention layers of a network share one copy of the code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/layers/shared/attention_softmax.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::detail {

/// A product of every position's row with one matrix. Samples of varying length stop at their length.
template <class Scalar>
struct positions_product {
  std::ptrdiff_t depth = 0;  ///< of the matrix [depth][columns]
  std::ptrdiff_t columns = 0;
  const Scalar* left = nullptr;
  std::ptrdiff_t left_sample = 0;
  std::ptrdiff_t left_row = 0;
  const Scalar* right = nullptr;
  const Scalar* bias = nullptr;  ///< null: none
  Scalar* out = nullptr;
  std::ptrdiff_t out_sample = 0;
  std::ptrdiff_t out_row = 0;
};

/// `lengths`: null if all samples have all `positions`.
template <class Tile, class Scalar>
void multiply_positions(const Tile& tile, const std::uint32_t* lengths, std::ptrdiff_t positions,
                        const positions_product<Scalar>& of) {
  const std::ptrdiff_t groups = lengths == nullptr ? 1 : tile.samples;
  for (std::ptrdiff_t b = 0; b < groups; ++b) {
    const std::ptrdiff_t samples = lengths == nullptr ? tile.samples : 1;
    const std::ptrdiff_t rows = lengths == nullptr ? positions : static_cast<std::ptrdiff_t>(lengths[b]);
    const Scalar* left = of.left + b * of.left_sample;
    Scalar* out = of.out + b * of.out_sample;
    if (of.bias != nullptr) {
      Tile::multiply_bias({{{}, {samples, of.left_sample, of.out_sample}, {rows, of.left_row, of.out_row}},
                           {{}, {}, {of.depth, 1, of.columns}},
                           of.columns},
                          left, of.right, out, of.bias);
    } else {
      Tile::multiply({{{}, {samples, of.left_sample, of.out_sample}, {rows, of.left_row, of.out_row}},
                      {{}, {}, {of.depth, 1, of.columns}},
                      of.columns},
                     left, of.right, out);
    }
  }
}

/// From a sample's projections to its context; `queries` and `keys` of them are there. Positions beyond get zeros.
template <class Tile>
void attend(const Tile& tile, const attention_layout& at, std::ptrdiff_t sample, std::ptrdiff_t queries,
            std::ptrdiff_t keys) {
  using scalar = typename Tile::scalar;
  scalar* const saved = tile.saved(sample);
  scalar* const turned = tile.scratch(0) + at.turned;  // the first sample's, which stays in the nearest cache
  scalar* const dropped = tile.scratch(0) + at.dropped;
  const bool drops = at.threshold != 0 && tile.is_random();
  const auto scale = static_cast<scalar>(1 / std::sqrt(static_cast<double>(at.width)));
  const std::ptrdiff_t step = at.score_step;
  for (std::ptrdiff_t head = 0; head < at.heads; ++head) {
    const std::ptrdiff_t column = head * at.width;
    const scalar* query = saved + at.query + column;
    scalar* scores = saved + at.probabilities + head * at.head_scores;
    Tile::turn(saved + at.key + column, at.memory_step, keys, at.width, turned, step);
    for (std::ptrdiff_t first = 0; first < queries; first += at.together()) {
      const std::ptrdiff_t last = std::min(queries, first + at.together());
      const std::ptrdiff_t seen = at.seen(last - 1, keys);
      multiply_matrices<Tile, scalar>(last - first, at.width, seen, query + first * at.query_step, at.query_step, 1,
                                      turned, step, scores + first * step, step);
      for (std::ptrdiff_t i = first; i < last; ++i) softmax_row(scores + i * step, at.seen(i, keys), step, scale);
      const std::ptrdiff_t element = head * at.head_scores;
      if (drops && 2 * seen > step) {  // whole rows at once, where little of them is unused
        drop_probabilities(tile, sample, element + first * step, at, scores + first * step, (last - first) * step,
                           dropped + first * step);
      }
      for (std::ptrdiff_t i = first; drops && 2 * seen <= step && i < last; ++i) {
        drop_probabilities(tile, sample, element + i * step, at, scores + i * step, seen, dropped + i * step);
      }
      multiply_matrices<Tile, scalar>(last - first, seen, at.width, (drops ? dropped : scores) + first * step, step, 1,
                                      saved + at.value + column, at.memory_step,
                                      saved + at.context + first * at.features + column, at.features);
    }
  }
  std::fill(saved + at.context + queries * at.features, saved + at.context + at.queries * at.features, scalar{0});
}

/// Replaces a sample's projections by their gradients; that of its context lies in its scratch. Positions beyond those
/// that are there get zeros.
template <class Tile>
void attend_backward(const Tile& tile, const attention_layout& at, std::ptrdiff_t sample, std::ptrdiff_t queries,
                     std::ptrdiff_t keys) {
  using scalar = typename Tile::scalar;
  scalar* const saved = tile.saved(sample);
  const scalar* const context_gradient = tile.scratch(sample);
  scalar* const turned = tile.scratch(0) + at.turned;
  scalar* const gradients = tile.scratch(0) + at.score_gradients;
  scalar* const query_gradients = tile.scratch(0) + at.query_gradients;
  scalar* const dropped = tile.scratch(0) + at.dropped;
  const bool drops = at.threshold != 0 && tile.is_random();
  const auto scale = static_cast<scalar>(1 / std::sqrt(static_cast<double>(at.width)));
  const std::ptrdiff_t step = at.score_step;
  for (std::ptrdiff_t head = 0; head < at.heads; ++head) {
    const std::ptrdiff_t column = head * at.width;
    scalar* query = saved + at.query + column;
    scalar* key = saved + at.key + column;
    scalar* value = saved + at.value + column;
    scalar* scores = saved + at.probabilities + head * at.head_scores;
    Tile::turn(value, at.memory_step, keys, at.width, turned, step);
    for (std::ptrdiff_t first = 0; first < queries; first += at.together()) {
      const std::ptrdiff_t last = std::min(queries, first + at.together());
      const std::ptrdiff_t seen = at.seen(last - 1, keys);
      multiply_matrices<Tile, scalar>(last - first, at.width, seen, context_gradient + first * at.features + column,
                                      at.features, 1, turned, step, gradients + first * step, step);
      for (std::ptrdiff_t i = first; i < last; ++i) {
        scalar* row = scores + i * step;
        scalar* gradient = gradients + i * step;
        if (drops) undrop_row(row, gradient, dropped + i * step, seen, step, static_cast<scalar>(at.kept));
        softmax_row_backward(row, gradient, at.seen(i, keys), step, scale);
      }
      multiply_matrices<Tile, scalar>(last - first, seen, at.width, gradients + first * step, step, 1, key,
                                      at.memory_step, query_gradients + first * at.width, at.width);
    }
    for (std::ptrdiff_t first = 0; first < keys; first += at.together()) {
      const std::ptrdiff_t last = std::min(keys, first + at.together());
      const std::ptrdiff_t from = std::min(queries, at.first_to_see(first));
      multiply_matrices<Tile, scalar>(last - first, queries - from, at.width, gradients + from * step + first, 1, step,
                                      query + from * at.query_step, at.query_step, key + first * at.memory_step,
                                      at.memory_step);
      multiply_matrices<Tile, scalar>(
          last - first, queries - from, at.width, (drops ? dropped : scores) + from * step + first, 1, step,
          context_gradient + from * at.features + column, at.features, value + first * at.memory_step, at.memory_step);
    }
    for (std::ptrdiff_t i = 0; i < queries; ++i) {
      const scalar* from = query_gradients + i * at.width;
      scalar* to = query + i * at.query_step;
      on_host::for_each_vector<scalar>(
          at.width, [&](std::ptrdiff_t k, const auto& lanes) { lanes.store(to + k, lanes.load(from + k)); });
    }
  }
  for (std::ptrdiff_t i = queries; i < at.queries; ++i) {
    std::fill_n(saved + at.query + i * at.query_step, at.features, scalar{0});
  }
  for (std::ptrdiff_t k = keys; k < at.positions + at.extra; ++k) {
    std::fill_n(saved + at.key + k * at.memory_step, 2 * at.features, scalar{0});
  }
}

/// Puts the learned key and value in front of a sample's own.
template <class Tile>
void set_learned_key(const Tile& tile, const attention_layout& at, std::ptrdiff_t sample) {
  if (at.extra != 0) std::copy_n(tile.parameters + at.learned_key, 2 * at.features, tile.saved(sample) + at.key);
}

/// Zeros behind every sample's length.
template <class Arrays>
void clear_beyond(const Arrays& values, std::ptrdiff_t samples, const std::uint32_t* lengths, std::ptrdiff_t positions,
                  std::ptrdiff_t features) {
  for (std::ptrdiff_t b = 0; lengths != nullptr && b < samples; ++b) {
    auto* first = values(b);
    std::fill(first + static_cast<std::ptrdiff_t>(lengths[b]) * features, first + positions * features, 0);
  }
}

/// Queries, keys and values: rows of an input times a matrix are rows of the saved values, one behind the other.
struct projected_rows {
  const std::uint32_t* lengths = nullptr;
  std::ptrdiff_t positions = 0;
  std::ptrdiff_t features = 0;  ///< of a row of the input
  std::ptrdiff_t first = 0;     ///< saved: the first row
  std::ptrdiff_t width = 0;     ///< of a row there
};
/// `turned` is W^T; `bias` may be null.
template <class Tile, class Inputs>
void project(const Tile& tile, const projected_rows& of, const Inputs& x, const typename Tile::scalar* turned,
             const typename Tile::scalar* bias) {
  multiply_positions<Tile, typename Tile::scalar>(tile, of.lengths, of.positions,
                                                  {.depth = of.features,
                                                   .columns = of.width,
                                                   .left = x.first,
                                                   .left_sample = x.step,
                                                   .left_row = of.features,
                                                   .right = turned,
                                                   .bias = bias,
                                                   .out = tile.saved.first + of.first,
                                                   .out_sample = tile.saved.step,
                                                   .out_row = of.width});
}
/// From the projections' gradients, which have taken their place.
template <class Tile, class Gradients>
void project_backward(const Tile& tile, const projected_rows& of, const typename Tile::scalar* weights,
                      const Gradients& dx) {
  multiply_positions<Tile, typename Tile::scalar>(tile, of.lengths, of.positions,
                                                  {.depth = of.width,
                                                   .columns = of.features,
                                                   .left = tile.saved.first + of.first,
                                                   .left_sample = tile.saved.step,
                                                   .left_row = of.width,
                                                   .right = weights,
                                                   .out = dx.first,
                                                   .out_sample = dx.step,
                                                   .out_row = of.features});
  clear_beyond(dx, tile.samples, of.lengths, of.positions, of.features);
}

/// y = C W^T + b, position by position; `turned` is W^T.
template <class Tile>
void project_context(const Tile& tile, const attention_layout& at, const typename Tile::scalar* turned, bool has_bias) {
  multiply_positions<Tile, typename Tile::scalar>(tile, tile.lengths, at.queries,
                                                  {.depth = at.features,
                                                   .columns = at.features,
                                                   .left = tile.saved.first + at.context,
                                                   .left_sample = tile.saved.step,
                                                   .left_row = at.features,
                                                   .right = turned,
                                                   .bias = has_bias ? tile.parameters + at.out_bias : nullptr,
                                                   .out = tile.y.first,
                                                   .out_sample = tile.y.step,
                                                   .out_row = at.features});
}
/// dC = dY W, into the scratch of every sample.
template <class Tile>
void project_context_backward(const Tile& tile, const attention_layout& at) {
  multiply_positions<Tile, typename Tile::scalar>(tile, tile.lengths, at.queries,
                                                  {.depth = at.features,
                                                   .columns = at.features,
                                                   .left = tile.dy.first,
                                                   .left_sample = tile.dy.step,
                                                   .left_row = at.features,
                                                   .right = tile.parameters + at.out_weight,
                                                   .out = tile.scratch.first,
                                                   .out_sample = tile.scratch.step,
                                                   .out_row = at.features});
}

}  // namespace pergrad::inline v0_1::detail
