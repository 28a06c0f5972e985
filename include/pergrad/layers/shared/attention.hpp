// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/attention.hpp - scaled dot-product attention of several heads, one sample at a time, and its
// gradient
//
// Per head, with queries Q, keys K and values V of width d (Vaswani et al. 2017, arXiv:1706.03762, section 3.2):
//     S = Q K^T / sqrt(d),    P = softmax of each row of S,    Y = P V
// and backwards, with o the product element by element and rowsum(.) one number a row:
//     dP = dY V^T,    dS = P o (dP - rowsum(P o dP)) / sqrt(d),    dQ = dS K,    dK = dS^T Q,    dV = P^T dY
// S and P are never there as a whole: some queries at a time, a *tile*, go through all keys, and backwards their P is
// computed again, with the same bits (as Dao et al. 2022, arXiv:2205.14135, do, where tiles have keys of their own).
// Query i sees the first `seen(i)` keys: all that are there, or up to itself in a causal layer. The learned key and
// value of `kv_bias` come first, so that what a query sees is always a prefix, and every product stops at its end: a
// key that is not seen has probability zero because it is never touched. Dropped probabilities A = P o mask / (1 - p)
// take the place of P in Y and dV, and dP = (dY V^T) o mask / (1 - p). The mask is drawn again as well.
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

/// The heads that a team does: `count` of keys and values from `first` on, with those of queries that share them; and
/// where it has its scratch.
struct attention_part {
  std::ptrdiff_t first;
  std::ptrdiff_t count;
  std::ptrdiff_t scratch;
};
template <class Team>
[[nodiscard]] PERGRAD_HD attention_part part_of(const Team& team, const attention_layout& at) {
  const part_range heads = range_of_part(team, at.part_count());
  return {heads.first, heads.count, heads.first * at.part_scratch_count()};
}
/// copy(column, width) for the columns of a row of projections that a part has, which may be all of them. In
/// self-attention those of its keys and values are not next to its queries.
template <class Copy>
PERGRAD_HD void for_each_column_range(const attention_layout& at, const attention_part& part, const Copy& copy) {
  if (part.count == at.part_count()) return copy(std::ptrdiff_t{0}, at.query_step);
  copy(part.first * at.group * at.width, at.group * at.width);
  copy(at.features + part.first * at.width, at.width);
  copy(at.features + at.memory_width + part.first * at.width, at.width);
}
/// Some columns of so many rows, `step` apart.
template <class Team, class Scalar>
PERGRAD_HD void copy_columns(const Team& team, std::ptrdiff_t rows, std::ptrdiff_t step, std::ptrdiff_t width,
                             const Scalar* from, Scalar* to) {
  if (width == step) return team.copy(rows * step, from, to);
  team.map(rows, width, [&](std::ptrdiff_t r, const auto& here) { here.put(to + r * step, here(from + r * step)); });
}
template <class Team, class Scalar>
PERGRAD_HD void clear_columns(const Team& team, std::ptrdiff_t rows, std::ptrdiff_t step, std::ptrdiff_t width,
                              Scalar* to) {
  if (width == step) return team.fill(rows * step, to, Scalar{0});
  for (std::ptrdiff_t r = 0; r < rows; ++r) team.fill(width, to + r * step, Scalar{0});
}

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

/// Draws for some rows of a tile what the probabilities that `seen` keys have are multiplied by, 0 or 1 / (1 - p):
/// f(element of the tile, factor). `first` numbers the first row's first one among all of the layer's.
template <class Team, class Function>
PERGRAD_HD void draw_factors(const Team& team, const attention_layout& at, std::ptrdiff_t sample, std::ptrdiff_t first,
                             std::ptrdiff_t rows, std::ptrdiff_t seen, const Function& f) {
  using scalar = typename Team::scalar;
  const auto share = static_cast<scalar>(at.kept);
  const std::uint32_t threshold = at.threshold;
  const std::ptrdiff_t step = at.score_step;
  const bool whole = 2 * seen > step;  // rows at once, where little of them is unused
  for (std::ptrdiff_t from = 0; from < rows * step; from += whole ? rows * step : step) {
    team.draw(sample, first + from, whole ? rows * step : seen, [&](std::ptrdiff_t k, std::uint32_t bits) {
      f(from + k, static_cast<scalar>(bits >= threshold) * share);  // multiplied: a branch would be guessed wrongly
    });
  }
}

/// Turns the gradient of one row of (dropped) probabilities into that of its scores.
template <class Team, class Scalar>
PERGRAD_HD void softmax_row_backward(const Team& team, const Scalar* row, Scalar* gradient, std::ptrdiff_t count,
                                     std::ptrdiff_t step, Scalar scale) {
  const Scalar sum = team.sum(count, [&](const auto& at) { return at(row) * at(gradient); });
  team.map(count, [&](const auto& at) { at.put(gradient, at(row) * ((at(gradient) - sum) * scale)); });
  team.fill(step - count, gradient + count, Scalar{0});
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
  if (at.log_of_base != 0) tabulate_rotations(team, at, team.scratch(0) + part_of(team, at).scratch + at.rotations);
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
  const attention_part part = part_of(team, at);
  const std::ptrdiff_t half = at.width / 2, queries = part.count * at.group, heads = queries + part.count;
  const auto column = [&](std::ptrdiff_t head) {  // keys are behind the queries
    return (head < queries ? part.first * at.group + head : at.heads + part.first + head - queries) * at.width;
  };
  team.map(positions * heads, half, [&](std::ptrdiff_t r, const auto& here) {
    const std::ptrdiff_t t = r / heads;
    auto* first = rows + t * at.query_step + column(r % heads);
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
  const auto* cosines = team.scratch(0) + part_of(team, at).scratch + at.rotations;
  rotate_rows(team, at, {cosines, cosines + at.positions * (at.width / 2)}, at.positions, team.saved(sample) + at.query,
              direction);
}

/// What one head of a sample has: rows of queries, keys and values are `query_step` and `memory_step` apart.
template <class Scalar>
struct attention_head {
  Scalar* query;
  Scalar* key;
  Scalar* value;
};
template <class Team>
[[nodiscard]] PERGRAD_HD attention_head<typename Team::scalar> head_of(const Team& team, const attention_layout& at,
                                                                       std::ptrdiff_t sample, std::ptrdiff_t number) {
  auto* const saved = team.saved(sample);
  const std::ptrdiff_t of_memory = number / at.group * at.width;
  return {saved + at.query + number * at.width, saved + at.key + of_memory, saved + at.value + of_memory};
}
/// The probabilities of some queries of a head: the tile of those from `first` on.
template <class Team>
PERGRAD_HD void make_probabilities(const Team& team, const attention_layout& at,
                                   const attention_head<typename Team::scalar>& head,
                                   const matrix_view<typename Team::scalar>& key_columns, std::ptrdiff_t first,
                                   std::ptrdiff_t here, std::ptrdiff_t keys, typename Team::scalar* tile) {
  const std::ptrdiff_t step = at.score_step;
  const auto scale = at.template scale<typename Team::scalar>();
  team.multiply({.rows = {here, at.query_step, step}, .depth = at.width, .columns = at.seen(first + here - 1, keys)},
                head.query + first * at.query_step, key_columns, tile);
  team.for_each_row(here, [&](std::ptrdiff_t i, const auto& row) {
    softmax_row(row, tile + i * step, at.seen(first + i, keys), step, scale);
  });
}

/// From a sample's projections to its context; `queries` and `keys` of them are there. Positions beyond get zeros.
template <class Team>
PERGRAD_HD void attend(const Team& team, const attention_layout& at, std::ptrdiff_t sample, std::ptrdiff_t queries,
                       std::ptrdiff_t keys) {
  using scalar = typename Team::scalar;
  const attention_part part = part_of(team, at);
  scalar* const context = team.saved(sample) + at.context;
  scalar* const scratch = team.scratch(0) + part.scratch;  // the first sample's, which stays in the nearest cache
  scalar* const tile = scratch + at.probabilities;
  scalar* const dropped = scratch + at.dropped;
  const bool drops = at.threshold != 0 && team.is_random();
  const std::ptrdiff_t step = at.score_step;
  const std::ptrdiff_t first_head = part.first * at.group;
  const std::ptrdiff_t behind = first_head + part.count * at.group;
  for (std::ptrdiff_t number = first_head; number < behind; ++number) {
    const auto head = head_of(team, at, sample, number);
    const auto key_columns = team.turned({head.key, at.memory_step}, keys, at.width, scratch + at.turned_keys, step);
    for (std::ptrdiff_t first = 0; first < queries; first += at.together()) {
      const std::ptrdiff_t here = at.at_once(first, queries);
      const std::ptrdiff_t seen = at.seen(first + here - 1, keys);
      make_probabilities(team, at, head, key_columns, first, here, keys, tile);
      if (drops) {
        draw_factors(team, at, sample, (number * at.queries + first) * step, here, seen,
                     [&](std::ptrdiff_t k, scalar factor) { dropped[k] = tile[k] * factor; });
      }
      team.multiply({.rows = {here, step, at.features}, .depth = seen, .columns = at.width}, drops ? dropped : tile,
                    {head.value, at.memory_step}, context + first * at.features + number * at.width);
    }
  }
  clear_columns(team, at.queries - queries, at.features, part.count * at.group * at.width,
                context + queries * at.features + first_head * at.width);
}

/// Replaces a sample's projections by their gradients; that of its context lies in its scratch. Positions beyond those
/// that are there get zeros.
template <class Team>
PERGRAD_HD void attend_backward(const Team& team, const attention_layout& at, std::ptrdiff_t sample,
                                std::ptrdiff_t queries, std::ptrdiff_t keys) {
  using scalar = typename Team::scalar;
  const attention_part part = part_of(team, at);
  scalar* const scratch = team.scratch(0) + part.scratch;
  scalar* const tile = scratch + at.probabilities;
  scalar* const gradients = scratch + at.score_gradients;
  scalar* const dropped = scratch + at.dropped;
  scalar* const key_gradients = scratch + at.memory_gradients;  // of heads that share keys, all together
  const std::ptrdiff_t memory_row = 2 * at.width;
  const bool drops = at.threshold != 0 && team.is_random();
  const scalar scale = at.template scale<scalar>();
  const std::ptrdiff_t step = at.score_step;
  const std::ptrdiff_t behind = (part.first + part.count) * at.group;
  for (std::ptrdiff_t number = part.first * at.group; number < behind; ++number) {
    const auto head = head_of(team, at, sample, number);
    const scalar* const context_gradient = team.scratch(sample) + number * at.width;
    const auto key_columns = team.turned({head.key, at.memory_step}, keys, at.width, scratch + at.turned_keys, step);
    const auto value_columns =
        team.turned({head.value, at.memory_step}, keys, at.width, scratch + at.turned_values, step);
    if (number % at.group == 0) team.fill(keys * memory_row, key_gradients, scalar{0});
    for (std::ptrdiff_t first = 0; first < queries; first += at.together()) {
      const std::ptrdiff_t here = at.at_once(first, queries);
      const std::ptrdiff_t seen = at.seen(first + here - 1, keys);
      scalar* const query = head.query + first * at.query_step;
      const scalar* const dy = context_gradient + first * at.features;
      make_probabilities(team, at, head, key_columns, first, here, keys, tile);
      team.multiply({.rows = {here, at.features, step}, .depth = at.width, .columns = seen}, dy, value_columns,
                    gradients);
      if (drops) {
        draw_factors(team, at, sample, (number * at.queries + first) * step, here, seen,
                     [&](std::ptrdiff_t k, scalar factor) {
                       dropped[k] = tile[k] * factor;
                       gradients[k] *= factor;
                     });
      }
      team.for_each_row(here, [&](std::ptrdiff_t i, const auto& row) {
        softmax_row_backward(row, tile + i * step, gradients + i * step, at.seen(first + i, keys), step, scale);
      });
      const product_sizes of_keys{.rows = {seen, 1, memory_row}, .depth = here, .left = step, .columns = at.width};
      team.multiply_add(of_keys, gradients, {query, at.query_step}, key_gradients);
      team.multiply_add(of_keys, drops ? dropped : tile, {dy, at.features}, key_gradients + at.width);
      team.multiply({.rows = {here, step, at.query_step}, .depth = seen, .columns = at.width}, gradients,
                    {head.key, at.memory_step}, query);
    }
    if ((number + 1) % at.group != 0) continue;
    team.map(keys, at.width, [&](std::ptrdiff_t k, const auto& here) {
      here.put(head.key + k * at.memory_step, here(key_gradients + k * memory_row));
      here.put(head.value + k * at.memory_step, here(key_gradients + k * memory_row + at.width));
    });
  }
  scalar* const saved = team.saved(sample);
  const std::ptrdiff_t width = part.count * at.width;
  for (std::ptrdiff_t i = queries; i < at.queries; ++i) {
    team.fill(width * at.group, saved + at.query + i * at.query_step + part.first * at.group * at.width, scalar{0});
  }
  for (std::ptrdiff_t k = keys; k < at.positions + at.extra; ++k) {
    scalar* const row = saved + k * at.memory_step + part.first * at.width;
    team.fill(width, row + at.key, scalar{0});
    team.fill(width, row + at.value, scalar{0});
  }
}

/// Puts the learned key and value in front of a sample's own.
template <class Team>
PERGRAD_HD void set_learned_key(const Team& team, const attention_layout& at, std::ptrdiff_t sample) {
  if (at.extra == 0) return;
  const attention_part part = part_of(team, at);
  for (std::ptrdiff_t of_value = 0; of_value < 2; ++of_value) {
    const std::ptrdiff_t column = of_value * at.features + part.first * at.width;
    team.copy(part.count * at.width, team.parameters + at.learned_key + column, team.saved(sample) + at.key + column);
  }
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
