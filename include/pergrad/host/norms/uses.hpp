// SPDX-License-Identifier: Apache-2.0
// pergrad/host/norms/uses.hpp - a matrix that ids look up and that positions are multiplied with: its norm and its
// share of a sum from the factors of all uses, without its gradient
//
// All positions of all uses are one outer-product sum, G = sum_i delta_i (x) x_i: of a product, delta_i and x_i lie on
// the tape; of a lookup, delta_i is 1 at the id and 0 elsewhere, and x_i is the output's gradient. So with ids v
//     ‖G‖² = sum over pairs (x_i . x_j)(delta_i . delta_j),
//     delta_i . delta_j  = [v_i = v_j] of two lookups,  delta_j[v_i] of a lookup and a product,  a dot of two products
// (Li et al. 2021, arXiv:2110.05679, for one use). Lookups cost T² dots of the width and none of the vocabulary.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// The squared norm of one sample's gradient: `add` for every use, and for every pair of uses. Every dot is in double;
/// bounds as those of `leaf_kernel::gram`.
template <class Scalar>
class gram_of_uses {
 public:
  explicit gram_of_uses(index sample) noexcept : sample_{sample} {}

  void add(const leaf_kernel<Scalar>& use) noexcept {
    const outer_leaf& leaf = use.leaf;
    const index positions = leaf.positions();
    ++uses_;
    positions_ += positions;
    widths_ = std::max(widths_, leaf.view_width() + leaf.outputs);
    if (leaf.by_ids) {
      for (index t = 0; t < positions; ++t) magnitude_ += std::sqrt(x_dot(use, t, use, t));
      add_equal_ids(use, use);
      return;
    }
    const norm_bound alone = use.gram(sample_);
    squared_ += alone.squared;
    error_ += alone.error;
    spread_ += alone.spread;
    delta_ += alone.delta;
    // sum_t |x_t||delta_t|, of which the slack is a multiple.
    magnitude_ += std::sqrt(alone.slack) / (static_cast<double>(positions + 2) * unit);
  }
  void add(const leaf_kernel<Scalar>& use, const leaf_kernel<Scalar>& other) noexcept {
    if (use.leaf.by_ids && other.leaf.by_ids) {
      add_equal_ids(use, other);
    } else if (use.leaf.by_ids || other.leaf.by_ids) {
      add_rows(use.leaf.by_ids ? use : other, use.leaf.by_ids ? other : use);
    } else {
      add_products(use, other);
    }
  }

  [[nodiscard]] norm_bound result() const noexcept {
    // What a term meets: the additions in its dots, its product, and all other terms.
    const auto all = static_cast<double>(positions_);
    const double terms = static_cast<double>(widths_ + 1) + all * all;
    const double moved = (all + static_cast<double>(uses_ + 2)) * unit * magnitude_;
    return {.squared = squared_of_terms<Scalar>(squared_, magnitude_),
            .error = error_ + terms * std::numeric_limits<double>::epsilon() * magnitude_ * magnitude_,
            .slack = moved * moved,
            .spread = spread_,
            .delta = delta_};
  }

 private:
  static constexpr auto unit = static_cast<double>(std::numeric_limits<Scalar>::epsilon());

  [[nodiscard]] const std::int32_t* ids(const leaf_kernel<Scalar>& use) const noexcept {
    return static_cast<const std::int32_t*>(static_cast<const void*>(use.delta(sample_, 0)));
  }
  /// One side of the outer products: x, the row of a matrix that an id looks up, or delta. Turned blocks have them in
  /// each other's place.
  struct side {
    const Scalar* first;
    index position;
    index step;
    index width;
    [[nodiscard]] const Scalar* at(index t) const noexcept { return first + t * position; }
  };
  [[nodiscard]] side x_of(const leaf_kernel<Scalar>& use) const noexcept {
    const outer_leaf& leaf = use.leaf;
    if (leaf.turned) return {use.delta(sample_, 0), leaf.step[1].delta, leaf.delta_stride, leaf.outputs};
    return {use.x(sample_, 0), leaf.step[1].x, leaf.view[2].x, leaf.view_width()};
  }
  [[nodiscard]] side delta_of(const leaf_kernel<Scalar>& use) const noexcept {
    const outer_leaf& leaf = use.leaf;
    if (leaf.turned) return {use.x(sample_, 0), leaf.step[1].x, leaf.view[2].x, leaf.view_width()};
    return {use.delta(sample_, 0), leaf.step[1].delta, 1, leaf.outputs};
  }
  [[nodiscard]] double x_dot(const leaf_kernel<Scalar>& a, index t, const leaf_kernel<Scalar>& b,
                             index s) const noexcept {
    const side left = x_of(a);
    const side right = x_of(b);
    if (left.step == 1 && right.step == 1) return dot(left.at(t), right.at(s), left.width);
    double sum = 0;
    for (index k = 0; k < left.width; ++k) {
      sum = multiply_add(static_cast<double>(left.at(t)[k * left.step]),
                         static_cast<double>(right.at(s)[k * right.step]), sum);
    }
    return sum;
  }
  /// Of two lookups, or of one with itself.
  void add_equal_ids(const leaf_kernel<Scalar>& a, const leaf_kernel<Scalar>& b) noexcept {
    const bool same = &a == &b;
    const std::int32_t* const left = ids(a);
    const std::int32_t* const right = ids(b);
    for (index t = 0; t < a.leaf.positions(); ++t) {
      for (index s = 0; s < (same ? t + 1 : b.leaf.positions()); ++s) {
        if (left[t] == right[s]) squared_ += (same && s == t ? 1 : 2) * x_dot(a, t, b, s);
      }
    }
  }
  /// Of a lookup and a product.
  void add_rows(const leaf_kernel<Scalar>& lookup, const leaf_kernel<Scalar>& product) noexcept {
    const std::int32_t* const row = ids(lookup);
    const side delta = delta_of(product);
    const streamed_deltas<Scalar>& streamed = product.streamed;
    const index positions = product.leaf.positions();
    for (index t = 0; t < lookup.leaf.positions(); ++t) {
      for (index s = 0; s < positions; ++s) {
        const auto at_id = static_cast<double>(
            streamed.dots == nullptr
                ? delta.at(s)[row[t]]
                : streamed.at_ids[((sample_ * streamed.lookups) + lookup.leaf.lookups + t) * positions + s]);
        squared_ += 2 * (at_id * x_dot(lookup, t, product, s));
      }
    }
  }
  /// Of two products.
  void add_products(const leaf_kernel<Scalar>& a, const leaf_kernel<Scalar>& b) noexcept {
    const side left = delta_of(a);
    const side right = delta_of(b);
    for (index t = 0; t < a.leaf.positions(); ++t) {
      for (index s = 0; s < b.leaf.positions(); ++s) {
        const double of_deltas = dot(left.at(t), right.at(s), left.width);
        squared_ += 2 * (of_deltas * x_dot(a, t, b, s));
      }
    }
  }

  index sample_;
  index uses_ = 0;
  index positions_ = 0;  ///< of all uses
  index widths_ = 0;
  double squared_ = 0;
  double error_ = 0;
  double spread_ = 0;
  double delta_ = 0;
  double magnitude_ = 0;  ///< of |x||delta|, over all positions
};

/// Calls f(place in the native order, stretch, count) for the stretches of one sample's gradient, a block of outputs
/// after the other: a few hundred kilobytes at a time, in `room`. `for_each_use(g)` calls g(kernel) for all uses.
template <class Scalar, class Uses, class Function>
void for_each_stretch_of_uses(const outer_leaf& leaf, index sample, const Uses& for_each_use, Scalar* room,
                              Function&& f) {
  const index views = leaf.view_width();
  for (index first = 0; first < leaf.outputs; first += panel_block) {
    const index columns = columns_of_block(leaf.outputs, first);
    std::fill_n(room, views * columns, Scalar{0});
    for_each_use([&](const leaf_kernel<Scalar>& use) {
      if (use.leaf.by_ids) {
        use.add_by_ids(sample, room, first, columns);
      } else {
        outer_leaf block = use.leaf;
        block.outputs = columns;
        write_product(block.gradient_shape(1, 0, block.step, block.step_plane), use.x(sample, 0),
                      use.delta(sample, 0) + first, room, nullptr, true);
      }
    });
    for (index k = 0; k < views; ++k) {
      f(leaf.native + k * leaf.outputs + first, static_cast<const Scalar*>(room + k * columns), columns);
    }
  }
}

}  // namespace pergrad::inline v0_1::on_host
