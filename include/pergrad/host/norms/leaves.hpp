// SPDX-License-Identifier: Apache-2.0
// pergrad/host/norms/leaves.hpp - what can be asked of one factor leaf: its gradient, its norm four ways, and its
// weighted sum
//
// One formula, G_b = sum_t delta_t (x) x_t, and the product kernel; every function here is that formula with other
// loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/norms/dot_block.hpp>
#include <pergrad/host/plan/parts.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// Terms of a dot that are added up in the scalar; the rest is added up in double.
inline constexpr index gram_terms = 128;
/// Adds dots of `width` terms of each of a few vectors with each of a few others, `step` apart, no more than 64 each,
/// to `dots`, whose rows are `stride` apart.
template <class Scalar>
void add_dots(index rows, index columns, index width, index step, const Scalar* a, const Scalar* b, double* dots,
              index stride) noexcept {
  constexpr index side = 64;
  alignas(64) Scalar part[side * side];
  for (index first = 0; first < width; first += gram_terms) {
    product_shape shape{{{}, {}, {rows, step, side}}, {{}, {}, {std::min(gram_terms, width - first), 1, 1}}, columns};
    shape.right_column = step;
    product(shape, a + first, b + first, part, epilogue::store{});
    for (index i = 0; i < rows; ++i) {
      add_widened_to(dots + i * stride, 1.0, Scalar{1}, part + i * side, false, columns);
    }
  }
}

/// What norms ask of deltas that are not kept (host/run/streamed_logits.hpp), for sample 0 of the tile; the next one's
/// lie behind. None if `dots` is null.
template <class Scalar>
struct streamed_deltas {
  const double* dots = nullptr;     ///< <delta_t, delta_s>, [t][s], where s is not in a run of 64 positions behind t's
  const double* squares = nullptr;  ///< ‖delta_t‖²
  const Scalar* at_ids = nullptr;   ///< delta_s at the id of a lookup: [lookup][s]
  index lookups = 0;
};

/// One outer-product leaf of the samples in a worker's workspace.
template <class Scalar>
struct leaf_kernel {
  const outer_leaf& leaf;
  const Scalar* workspace;
  index first = 0;                        ///< the sample of the tile that is counted as 0
  const Scalar* const* inputs = nullptr;  ///< the tile's samples in the batch, if x lies there
  streamed_deltas<Scalar> streamed{};     ///< of a turned block, if its x is not there

  [[nodiscard, gnu::noinline]] const Scalar* x(index sample, index group) const noexcept {
    if (inputs != nullptr) return inputs[first + sample];
    return workspace + leaf.x.offset + (first + sample) * leaf.x.sample + group * leaf.x_group;
  }
  [[nodiscard, gnu::noinline]] const Scalar* delta(index sample, index group) const noexcept {
    return workspace + leaf.delta.offset + (first + sample) * leaf.delta.sample + group * leaf.delta_group;
  }
  [[nodiscard]] index group_size() const noexcept { return leaf.view_width() * leaf.outputs; }

  /// Is the gradient formed in parts?
  [[nodiscard]] constexpr bool in_parts() const noexcept { return parts::pay<Scalar>(leaf); }
  /// Adds the sum over samples of G_b to `out`, or writes it, of deltas that lie `delta_sample` and `step` apart:
  /// blocks of outputs outside, then stretches of positions that stay in the cache while the whole view passes by.
  void form_in_parts(index samples, const Scalar* x_first, const Scalar* delta_first, index delta_sample,
                     const step_axis (&step)[2], const step_axis& plane, Scalar* out, bool onto) const noexcept {
    const index lines = parts::lines<Scalar>(leaf);
    for (index block = 0; block < leaf.outputs; block += panel_block) {
      bool add = onto;
      for (index b = 0; b < samples; ++b) {
        for (index p = 0; p < plane.extent; ++p) {
          for (index i = 0; i < step[0].extent; i += lines) {
            const step_axis part[2] = {{std::min(lines, step[0].extent - i), step[0].x, step[0].delta}, step[1]};
            product_shape shape = leaf.gradient_shape(1, 0, part, step_axis{});
            shape.columns = std::min(panel_block, leaf.outputs - block);
            const Scalar* x_here = x_first + b * leaf.x.sample + p * plane.x + i * step[0].x;
            const Scalar* delta_here = delta_first + b * delta_sample + p * plane.delta + i * step[0].delta + block;
            write_product(shape, x_here, delta_here, out + block, nullptr, add);
            add = true;
          }
        }
      }
    }
  }

  /// G_b into `out`; returns its squared norm. The squares are those of the numbers written.
  double instantiate(index sample, Scalar* out) const noexcept {
    if (leaf.delta_stride != 1) return instantiate_scattered(sample, out);
    if (in_parts()) {
      for (index g = 0; g < leaf.groups; ++g) {
        form_in_parts(1, x(sample, g), delta(sample, g), 0, leaf.step, leaf.step_plane, out + g * group_size(), false);
      }
      return squares(static_cast<const Scalar*>(out), leaf.size());
    }
    double squared = 0;
    for (index g = 0; g < leaf.groups; ++g) {
      epilogue::squares_store<Scalar> squares_of;
      product(leaf.one_sample, x(sample, g), delta(sample, g), out + g * group_size(), squares_of);
      squared += squares_of.sum();
    }
    return squared;
  }

  /// Adds G_b to `out`; returns the squared norm of the sum. `scratch` has room for a gradient.
  double instantiate_onto(index sample, Scalar* out, Scalar* scratch) const noexcept {
    if (leaf.delta_stride != 1) {
      instantiate_scattered(sample, scratch);
      add_to(out, static_cast<const Scalar*>(scratch), leaf.size());
    } else {
      for (index g = 0; g < leaf.groups; ++g) {
        product(leaf.one_sample, x(sample, g), delta(sample, g), out + g * group_size(), epilogue::add{});
      }
    }
    return squares(static_cast<const Scalar*>(out), leaf.size());
  }

  /// Adds G_b to `out`, of deltas that are 1 at the id of their position: x_t is added where row id_t lies.
  void add_by_ids(index sample, Scalar* out) const noexcept {
    const auto* const ids = static_cast<const std::int32_t*>(static_cast<const void*>(delta(sample, 0)));
    const Scalar* const x_first = x(sample, 0);
    for (index k = 0; k < leaf.view[2].extent; ++k, out += leaf.outputs) {
      const Scalar* const from = x_first + k * leaf.view[2].x;
      for (index t = 0; t < leaf.step[1].extent; ++t) out[ids[t]] += from[t * leaf.step[1].x];
    }
  }
  /// Adds the rows of ids begin .. begin + count - 1 of G_b, where they lie as PyTorch orders them.
  void add_rows_by_ids(index sample, Scalar* out, index begin, index count) const noexcept {
    const auto* const ids = static_cast<const std::int32_t*>(static_cast<const void*>(delta(sample, 0)));
    for (index t = 0; t < leaf.step[1].extent; ++t) {
      const index row = ids[t] - begin;
      if (row < 0 || row >= count) continue;
      const Scalar* const from = x(sample, 0) + t * leaf.step[1].x;
      Scalar* const to = out + row * leaf.view[2].extent;
      for (index k = 0; k < leaf.view[2].extent; ++k) to[k] += from[k * leaf.view[2].x];
    }
  }
  /// The same for outputs begin .. begin + columns - 1, which lie `columns` apart in `out`.
  void add_by_ids(index sample, Scalar* out, index begin, index columns) const noexcept {
    const auto* const ids = static_cast<const std::int32_t*>(static_cast<const void*>(delta(sample, 0)));
    for (index t = 0; t < leaf.step[1].extent; ++t) {
      const index column = ids[t] - begin;
      if (column < 0 || column >= columns) continue;
      const Scalar* const from = x(sample, 0) + t * leaf.step[1].x;
      for (index k = 0; k < leaf.view[2].extent; ++k) out[k * columns + column] += from[k * leaf.view[2].x];
    }
  }

  /// ‖G_b‖² without keeping G_b, and what `rounding` says.
  [[nodiscard]] norm_bound direct(index sample) const noexcept {
    norm_bound result = rounding(sample);
    for (index g = 0; g < leaf.groups; ++g) {
      epilogue::squares_only<Scalar> squares_of;
      product(leaf.one_sample, x(sample, g), delta(sample, g), static_cast<Scalar*>(nullptr), squares_of);
      result.squared += squares_of.sum();
    }
    return result;
  }

  /// ‖x‖² ‖delta‖² for one position.
  [[nodiscard]] norm_bound by_product(index sample) const noexcept {
    norm_bound result;
    for (index g = 0; g < leaf.groups; ++g) {
      const double x_squared = view_squares(x(sample, g));
      const double delta_squared = delta_squares(delta(sample, g));
      result.squared += x_squared * delta_squared;
      result.error += lost_squares(x_squared, delta_squared);
      result.slack += squared_lost_products();
      result.spread += spread_of(x_squared);
      result.delta += std::sqrt(delta_squared);
    }
    return result;
  }

  /// sum_{t,s} (x_t · x_s)(delta_t · delta_s), every dot in double, blocks of positions with blocks of positions, and
  /// what `rounding` says. Terms cancel, so the error bound is part of the answer: each dot errs by at most n u |a||b|,
  /// and (sum_t |x_t||delta_t|)² bounds the sum of all magnitudes.
  [[nodiscard]] norm_bound gram(index sample) const noexcept {
    if (leaf.gram_in_blocks) return gram_in_blocks(sample);
    norm_bound result;
    for (index g = 0; g < leaf.groups; ++g) {
      pairwise_sum sum;
      position_sums seen;
      for_each_block(leaf.positions(), sample, g, [&](index t, const position_block& here) {
        for_each_block(t + 1, sample, g, [&](index s, const position_block& there) {
          dot_block<Scalar> x_dots;
          add_view_dots(here.x, there.x, x_dots);
          dot_block<Scalar> delta_dots;
          delta_dots.add(here.delta, there.delta, leaf.outputs, leaf.delta_stride);
          double of_block = 0;
          for (std::size_t i = 0; i < here.count; ++i) {
            for (std::size_t j = 0; j < (s == t ? i : dot_block_side); ++j) {
              of_block += 2 * (x_dots.of(i, j) * delta_dots.of(i, j));
            }
            if (s != t) continue;
            of_block += x_dots.of(i, i) * delta_dots.of(i, i);
            add_position(x_dots.of(i, i), delta_dots.of(i, i), seen);
          }
          sum.add(of_block);
        });
      });
      // What a term meets: the additions in its dots, its product, the others of its block and the other blocks.
      constexpr auto of_block = static_cast<index>(dot_block_side * dot_block_side);
      const auto terms = static_cast<double>(leaf.view_width() + leaf.outputs + 1 + of_block + sum.additions());
      result.squared += squared_of_terms<Scalar>(sum.total(), seen.magnitude);
      result.error += terms * std::numeric_limits<double>::epsilon() * seen.magnitude * seen.magnitude;
      result += rounding_of(seen);
    }
    return result;
  }

  /// The same by the product kernel, for many positions of a block whose x and delta lie side by side. A dot is a
  /// double sum of dots of `gram_terms` terms, each of which is a chain of multiply-adds in the scalar: it errs by at
  /// most γ |a||b|, γ = n u / (1 - n u), by Cauchy and Schwarz whatever the stretches are, and by what the smallest
  /// numbers lose, flushed to zero or not. So a product of two dots errs by (2 γ + γ²) |x_t||x_s||delta_t||delta_s| and
  /// what stands beside it. The squares that bound the errors are in double. Dots that overflow give a norm that is not
  /// finite.
  [[nodiscard, gnu::noinline]] norm_bound gram_in_blocks(index sample) const noexcept {
    constexpr index side = 64;
    alignas(64) double x_dots[side * side];
    alignas(64) double delta_dots[side * side];
    position_sums seen;
    const index positions = leaf.positions();
    for_each_position(leaf, positions, [&](index t, index x_t, index delta_t) {
      const double of_x =
          streamed.dots != nullptr ? streamed.squares[sample * positions + t] : view_squares(x(sample, 0) + x_t);
      add_position(of_x, delta_squares(delta(sample, 0) + delta_t), seen);
    });
    pairwise_sum sum;
    const auto dots_of_runs = [](index rows, index columns, index width, index step, const Scalar* a, const Scalar* b,
                                 double* dots) {
      std::fill_n(dots, rows * side, 0.0);
      add_dots(rows, columns, width, step, a, b, dots, side);
    };
    for_each_run(sample, side, [&](index t, index rows, const Scalar* x_here, const Scalar* delta_here) {
      bool behind = false;  // a pair of runs counts twice, so every other one is left out
      for_each_run(sample, side, [&](index s, index columns, const Scalar* x_there, const Scalar* delta_there) {
        if (behind) return;
        behind = s == t;
        if (streamed.dots != nullptr) {
          for (index i = 0; i < rows; ++i) {
            std::copy_n(streamed.dots + (sample * positions + t + i) * positions + s, columns, x_dots + i * side);
          }
        } else {
          dots_of_runs(rows, columns, leaf.view_width(), along().x, x_here, x_there, x_dots);
        }
        dots_of_runs(rows, columns, leaf.outputs, along().delta, delta_here, delta_there, delta_dots);
        for (index i = 0; i < rows; ++i) {
          double of_row = 0;
          for (index j = 0; j < columns; ++j) {
            of_row = multiply_add(x_dots[i * side + j], delta_dots[i * side + j], of_row);
          }
          sum.add(behind ? of_row : 2 * of_row);
        }
      });
    });
    const auto real = [](auto number) { return static_cast<double>(number); };
    const double chain = real(std::min(gram_terms, std::max(leaf.view_width(), leaf.outputs))) *
                         real(std::numeric_limits<Scalar>::epsilon()) / 2;
    const double gamma = chain / (1 - chain);
    const double in_double = real(side + 2 + sum.additions() + (leaf.view_width() + leaf.outputs) / gram_terms + 2) *
                             std::numeric_limits<double>::epsilon();
    const double least = real(std::numeric_limits<Scalar>::min());
    const double x_lost = real(leaf.view_width()) * least;
    const double delta_lost = real(leaf.outputs) * least;
    const double lost = x_lost * seen.delta * seen.delta + delta_lost * seen.x * seen.x +
                        x_lost * delta_lost * real(leaf.positions()) * real(leaf.positions());
    norm_bound result = rounding_of(seen);
    result.squared += squared_of_terms<Scalar>(sum.total(), seen.magnitude);
    result.error +=
        (2 * gamma + gamma * gamma + in_double) * (1 + 0x1p-20) * seen.magnitude * seen.magnitude + 2 * lost;
    return result;
  }

  /// What rounding adds to one sample's share of a weighted sum over positions: slack = (γ sum_t |x_t||delta_t|)²,
  /// spread and delta; and an infinite norm where that sum may overflow on its way.
  [[nodiscard]] norm_bound rounding(index sample) const noexcept {
    norm_bound result;
    for (index g = 0; g < leaf.groups; ++g) {
      position_sums seen;
      for_each_position(leaf, leaf.positions(), [&](index, index x_t, index delta_t) {
        const Scalar* x_here = x(sample, g) + x_t;
        const Scalar* delta_here = delta(sample, g) + delta_t;
        add_position(view_squares(x_here), delta_squares(delta_here), seen);
      });
      result += rounding_of(seen);
    }
    return result;
  }

  /// Adds sum_b G_b of the samples to `out`: one product, no gradient of a sample is formed.
  void add_sum(index samples, Scalar* out, Scalar* scratch) const noexcept {
    if (leaf.delta_stride != 1) {
      for (index b = 0; b < samples; ++b) {
        instantiate_scattered(b, scratch);
        add_to(out, scratch, leaf.size());
      }
      return;
    }
    if (in_parts()) {
      for (index g = 0; g < leaf.groups; ++g) {
        form_in_parts(samples, x(0, g), delta(0, g), leaf.delta.sample, leaf.step, leaf.step_plane,
                      out + g * group_size(), true);
      }
      return;
    }
    const product_shape shape = leaf.gradient_shape(samples, leaf.delta.sample, leaf.step, leaf.step_plane);
    for (index g = 0; g < leaf.groups; ++g)
      product(shape, x(0, g), delta(0, g), out + g * group_size(), epilogue::add{});
  }

  /// Adds sum_b w_b G_b to `out`. With one position as one product, X^T diag(w) Delta; with several every sample's
  /// gradient is a sum by itself before it is added, because its bound is that of the numbers that are added
  /// (privacy/release.hpp). delta is scaled on its way into `room`, which holds it without gaps, or a whole gradient.
  void add_weighted_sum(index samples, const Scalar* weights, Scalar* out, Scalar* room) const noexcept {
    if (in_parts()) {
      for (index b = 0; b < samples; ++b) {
        if (weights[b] == 0) continue;
        instantiate(b, room);
        add_scaled_to(out, weights[b], static_cast<const Scalar*>(room), leaf.size());
      }
      return;
    }
    const index width = leaf.groups * leaf.outputs;
    const index sample_size = leaf.positions() * width;
    for (index b = 0; b < samples; ++b) {
      Scalar* to = room + b * sample_size;
      for_each_position(leaf, leaf.positions(), [&](index, index, index delta_t) {
        const Scalar* from = delta(b, 0) + delta_t;
        if (weights[b] == 0) {
          std::fill_n(to, width, Scalar{0});  // chosen, not multiplied: a non-finite delta must contribute nothing
        } else {
          // Where this is subnormal, `spread` accounts for its rounding. Dropping it instead would leave what it
          // cancels.
          for_each_vector<Scalar>(width, [&](index n, const auto& lanes) {
            lanes.store(to + n, splat(weights[b]) * lanes.load(from + n));
          });
        }
        to += width;
      });
    }
    step_axis step[2] = {leaf.step[0], leaf.step[1]};
    step_axis plane = leaf.step_plane;
    step[1].delta = width;
    step[0].delta = width * step[1].extent;
    plane.delta = step[0].delta * step[0].extent;
    const bool is_one_product = leaf.positions() == 1;
    const index together = is_one_product ? samples : 1;
    const index columns = is_one_product ? leaf.outputs : panel_block;  // a block of the sum stays in the cache
    product_shape shape = leaf.gradient_shape(together, sample_size, step, plane);
    for (index g = 0; g < leaf.groups; ++g) {
      for (index n = 0; n < leaf.outputs; n += columns) {
        shape.columns = std::min(columns, leaf.outputs - n);
        for (index b = 0; b < samples; b += together) {
          if (!is_one_product && weights[b] == 0) continue;
          product(shape, x(b, g), static_cast<const Scalar*>(room + b * sample_size + g * leaf.outputs + n),
                  out + g * group_size() + n, epilogue::add{});
        }
      }
    }
  }

 private:
  /// Positions of a column lie along the first axis, those of a line along the second.
  [[nodiscard]] const step_axis& along() const noexcept { return leaf.step[leaf.step[1].extent == 1 ? 0 : 1]; }
  /// Calls f(first position, count, x, delta) for runs of at most `most` positions that lie evenly.
  template <class Function>
  void for_each_run(index sample, index most, Function&& f) const noexcept {
    const step_axis& run = along();
    const index lines = &run == &leaf.step[0] ? 1 : leaf.step[0].extent;
    for (index plane = 0; plane < leaf.step_plane.extent; ++plane) {
      for (index i = 0; i < lines; ++i) {
        for (index j = 0; j < run.extent; j += most) {
          f((plane * lines + i) * run.extent + j, std::min(most, run.extent - j),
            x(sample, 0) + plane * leaf.step_plane.x + i * leaf.step[0].x + j * run.x,
            delta(sample, 0) + plane * leaf.step_plane.delta + i * leaf.step[0].delta + j * run.delta);
        }
      }
    }
  }
  /// Squares of doubles below 1e-154 lose bits or vanish, and the other factor may be as large as these are small.
  /// (Squares of floats are exact in double.)
  [[nodiscard]] double lost_squares(double x_squared, double delta_squared) const noexcept {
    if constexpr (std::is_same_v<Scalar, double>) {
      constexpr double least = std::numeric_limits<double>::denorm_min();
      return least * static_cast<double>(leaf.view_width()) * delta_squared +
             least * static_cast<double>(leaf.outputs) * x_squared;
    } else {
      return 0;
    }
  }
  /// Products that are too small for normal numbers are off by half the least one, in each element: those that a norm
  /// forms and a weighted sum does not, or the other way round.
  [[nodiscard]] double squared_lost_products() const noexcept {
    constexpr auto least = static_cast<double>(std::numeric_limits<Scalar>::denorm_min());
    return least * least * static_cast<double>(leaf.view_width() * leaf.outputs);
  }
  struct position_sums {
    double magnitude = 0;  ///< of |x_t||delta_t|
    double x = 0;
    double delta = 0;
    double spread = 0;
  };
  void add_position(double x_squared, double delta_squared, position_sums& seen) const noexcept {
    seen.magnitude += std::sqrt(x_squared * delta_squared);
    seen.x += std::sqrt(x_squared);
    seen.delta += std::sqrt(delta_squared);
    seen.spread += spread_of(x_squared);
  }
  [[nodiscard, gnu::noinline]] norm_bound rounding_of(const position_sums& seen) const noexcept {
    const double unit =
        static_cast<double>(leaf.positions() + 2) * static_cast<double>(std::numeric_limits<Scalar>::epsilon());
    const double rounding =
        unit * seen.magnitude + static_cast<double>(leaf.positions()) * std::sqrt(squared_lost_products());
    return {.squared = squared_of_terms<Scalar>(0, seen.magnitude),
            .error = lost_squares(seen.x * seen.x, seen.delta * seen.delta),
            .slack = rounding * rounding,
            .spread = seen.spread,
            .delta = seen.delta};
  }
  [[nodiscard]] double spread_of(double x_squared) const noexcept {
    return std::sqrt(x_squared * static_cast<double>(leaf.outputs));
  }

  /// What a few positions in a row read; where there are fewer, the last one again.
  struct position_block {
    std::size_t count = 0;
    const Scalar* x[dot_block_side]{};
    const Scalar* delta[dot_block_side]{};
  };
  /// Calls f(first position, block) for the blocks that begin before position `end`.
  template <class Function>
  void for_each_block(index end, index sample, index group, Function&& f) const {
    constexpr auto side = static_cast<index>(dot_block_side);
    const index last = std::min(leaf.positions(), (end + side - 1) / side * side);
    position_block block;
    for_each_position(leaf, last, [&](index t, index x_t, index delta_t) {
      for (std::size_t i = block.count++; i < dot_block_side; ++i) {
        block.x[i] = x(sample, group) + x_t;
        block.delta[i] = delta(sample, group) + delta_t;
      }
      if (block.count < dot_block_side && t + 1 < last) return;
      f(t + 1 - static_cast<index>(block.count), static_cast<const position_block&>(block));
      block.count = 0;
    });
  }
  /// Calls f(first element, count, step) for the stretches of what a position sees of x.
  template <class Function>
  void for_each_stretch_of_view(Function&& f) const {
    const view_axis(&view)[3] = leaf.view;
    const bool joined = view[1].x == view[2].extent && view[2].x == 1;
    const index count = joined ? view[1].extent * view[2].extent : view[2].extent;
    for (index k = 0; k < leaf.view_plane.extent * view[0].extent; ++k) {
      const index row = k / view[0].extent * leaf.view_plane.x + k % view[0].extent * view[0].x;
      for (index l = 0; l < (joined ? 1 : view[1].extent); ++l) f(row + l * view[1].x, count, view[2].x);
    }
  }
  /// The dots of what positions see of x.
  void add_view_dots(const Scalar* const* a, const Scalar* const* b, dot_block<Scalar>& dots) const noexcept {
    const Scalar* a_here[dot_block_side]{};
    const Scalar* b_here[dot_block_side]{};
    for_each_stretch_of_view([&](index first_of_view, index count, index step) {
      for (std::size_t i = 0; i < dot_block_side; ++i) {
        a_here[i] = a[i] + first_of_view;
        b_here[i] = b[i] + first_of_view;
      }
      dots.add(a_here, b_here, count, step);
    });
  }
  [[nodiscard, gnu::noinline]] double view_squares(const Scalar* from) const noexcept {
    double sum = 0;
    for_each_stretch_of_view(
        [&](index first_of_view, index count, index step) { sum += squares_of(from + first_of_view, count, step); });
    return sum;
  }
  [[nodiscard]] double delta_squares(const Scalar* from) const noexcept {
    return squares_of(from, leaf.outputs, leaf.delta_stride);
  }
  [[nodiscard]] static double squares_of(const Scalar* from, index count, index step) noexcept {
    return step == 1 ? squares(from, count) : strided_squares(from, count, step);
  }
  [[nodiscard]] static double strided_squares(const Scalar* from, index count, index stride) noexcept {
    double sum = 0;
    for (index i = 0; i < count; ++i) {
      const auto value = static_cast<double>(from[i * stride]);
      sum = multiply_add(value, value, sum);
    }
    return sum;
  }
  /// The formula as it stands, for a general layer whose delta is not contiguous.
  double instantiate_scattered(index sample, Scalar* out) const noexcept {
    std::fill_n(out, leaf.size(), Scalar{0});
    for_each_position(leaf, leaf.positions(), [&](index, index x_t, index delta_t) {
      for (index k = 0; k < leaf.view[2].extent; ++k) {
        const Scalar value = x(sample, 0)[x_t + k * leaf.view[2].x];
        for (index n = 0; n < leaf.outputs; ++n) {
          Scalar& to = out[k * leaf.outputs + n];
          to = multiply_add(value, delta(sample, 0)[delta_t + n * leaf.delta_stride], to);
        }
      }
    });
    return squares(static_cast<const Scalar*>(out), leaf.size());
  }
};

}  // namespace pergrad::inline v0_1::on_host
