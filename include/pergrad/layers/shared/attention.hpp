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
// Heads may share keys and values, some next to each other one head of these; its gradients are sums over them.
//
// Nothing here is a template of a layer, so all attention layers of a network share one copy of the code.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/simd/math.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1::detail {

/// The first `count` of `step` scores, times `scale`, become probabilities; the others zero.
template <class Team, class Scalar>
PERGRAD_HD void softmax_row(const Team& team, Scalar* row, std::ptrdiff_t count, std::ptrdiff_t step, Scalar scale) {
  if (count > 0) {
    const Scalar largest = team.largest(count, row);
    const Scalar sum = team.sum(count, [&](const auto& at) {
      const auto power = math::exp_or_zero((at(row) - largest) * scale);
      at.put(row, power);
      return power;
    });
    const Scalar share = Scalar{1} / sum;
    team.map(count, [&](const auto& at) { at.put(row, at(row) * share); });
  }
  team.fill(step - count, row + count, Scalar{0});
}

/// Draws the mask of `count` probabilities: leaves it in their signs, and them as they are used in `dropped`. `element`
/// numbers the first among all of the layer's.
template <class Team, class Scalar>
PERGRAD_HD void drop_probabilities(const Team& team, std::ptrdiff_t sample, std::ptrdiff_t element,
                                   const attention_layout& at, Scalar* probabilities, std::ptrdiff_t count,
                                   Scalar* dropped) {
  const auto share = static_cast<Scalar>(at.kept);
  const std::uint32_t threshold = at.threshold;
  team.draw(sample, element, count, [&](std::ptrdiff_t k, std::uint32_t bits) {
    const auto kept = static_cast<Scalar>(bits >= threshold);  // multiplied: a branch would be guessed wrongly
    const Scalar probability = probabilities[k];
    probabilities[k] = probability * (2 * kept - 1);
    dropped[k] = probability * (kept * share);
  });
}

/// Turns the gradient of one row of (dropped) probabilities into that of its scores.
template <class Team, class Scalar>
PERGRAD_HD void softmax_row_backward(const Team& team, const Scalar* row, Scalar* gradient, std::ptrdiff_t count,
                                     std::ptrdiff_t step, Scalar scale) {
  const Scalar sum = team.sum(count, [&](const auto& at) { return at(row) * at(gradient); });
  team.map(count, [&](const auto& at) { at.put(gradient, at(row) * ((at(gradient) - sum) * scale)); });
  team.fill(step - count, gradient + count, Scalar{0});
}
/// The same behind dropout: first makes |P| of the signed row, the dropped row, and the gradient of P.
template <class Team, class Scalar>
PERGRAD_HD void undrop_row(const Team& team, Scalar* row, Scalar* gradient, Scalar* dropped, std::ptrdiff_t count,
                           std::ptrdiff_t step, Scalar kept) {
  team.map(count, [&](const auto& at) {
    const auto signed_row = at(row);
    const auto share = math::select(signed_row < at.zero(), at.zero(), at.zero() + kept);
    at.put(dropped, signed_row * share);
    at.put(gradient, at(gradient) * share);
    at.put(row, math::abs(signed_row));
  });
  team.fill(step - count, dropped + count, Scalar{0});
}

/// How many positions of one of a layer's inputs are there.
template <class Team>
struct lengths_of {
  const Team& team;
  bool second;
  bool vary;
  PERGRAD_HD explicit lengths_of(const Team& of, bool of_second = false)
      : team{of}, second{of_second}, vary{second ? of.lengths2_vary() : of.lengths_vary()} {}
  [[nodiscard]] PERGRAD_HD std::ptrdiff_t operator()(std::ptrdiff_t b) const {
    return second ? team.length2(b) : team.length(b);
  }
};

/// Rows of `width` values, one a position; from sample to sample they are `step` apart.
template <class Scalar>
struct position_rows {
  Scalar* first;
  std::ptrdiff_t step;
  std::ptrdiff_t width;
};

/// out = left times `right` [left.width][out.width], plus `bias` unless it is null, for every position. Samples of
/// varying length stop at their length: `length(b)`, if they have any.
template <class Team>
PERGRAD_HD void multiply_positions(const Team& team, const lengths_of<Team>& lengths, std::ptrdiff_t positions,
                                   position_rows<const typename Team::scalar> left,
                                   const matrix_view<typename Team::scalar>& right, const typename Team::scalar* bias,
                                   position_rows<typename Team::scalar> out) {
  const std::ptrdiff_t groups = lengths.vary ? team.samples : 1;
  for (std::ptrdiff_t b = 0; b < groups; ++b) {
    const std::ptrdiff_t samples = lengths.vary ? 1 : team.samples;
    const std::ptrdiff_t rows = lengths.vary ? lengths(b) : positions;
    const product_sizes sizes{.outer = {samples, left.step, out.step},
                              .rows = {rows, left.width, out.width},
                              .depth = left.width,
                              .columns = out.width};
    if (bias != nullptr) {
      team.multiply_bias(sizes, left.first + b * left.step, right, out.first + b * out.step, bias);
    } else {
      team.multiply(sizes, left.first + b * left.step, right, out.first + b * out.step);
    }
  }
}

/// Rotary positions: cosines of all positions, then sines, [positions][width / 2] each.
template <class Team>
PERGRAD_HD void tabulate_rotations(const Team& team, const attention_layout& at, typename Team::scalar* cosines) {
  using scalar = typename Team::scalar;
  const std::ptrdiff_t half = at.width / 2;
  scalar* sines = cosines + at.positions * half;
  each_rotation(team, at.positions, at.width, {at.log_of_base},
                [&](std::ptrdiff_t t, std::ptrdiff_t k, double sine, double cosine) {
                  cosines[t * half + k] = static_cast<scalar>(cosine);
                  sines[t * half + k] = static_cast<scalar>(sine);
                });
}
/// The table of a tile, in the first sample's scratch.
template <class Team>
PERGRAD_HD void make_rotations(const Team& team, const attention_layout& at) {
  if (at.log_of_base != 0) tabulate_rotations(team, at, team.scratch(0) + at.rotations);
}
/// Rows of such a table, from some position on.
template <class Scalar>
struct rotation_rows {
  const Scalar* cosines;
  const Scalar* sines;
};
/// Turns the queries and keys of `positions` rows of projections, or, by `direction` -1, their gradients back.
template <class Team>
PERGRAD_HD void rotate_rows(const Team& team, const attention_layout& at, rotation_rows<typename Team::scalar> by,
                            std::ptrdiff_t positions, typename Team::scalar* rows, typename Team::scalar direction) {
  const std::ptrdiff_t half = at.width / 2, heads = at.heads + at.heads / at.group;  // keys are behind the queries
  team.map(positions * heads, half, [&](std::ptrdiff_t r, const auto& here) {
    const std::ptrdiff_t t = r / heads;
    auto* first = rows + t * at.query_step + r % heads * at.width;
    const auto cosine = here(by.cosines + t * half), sine = here(by.sines + t * half) * direction;
    const auto x = here(first), y = here(first + half);
    here.put(first, x * cosine - y * sine);
    here.put(first + half, y * cosine + x * sine);
  });
}
/// Those of a sample.
template <class Team>
PERGRAD_HD void rotate(const Team& team, const attention_layout& at, std::ptrdiff_t sample,
                       typename Team::scalar direction) {
  if (at.log_of_base == 0) return;
  const auto* cosines = team.scratch(0) + at.rotations;
  rotate_rows(team, at, {cosines, cosines + at.positions * (at.width / 2)}, at.positions, team.saved(sample) + at.query,
              direction);
}

/// From a sample's projections to its context; `queries` and `keys` of them are there. Positions beyond get zeros.
template <class Team>
PERGRAD_HD void attend(const Team& team, const attention_layout& at, std::ptrdiff_t sample, std::ptrdiff_t queries,
                       std::ptrdiff_t keys) {
  using scalar = typename Team::scalar;
  scalar* const saved = team.saved(sample);
  scalar* const turned = team.scratch(0) + at.turned;  // the first sample's, which stays in the nearest cache
  scalar* const dropped = team.scratch(0) + at.dropped;
  const bool drops = at.threshold != 0 && team.is_random();
  const scalar scale = at.template scale<scalar>();
  const std::ptrdiff_t step = at.score_step;
  for (std::ptrdiff_t head = 0; head < at.heads; ++head) {
    const std::ptrdiff_t column = head * at.width, of_memory = head / at.group * at.width;
    const scalar* query = saved + at.query + column;
    scalar* scores = saved + at.probabilities + head * at.head_scores;
    const auto key_columns = team.turned({saved + at.key + of_memory, at.memory_step}, keys, at.width, turned, step);
    const matrix_view<scalar> value{saved + at.value + of_memory, at.memory_step};
    for (std::ptrdiff_t first = 0; first < queries; first += at.together()) {
      const std::ptrdiff_t here = at.at_once(first, queries);
      const std::ptrdiff_t seen = at.seen(first + here - 1, keys);
      team.multiply({.rows = {here, at.query_step, step}, .depth = at.width, .columns = seen},
                    query + first * at.query_step, key_columns, scores + first * step);
      team.for_each_row(here, [&](std::ptrdiff_t i, const auto& row) {
        softmax_row(row, scores + (first + i) * step, at.seen(first + i, keys), step, scale);
      });
      const std::ptrdiff_t element = head * at.head_scores;
      if (drops && 2 * seen > step) {  // whole rows at once, where little of them is unused
        drop_probabilities(team, sample, element + first * step, at, scores + first * step, here * step,
                           dropped + first * step);
      }
      for (std::ptrdiff_t i = first; drops && 2 * seen <= step && i < first + here; ++i) {
        drop_probabilities(team, sample, element + i * step, at, scores + i * step, seen, dropped + i * step);
      }
      team.multiply({.rows = {here, step, at.features}, .depth = seen, .columns = at.width},
                    (drops ? dropped : scores) + first * step, value,
                    saved + at.context + first * at.features + column);
    }
  }
  team.fill((at.queries - queries) * at.features, saved + at.context + queries * at.features, scalar{0});
}

/// Replaces a sample's projections by their gradients; that of its context lies in its scratch. Positions beyond those
/// that are there get zeros.
template <class Team>
PERGRAD_HD void attend_backward(const Team& team, const attention_layout& at, std::ptrdiff_t sample,
                                std::ptrdiff_t queries, std::ptrdiff_t keys) {
  using scalar = typename Team::scalar;
  scalar* const saved = team.saved(sample);
  const scalar* const context_gradient = team.scratch(sample);
  scalar* const turned = team.scratch(0) + at.turned;
  scalar* const gradients = team.scratch(0) + at.score_gradients;
  scalar* const query_gradients = team.scratch(0) + at.query_gradients;
  scalar* const dropped = team.scratch(0) + at.dropped;
  const bool drops = at.threshold != 0 && team.is_random();
  const scalar scale = at.template scale<scalar>();
  const std::ptrdiff_t step = at.score_step;
  for (std::ptrdiff_t head = 0; head < at.heads; ++head) {
    const std::ptrdiff_t column = head * at.width, of_memory = head / at.group * at.width;
    scalar* query = saved + at.query + column;
    scalar* key = saved + at.key + of_memory;
    scalar* value = saved + at.value + of_memory;
    scalar* scores = saved + at.probabilities + head * at.head_scores;
    const auto value_columns = team.turned({value, at.memory_step}, keys, at.width, turned, step);
    for (std::ptrdiff_t first = 0; first < queries; first += at.together()) {
      const std::ptrdiff_t here = at.at_once(first, queries);
      const std::ptrdiff_t seen = at.seen(first + here - 1, keys);
      team.multiply({.rows = {here, at.features, step}, .depth = at.width, .columns = seen},
                    context_gradient + first * at.features + column, value_columns, gradients + first * step);
      team.for_each_row(here, [&](std::ptrdiff_t r, const auto& row) {
        const std::ptrdiff_t i = first + r;
        if (drops) {
          undrop_row(row, scores + i * step, gradients + i * step, dropped + i * step, seen, step,
                     static_cast<scalar>(at.kept));
        }
        softmax_row_backward(row, scores + i * step, gradients + i * step, at.seen(i, keys), step, scale);
      });
      team.multiply({.rows = {here, step, at.width}, .depth = seen, .columns = at.width}, gradients + first * step,
                    {key, at.memory_step}, query_gradients + first * at.width);
    }
    // Keys and values that several heads read are replaced behind the last of these.
    const bool shared = at.group > 1, adds = head % at.group != 0;
    scalar* key_to = shared ? team.scratch(0) + at.memory_gradients : key;
    scalar* value_to = shared ? key_to + at.width : value;
    const std::ptrdiff_t step_to = shared ? 2 * at.width : at.memory_step;
    const auto multiply = [&](const product_sizes& sizes, const scalar* left, matrix_view<scalar> right, scalar* out) {
      if (adds) {
        team.multiply_add(sizes, left, right, out);
      } else {
        team.multiply(sizes, left, right, out);
      }
    };
    for (std::ptrdiff_t first = 0; first < keys; first += at.together()) {
      const std::ptrdiff_t here = at.at_once(first, keys);
      const std::ptrdiff_t seen_from = at.first_to_see(first);
      const std::ptrdiff_t from = queries < seen_from ? queries : seen_from;
      const product_sizes sizes{.rows = {here, 1, step_to}, .depth = queries - from, .left = step, .columns = at.width};
      multiply(sizes, gradients + from * step + first, {query + from * at.query_step, at.query_step},
               key_to + first * step_to);
      multiply(sizes, (drops ? dropped : scores) + from * step + first,
               {context_gradient + from * at.features + column, at.features}, value_to + first * step_to);
    }
    if (shared && (head + 1) % at.group == 0) {
      team.map(keys, at.width, [&](std::ptrdiff_t k, const auto& here) {
        here.put(key + k * at.memory_step, here(key_to + k * step_to));
        here.put(value + k * at.memory_step, here(value_to + k * step_to));
      });
    }
    team.map(queries, at.width, [&](std::ptrdiff_t i, const auto& here) {
      here.put(query + i * at.query_step, here(query_gradients + i * at.width));
    });
  }
  for (std::ptrdiff_t i = queries; i < at.queries; ++i) {
    team.fill(at.features, saved + at.query + i * at.query_step, scalar{0});
  }
  for (std::ptrdiff_t k = keys; k < at.positions + at.extra; ++k) {
    team.fill(2 * at.memory_width, saved + at.key + k * at.memory_step, scalar{0});
  }
}

/// Puts the learned key and value in front of a sample's own.
template <class Team>
PERGRAD_HD void set_learned_key(const Team& team, const attention_layout& at, std::ptrdiff_t sample) {
  if (at.extra != 0) team.copy(2 * at.features, team.parameters + at.learned_key, team.saved(sample) + at.key);
}

/// Zeros behind every sample's length.
template <class Team, class Arrays>
PERGRAD_HD void clear_beyond(const Team& team, const Arrays& values, const lengths_of<Team>& lengths,
                             std::ptrdiff_t positions, std::ptrdiff_t features) {
  for (std::ptrdiff_t b = 0; lengths.vary && b < team.samples; ++b) {
    const std::ptrdiff_t length = lengths(b);
    team.fill((positions - length) * features, values(b) + length * features, 0);
  }
}

/// Queries, keys and values: rows of an input times a matrix are rows of the saved values, one behind the other.
struct projected_rows {
  bool second = false;  ///< of the second input
  std::ptrdiff_t positions = 0;
  std::ptrdiff_t features = 0;  ///< of a row of the input
  std::ptrdiff_t first = 0;     ///< saved: the first row
  std::ptrdiff_t width = 0;     ///< of a row there
};
/// `turned` is W^T; `bias` may be null.
template <class Team, class Inputs>
PERGRAD_HD void project(const Team& team, const projected_rows& of, const Inputs& x,
                        const matrix_view<typename Team::scalar>& turned, const typename Team::scalar* bias) {
  multiply_positions(team, lengths_of{team, of.second}, of.positions, {x.first, x.step, of.features}, turned, bias,
                     {team.saved.first + of.first, team.saved.step, of.width});
}
/// From the projections' gradients, which have taken their place.
template <class Team, class Gradients>
PERGRAD_HD void project_backward(const Team& team, const projected_rows& of,
                                 const matrix_view<typename Team::scalar>& weights, const Gradients& dx) {
  multiply_positions(team, lengths_of{team, of.second}, of.positions,
                     {team.saved.first + of.first, team.saved.step, of.width}, weights, nullptr,
                     {dx.first, dx.step, of.features});
  clear_beyond(team, dx, lengths_of{team, of.second}, of.positions, of.features);
}

/// y = C W^T + b, position by position; `turned` is W^T.
template <class Team>
PERGRAD_HD void project_context(const Team& team, const attention_layout& at,
                                const matrix_view<typename Team::scalar>& turned, bool has_bias) {
  multiply_positions(team, lengths_of{team}, at.queries, {team.saved.first + at.context, team.saved.step, at.features},
                     turned, has_bias ? team.parameters + at.out_bias : nullptr,
                     {team.y.first, team.y.step, at.features});
}
/// dC = dY W, into the scratch of every sample.
template <class Team>
PERGRAD_HD void project_context_backward(const Team& team, const attention_layout& at) {
  multiply_positions(team, lengths_of{team}, at.queries, {team.dy.first, team.dy.step, at.features},
                     team.matrix(at.out_weight, at.features, at.features), nullptr,
                     {team.scratch.first, team.scratch.step, at.features});
}

}  // namespace pergrad::inline v0_1::detail
