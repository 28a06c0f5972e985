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
#include <limits>

#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/math.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::detail {

/// The first `count` of `step` scores, times `scale`, become probabilities; the others zero.
template <class Scalar>
void softmax_row(Scalar* row, std::ptrdiff_t count, std::ptrdiff_t step, Scalar scale) noexcept {
  using vector = on_host::vector<Scalar>;
  constexpr auto lanes = static_cast<std::ptrdiff_t>(on_host::vector_lanes<Scalar>);
  if (count == 0) {
    std::fill(row, row + step, Scalar{0});
    return;
  }
  const std::ptrdiff_t whole = count / lanes * lanes;
  const std::ptrdiff_t padded = (count + lanes - 1) / lanes * lanes;
  std::fill(row + count, row + padded, std::numeric_limits<Scalar>::lowest());
  vector most = on_host::splat(std::numeric_limits<Scalar>::lowest());
  for (std::ptrdiff_t k = 0; k < padded; k += lanes) {
    const vector scores = on_host::load(row + k);
    most = most < scores ? scores : most;
  }
  const Scalar largest = on_host::largest_of<Scalar>(most);
  vector sums{};
  for (std::ptrdiff_t k = 0; k < padded; k += lanes) {
    const vector power =
        on_host::in_packs<Scalar>((on_host::load(row + k) - on_host::splat(largest)) * on_host::splat(scale),
                                  [](auto exponent) { return math::exp_or_zero(exponent); });
    on_host::store(row + k, power);
    if (k < whole) sums += power;
  }
  Scalar sum = on_host::sum_of<Scalar>(sums);
  for (std::ptrdiff_t k = whole; k < count; ++k) sum += row[k];
  const vector share = on_host::splat(Scalar{1} / sum);
  for (std::ptrdiff_t k = 0; k < padded; k += lanes) on_host::store(row + k, on_host::load(row + k) * share);
  std::fill(row + count, row + step, Scalar{0});
}

/// Draws the mask of `count` probabilities: leaves it in their signs, and them as they are used in `dropped`. `element`
/// numbers the first among all of the layer's.
template <class Tile, class Scalar>
void drop_probabilities(const Tile& tile, std::ptrdiff_t sample, std::ptrdiff_t element, const attention_layout& at,
                        Scalar* probabilities, std::ptrdiff_t count, Scalar* dropped) {
  constexpr std::ptrdiff_t together = 256;
  std::uint32_t bits[together];
  const Scalar shares[2] = {static_cast<Scalar>(at.kept), 0};  // looked up: a branch would be guessed wrongly
  constexpr Scalar signs[2] = {1, -1};
  for (std::ptrdiff_t first = 0; first < count; first += together) {
    const std::ptrdiff_t here = std::min(together, count - first);
    tile.random_bits(sample, static_cast<std::size_t>(element + first), {bits, static_cast<std::size_t>(here)});
    for (std::ptrdiff_t k = 0; k < here; ++k) {
      const Scalar probability = probabilities[first + k];
      const std::size_t drops = bits[k] < at.threshold ? 1 : 0;
      probabilities[first + k] = probability * signs[drops];
      dropped[first + k] = probability * shares[drops];
    }
  }
}

/// Turns the gradient of one row of (dropped) probabilities into that of its scores.
template <class Scalar>
void softmax_row_backward(const Scalar* row, Scalar* gradient, std::ptrdiff_t count, std::ptrdiff_t step,
                          Scalar scale) noexcept {
  using vector = on_host::vector<Scalar>;
  vector sums{};
  on_host::for_each_vector<Scalar>(
      count, [&](std::ptrdiff_t k, const auto& lanes) { sums += lanes.load(row + k) * lanes.load(gradient + k); });
  const Scalar sum = on_host::sum_of<Scalar>(sums);
  on_host::for_each_vector<Scalar>(count, [&](std::ptrdiff_t k, const auto& lanes) {
    lanes.store(gradient + k,
                lanes.load(row + k) * ((lanes.load(gradient + k) - on_host::splat(sum)) * on_host::splat(scale)));
  });
  std::fill(gradient + count, gradient + step, Scalar{0});
}
/// The same behind dropout: first makes |P| of the signed row, the dropped row, and the gradient of P.
template <class Scalar>
void undrop_row(Scalar* row, Scalar* gradient, Scalar* dropped, std::ptrdiff_t count, std::ptrdiff_t step,
                Scalar kept) noexcept {
  using pack = on_host::pack<Scalar>;
  on_host::for_each_pack<Scalar>(count, [&](std::ptrdiff_t k, const auto& lanes) {
    const pack signed_row = lanes.load(row + k);
    const pack share = math::select(signed_row < pack{}, pack{}, math::splat<pack>(kept));
    lanes.store(dropped + k, signed_row * share);
    lanes.store(gradient + k, lanes.load(gradient + k) * share);
    lanes.store(row + k, math::abs(signed_row));
  });
  std::fill(dropped + count, dropped + step, Scalar{0});
}

/// out [rows][out_row] = left times right [depth][right_row].
template <class Tile, class Scalar>
void multiply_matrices(std::ptrdiff_t rows, std::ptrdiff_t depth, std::ptrdiff_t columns, const Scalar* left,
                       std::ptrdiff_t left_row, std::ptrdiff_t left_step, const Scalar* right, std::ptrdiff_t right_row,
                       Scalar* out, std::ptrdiff_t out_row) noexcept {
  Tile::multiply({{{}, {}, {rows, left_row, out_row}}, {{}, {}, {depth, left_step, right_row}}, columns}, left, right,
                 out);
}

/// Rows of `width` values, one a position; from sample to sample they are `step` apart.
template <class Scalar>
struct position_rows {
  Scalar* first;
  std::ptrdiff_t step;
  std::ptrdiff_t width;
};

/// out = left times `right` [left.width][out.width], plus `bias` unless it is null, for every position. Samples of
/// varying length stop at their length; `lengths`: null if all samples have all `positions`.
template <class Tile>
void multiply_positions(const Tile& tile, const std::uint32_t* lengths, std::ptrdiff_t positions,
                        position_rows<const typename Tile::scalar> left, const typename Tile::scalar* right,
                        const typename Tile::scalar* bias, position_rows<typename Tile::scalar> out) {
  const std::ptrdiff_t groups = lengths == nullptr ? 1 : tile.samples;
  for (std::ptrdiff_t b = 0; b < groups; ++b) {
    const std::ptrdiff_t samples = lengths == nullptr ? tile.samples : 1;
    const std::ptrdiff_t rows = lengths == nullptr ? positions : static_cast<std::ptrdiff_t>(lengths[b]);
    const auto multiply = [&](auto product, auto... more) {
      product({{{}, {samples, left.step, out.step}, {rows, left.width, out.width}},
               {{}, {}, {left.width, 1, out.width}},
               out.width},
              left.first + b * left.step, right, out.first + b * out.step, more...);
    };
    if (bias != nullptr) {
      multiply(&Tile::multiply_bias, bias);
    } else {
      multiply(&Tile::multiply);
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
  multiply_positions(tile, of.lengths, of.positions, {x.first, x.step, of.features}, turned, bias,
                     {tile.saved.first + of.first, tile.saved.step, of.width});
}
/// From the projections' gradients, which have taken their place.
template <class Tile, class Gradients>
void project_backward(const Tile& tile, const projected_rows& of, const typename Tile::scalar* weights,
                      const Gradients& dx) {
  multiply_positions(tile, of.lengths, of.positions, {tile.saved.first + of.first, tile.saved.step, of.width}, weights,
                     nullptr, {dx.first, dx.step, of.features});
  clear_beyond(dx, tile.samples, of.lengths, of.positions, of.features);
}

/// y = C W^T + b, position by position; `turned` is W^T.
template <class Tile>
void project_context(const Tile& tile, const attention_layout& at, const typename Tile::scalar* turned, bool has_bias) {
  multiply_positions(tile, tile.lengths, at.queries, {tile.saved.first + at.context, tile.saved.step, at.features},
                     turned, has_bias ? tile.parameters + at.out_bias : nullptr,
                     {tile.y.first, tile.y.step, at.features});
}
/// dC = dY W, into the scratch of every sample.
template <class Tile>
void project_context_backward(const Tile& tile, const attention_layout& at) {
  multiply_positions(tile, tile.lengths, at.queries, {tile.dy.first, tile.dy.step, at.features},
                     tile.parameters + at.out_weight, nullptr, {tile.scratch.first, tile.scratch.step, at.features});
}

}  // namespace pergrad::inline v0_1::detail
