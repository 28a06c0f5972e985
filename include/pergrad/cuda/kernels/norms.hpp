// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/norms.hpp - norms of one sample's blocks, four ways, by the threads of a block
//
// What is said of a norm is what the host says of it (host/norms/leaves.hpp): its value in double, and bounds on what
// rounding may add, so that the clip factors' proof (privacy/clip.hpp) holds for the numbers that the sums add up:
//   product      ‖x‖² ‖delta‖² for one position. The sum adds (w delta) x: `spread` bounds what rounding w delta does.
//   gram         <X X^T, Delta Delta^T>, every dot in double: `error`. The sum forms G in another order: `slack`.
//   direct       the squares of the elements of G, formed again, bit for bit, by the sum: exact
//   instantiate  the same, with the elements kept for the sum
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/rows.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/detail/limits.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/privacy/clip.hpp>

namespace pergrad::inline v0_1::on_device {

/// Is the sum of an outer leaf one that products form (gemm_affine.hpp)? Of a layered network; of one use.
[[nodiscard]] PERGRAD_HD constexpr bool is_one_product(const outer_leaf& leaf) noexcept {
  return leaf.first != 0 && leaf.next == 0;
}

/// A method that the user asks for in the place of the plan's, for some nodes.
struct method_choice {
  norm_method method = norm_method::automatic;
  std::uint64_t nodes = ~std::uint64_t{0};
  int on_tensor_cores = 0;  ///< they form the gradients that sums add up
  int by_products = 0;      ///< those sums are formed by products

  /// How the norm of a leaf is found. `instantiate` only for leaves that have room to be kept: else its twin `direct`.
  /// Of one position products weigh deltas, whatever is asked for: what that rounds `product` knows. How tensor cores
  /// round is not published, so that there is no slack for it: of what they form the numbers
  /// themselves are squared, formed by the same instructions.
  [[nodiscard]] PERGRAD_HD constexpr norm_method of(const outer_leaf& leaf) const noexcept {
    if (by_products != 0 && leaf.view.positions() == 1 && is_one_product(leaf)) return norm_method::product;
    const norm_method asked = asked_of(leaf);
    const bool forms_it = on_tensor_cores != 0 && leaf.view.positions() > 1;
    return forms_it && asked == norm_method::gram ? norm_method::direct : asked;
  }
  /// Does a thread form what is added of each element, position after position, where products would add up chunks of
  /// positions? Then their squares are of other numbers.
  [[nodiscard]] PERGRAD_HD constexpr bool adds_without_chunks(const outer_leaf& leaf) const noexcept {
    return by_products == 0 && leaf.chunks > 1;
  }

 private:
  [[nodiscard]] PERGRAD_HD constexpr norm_method asked_of(const outer_leaf& leaf) const noexcept {
    const bool chosen = nodes == ~std::uint64_t{0} || (leaf.node < 64 && (nodes >> leaf.node & 1U) != 0);
    if (method == norm_method::automatic || !chosen) return leaf.method;
    if (method == norm_method::product && leaf.view.positions() != 1) return leaf.method;
    const bool of_one_use = method == norm_method::product || method == norm_method::gram;
    if (of_one_use && leaf.next != 0) return leaf.method;
    return method == norm_method::instantiate && leaf.kept < 0 ? norm_method::direct : method;
  }
};

/// A block that finds the norms of one sample's leaves.
template <class Block, class Scalar, int Threads>
struct norm_worker {
  static constexpr int warps = Threads / warp_size;
  using sums = typename Block::template local<double>;

  const Block& block;
  sample_values<Scalar> values;
  Scalar* kept;  ///< of the sample
  double (&partial)[static_cast<std::size_t>(warps)];

  /// Adds what is known of the leaf's norm to `part`, which all threads may read behind this.
  PERGRAD_HD void add(const outer_leaf& leaf, norm_method method, norm_bound& part) const {
    switch (method) {
      case norm_method::product:
        return by_product(leaf, part);
      case norm_method::gram:
        return by_positions(leaf, part);
      default:
        return by_elements(leaf, method == norm_method::instantiate ? kept + leaf.kept : nullptr, part);
    }
  }
  /// The same where products form what the sum adds: (w delta) x of one position, or else w G. `squares` are the parts
  /// of ‖G‖² that kernels left of the same elements, of any method but product and gram.
  PERGRAD_HD void add_for_products(const outer_leaf& leaf, const method_choice& method, const double* squares,
                                   norm_bound& part) const {
    const norm_method chosen = method.of(leaf);
    if (leaf.next != 0) return by_elements(leaf, nullptr, part);  // the sum forms the same elements
    if (chosen == norm_method::gram) return by_positions(leaf, part);
    if (method.adds_without_chunks(leaf)) return by_elements(leaf, nullptr, part);
    add_little(leaf, chosen, squares, part);
  }
  /// The same of leaves of one use whose method is not gram.
  PERGRAD_HD void add_little(const outer_leaf& leaf, norm_method method, const double* squares,
                             norm_bound& part) const {
    if (method == norm_method::product) return by_product(leaf, part);
    add_stored(squares + leaf.squares, leaf.square_count, part);
  }
  /// Parts of a squared norm that kernels left.
  PERGRAD_HD void add_stored(const double* squares, int count, norm_bound& part) const {
    sums own;
    block.each([&](int t) {
      double sum = 0;
      PERGRAD_ROLLED
      for (int i = t; i < count; i += Threads) sum += squares[i];
      own[t] = sum;
    });
    add_squares(own, part);
  }
  /// Of an elementwise leaf that is not kept.
  PERGRAD_HD void add_read(const elementwise_leaf& leaf, norm_bound& part) const {
    const at_one_position<Scalar> element{leaf, values};
    sums own;
    block.each([&](int t) { own[t] = sum_of_squares(t, leaf.count, [&](int i) { return element(i); }); });
    add_squares(own, part);
  }
  PERGRAD_HD void add(const elementwise_leaf& leaf, Scalar (&scratch)[static_cast<std::size_t>(Threads)],
                      norm_bound& part) const {
    Scalar* to = kept + leaf.kept;
    const int positions = leaf.out[0] * leaf.out[1] * leaf.out[2];
    int parts = 1;
    while (parts < warp_size && 2 * parts * leaf.count <= Threads && 4 * parts <= positions) parts *= 2;
    if (parts > 1) {
      block.each([&](int t) {
        if (t < leaf.count * parts) scratch[t] = gradient_element(leaf, values, t / parts, t % parts, parts);
      });
    }
    sums squares;
    block.each([&](int t) {
      squares[t] = 0;
      for (int i = t; i < leaf.count; i += Threads) {
        Scalar value = 0;
        if (parts == 1) {
          value = gradient_element(leaf, values, i, 0, 1);
        } else {
          PERGRAD_ROLLED
          for (int k = 0; k < parts; ++k) value += scratch[i * parts + k];
        }
        to[i] = value;
        squares[t] = fma(static_cast<double>(value), static_cast<double>(value), squares[t]);
      }
    });
    add_squares(squares, part);
  }

  /// Of tables begin .. end - 1.
  PERGRAD_HD void add_rows(const row_leaf* rows, int begin, int end, int norms, norm_bound* parts) const {
    for (int k = begin; k < end; ++k) {
      if (rows[k].first != 0) add(rows[k], norms, parts[rows[k].layer]);
    }
  }
  /// `norms`: 0 if nobody asks for them but sums need the table's links.
  PERGRAD_HD void add(const row_leaf& leaf, int norms, norm_bound& part) const {
    const table_rows<Scalar> rows{leaf, values};
    block.each([&](int t) {
      PERGRAD_ROLLED
      for (int position = t; position < rows.positions(); position += Threads) rows.link(position);
    });
    if (norms == 0) return;
    sums squares;
    block.each([&](int t) {
      double sum = 0;
      for (int e = t; e < rows.positions() * leaf.width; e += Threads) {
        if (!rows.begins_row(e / leaf.width)) continue;
        const auto value = static_cast<double>(rows.row_element(e / leaf.width, e % leaf.width));
        sum = fma(value, value, sum);
      }
      squares[t] = sum;
    });
    add_squares(squares, part);
  }

 private:
  PERGRAD_HD void add_squares(const sums& own, norm_bound& part) const {
    const double squared = block.sum(own, partial);
    block.once([&] { part.squared += squared; });
  }

  PERGRAD_HD void by_elements(const outer_leaf& leaf, Scalar* to, norm_bound& part) const {
    sums squares;
    block.each([&](int t) {
      double sum = 0;
      for (int e = t; e < leaf.size(); e += Threads) {
        const Scalar value = gradient_element(leaf, values, e);
        if (to != nullptr) to[e] = value;
        sum = fma(static_cast<double>(value), static_cast<double>(value), sum);
      }
      squares[t] = sum;
    });
    add_squares(squares, part);
  }

  /// Of f(t), f(t + Threads), ...; several loads are under way before the first is added. Floats four at a time in
  /// float, so that the product of two such sums is within 2^-21 of the true one.
  template <class Function>
  [[nodiscard]] PERGRAD_HD static double sum_of_squares(int t, int count, Function&& f) noexcept {
    if constexpr (std::is_same_v<Scalar, float>) {
      bool is_zero = true;
      const double sum = sum_of_eights(t, count, f, [&is_zero](const float(&read)[8]) {
        float four[2];
        PERGRAD_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float* const some = read + 4 * half;
          four[half] = fma(some[3], some[3], fma(some[2], some[2], fma(some[1], some[1], multiply(some[0], some[0]))));
        }
        PERGRAD_UNROLL
        for (const float value : read) is_zero = is_zero && value == 0;
        return static_cast<double>(four[0]) + static_cast<double>(four[1]);
      });
      if (is_zero || holds_squares_in_float(sum)) return sum;
    }
    return sum_of_eights(t, count, f, [](const Scalar(&read)[8]) {
      double sum = 0;
      PERGRAD_UNROLL
      for (const Scalar value : read) sum = fma(static_cast<double>(value), static_cast<double>(value), sum);
      return sum;
    });
  }
  template <class Function, class Squares>
  [[nodiscard]] PERGRAD_HD static double sum_of_eights(int t, int count, Function&& f, Squares&& squares) noexcept {
    constexpr int together = 8;
    double sum = 0;
    for (int first = t; first < count; first += together * Threads) {
      Scalar read[together];
      PERGRAD_UNROLL
      for (int i = 0; i < together; ++i) read[i] = first + i * Threads < count ? f(first + i * Threads) : Scalar{0};
      sum += squares(read);
    }
    return sum;
  }
  PERGRAD_HD void by_product(const outer_leaf& leaf, norm_bound& part) const {
    const affine_view& view = leaf.view;
    const bool is_line = view.taps() == 1 && view.padding[0] + view.padding[1] + view.padding[2] == 0;
    for (int group = 0; group < view.groups; ++group) {
      double squared[2] = {0, 0};
      PERGRAD_ROLLED
      for (int factor = 0; factor < 2; ++factor) {  // x, delta: the same code, of which there is little to load
        const Scalar* const from =
            factor == 0 ? values.at(leaf.x) + group * view.x_group : values.at(leaf.delta) + group * view.y_group;
        const int count = factor == 0 ? view.view_width() : view.outputs;
        const int step = factor == 0 ? view.x_channel : view.y_output;
        sums squares;
        block.each([&](int t) {
          if (factor != 0 || is_line) {
            squares[t] = sum_of_squares(t, count, [&](int k) { return from[k * step]; });
            return;
          }
          double sum = 0;
          PERGRAD_ROLLED
          for (int k = t; k < count; k += Threads) {
            const auto x = static_cast<double>(factors_at(leaf, values, group * view.outputs * count + k).x);
            sum = fma(x, x, sum);
          }
          squares[t] = sum;
        });
        const double sum = block.sum(squares, partial);
        squared[0] = factor == 0 ? sum : squared[0];
        squared[1] = sum;
      }
      block.once([&] {
        part.squared += squared[0] * squared[1];
        part.error += lost_squares(view, squared[0], squared[1]);
        part.spread += square_root(squared[0] * view.outputs);
        part.delta += square_root(squared[1]);
      });
    }
  }

  /// sum_{t,s} (x_t · x_s)(delta_t · delta_s). What rounding adds to the sample's share of a sum over positions, in one
  /// chain or in chunks (of n positions in c chunks a term meets n / c + c <= n + 1 additions), is of the diagonal:
  /// slack = (γ sum_t |x_t||delta_t|)².
  PERGRAD_HD void by_positions(const outer_leaf& leaf, norm_bound& part) const {
    const affine_view& view = leaf.view;
    const int positions = view.positions();
    const std::int64_t pairs = std::int64_t{positions} * positions;
    for (int group = 0; group < view.groups; ++group) {
      sums entries;
      sums magnitudes;
      sums x_sums;
      sums delta_sums;
      block.each([&](int thread) {
        double entry_sum = 0;
        double magnitude = 0;
        double x_sum = 0;
        double delta_sum = 0;
        for (std::int64_t pair = thread; pair < pairs; pair += Threads) {
          const int t = static_cast<int>(pair / positions);
          const int s = static_cast<int>(pair % positions);
          if (s > t) continue;
          const double x_product = view_dot(leaf, group, t, s);
          const double delta_product = delta_dot(leaf, group, t, s);
          const double entry = x_product * delta_product;
          entry_sum += s == t ? entry : 2 * entry;
          if (s != t) continue;
          magnitude += square_root(entry);
          if constexpr (has_lost_squares) {
            x_sum += square_root(x_product);
            delta_sum += square_root(delta_product);
          }
        }
        entries[thread] = entry_sum;
        magnitudes[thread] = magnitude;
        x_sums[thread] = x_sum;
        delta_sums[thread] = delta_sum;
      });
      const double squared = block.sum(entries, partial);
      const double magnitude = block.sum(magnitudes, partial);
      const double x_sum = has_lost_squares ? block.sum(x_sums, partial) : 0;
      const double delta_sum = has_lost_squares ? block.sum(delta_sums, partial) : 0;
      block.once([&] {
        // Besides its two dots, a term meets the additions of one thread and of the block.
        const double terms = view.view_width() + view.outputs + static_cast<double>(pairs) / Threads + 16;
        part.squared += squared_of_terms<Scalar>(squared, magnitude);
        part.error += terms * limits::epsilon<double> * magnitude * magnitude;
        // And a product that is too small for a normal number is off by half the least one.
        const double lost = static_cast<double>(limits::least_subnormal<Scalar>) * positions *
                            square_root(static_cast<double>(view.view_width()) * view.outputs);
        const double bound = (positions + 2) * static_cast<double>(limits::epsilon<Scalar>) * magnitude + lost;
        part.slack += bound * bound;
        part.error += lost_squares(view, x_sum * x_sum, delta_sum * delta_sum);
      });
    }
  }

  /// Squares of doubles below 1e-154 lose bits or vanish (squares of floats are exact in double).
  static constexpr bool has_lost_squares = std::is_same_v<Scalar, double>;
  [[nodiscard]] PERGRAD_HD static double lost_squares(const affine_view& view, double x_squared,
                                                      double delta_squared) noexcept {
    if constexpr (has_lost_squares) {
      constexpr double least = limits::least_subnormal<double>;
      return least * view.view_width() * delta_squared + least * view.outputs * x_squared;
    } else {
      return 0;
    }
  }
  [[nodiscard]] PERGRAD_HD double delta_dot(const outer_leaf& leaf, int group, int t, int s) const noexcept {
    const affine_view& view = leaf.view;
    const Scalar* delta = values.at(leaf.delta) + group * view.y_group;
    const Scalar* a = delta + position_in_y(view, t);
    const Scalar* b = delta + position_in_y(view, s);
    double sum = 0;
    for (int n = 0; n < view.outputs; ++n) {
      sum = fma(static_cast<double>(a[n * view.y_output]), static_cast<double>(b[n * view.y_output]), sum);
    }
    return sum;
  }
  /// Of what positions t and s see; taps outside the input are zero.
  [[nodiscard]] PERGRAD_HD double view_dot(const outer_leaf& leaf, int group, int t, int s) const noexcept {
    const affine_view& view = leaf.view;
    const box_index of_t = index_in(view.out, t);
    const box_index of_s = index_in(view.out, s);
    const int at[2][axes] = {{of_t.d, of_t.h, of_t.w}, {of_s.d, of_s.h, of_s.w}};
    span_of_taps taps[axes];
    int apart = 0;
    int start = 0;
    for (int axis = 0; axis < axes; ++axis) {
      const span_of_taps first = taps_of(view, axis, at[0][axis]);
      const span_of_taps second = taps_of(view, axis, at[1][axis]);
      taps[axis] = {larger_of(first.begin, second.begin), smaller_of(first.end, second.end)};
      apart += (at[1][axis] - at[0][axis]) * view.stride[axis] * view.x_step[axis];
      start += (at[0][axis] * view.stride[axis] - view.padding[axis]) * view.x_step[axis];
    }
    const Scalar* x = values.at(leaf.x) + group * view.x_group;
    double sum = 0;
    for (int c = 0; c < view.channels; ++c) {
      for (int kd = taps[0].begin; kd < taps[0].end; ++kd) {
        for (int kh = taps[1].begin; kh < taps[1].end; ++kh) {
          const int row = start + c * view.x_channel + kd * view.dilation[0] * view.x_step[0] +
                          kh * view.dilation[1] * view.x_step[1];
          PERGRAD_ROLLED
          for (int kw = taps[2].begin; kw < taps[2].end; ++kw) {
            const int here = row + kw * view.dilation[2] * view.x_step[2];
            sum = fma(static_cast<double>(x[here]), static_cast<double>(x[here + apart]), sum);
          }
        }
      }
    }
    return sum;
  }
};

/// The gradients of elementwise leaves of a layered network, kept for the sums, and their squares. Threads share an
/// element's positions, and blocks a leaf; how many is a constant of the network. blocks() of them.
template <class Scalar, class Target>
struct elementwise_kernel {
  static constexpr int threads = 256;
  struct shared_type {
    Scalar scratch[static_cast<std::size_t>(threads)];
    double partial[static_cast<std::size_t>(threads / warp_size)];
  };

  const step_state* state = nullptr;
  table_view<Scalar> tables;
  batch_view<Scalar, Target> samples;
  double* squares = nullptr;  ///< sample b's at [b * stride + number of the square]
  int stride = 0;
  int blocks_of_sample = 0;  ///< one a square
  int most_samples = 0;

  /// Threads that share an element: each adds up at least 32 positions.
  [[nodiscard]] PERGRAD_HD static constexpr int sharing(const elementwise_leaf& leaf) noexcept {
    const int positions = leaf.out[0] * leaf.out[1] * leaf.out[2];
    int parts = 1;
    while (parts < threads && 64 * parts <= positions) parts *= 2;
    return parts;
  }
  /// None of a leaf that norms and sums read where it lies.
  [[nodiscard]] static constexpr int blocks_of(const elementwise_leaf& leaf) noexcept {
    return leaf.first == 0 || leaf.kept < 0 ? 0 : blocks_for(leaf.count, threads / sharing(leaf));
  }
  [[nodiscard]] int blocks() const noexcept { return most_samples * blocks_of_sample; }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int sample = block.index() / blocks_of_sample;
    if (static_cast<std::uint32_t>(sample) >= state->count) return;
    // Squares of elementwise leaves are the last ones of a sample.
    const int square = stride - blocks_of_sample + block.index() % blocks_of_sample;
    const elementwise_leaf* found = tables.elementwise;
    while (square < found->squares || square >= found->squares + found->square_count) ++found;
    const elementwise_leaf& leaf = *found;
    auto& shared = block.template shared<shared_type>();
    const sample_values<Scalar> values = samples.values(sample);
    const int parts = sharing(leaf);
    const int elements = threads / parts;
    const int first = (square - leaf.squares) * elements;
    // Threads next to each other read what lies next to each other: elements, or positions of one.
    const bool by_elements = leaf.delta_stride == 1;
    block.each([&](int t) {
      const int i = by_elements ? t % elements : t / parts;
      const int part = by_elements ? t / elements : t % parts;
      shared.scratch[part * elements + i] =
          first + i < leaf.count ? gradient_element(leaf, values, first + i, part, parts) : Scalar{0};
    });
    for (int apart = parts / 2; apart > 0; apart /= 2) {
      block.each([&](int t) {
        if (t < apart * elements) shared.scratch[t] += shared.scratch[t + apart * elements];
      });
    }
    typename Block::template local<double> own;
    Scalar* const to = samples.kept_of(sample) + leaf.kept + first;
    block.each([&](int t) {
      own[t] = 0;
      if (t >= elements || first + t >= leaf.count) return;
      const Scalar value = shared.scratch[t];
      to[t] = value;
      own[t] = multiply(static_cast<double>(value), static_cast<double>(value));
    });
    const double total = block.sum(own, shared.partial);
    block.once([&] { squares[std::int64_t{sample} * stride + square] = total; });
  }
};

/// How a sample's norms become its weights: a plain copy of a rule of expressions/clip.hpp.
struct clip_rule {
  enum class kind_type : int { none, flat, normalise, adaptive, grouped };
  kind_type kind = kind_type::none;
  double bound = 0;
  double stability = 0;
  const double* bounds = nullptr;  ///< grouped: one a group
  const int* group_of = nullptr;   ///< grouped: of each layer
  int groups = 0;
  int unit = 0;  ///< weights count in units of 2^unit
  /// Flat, of individual accounting: the most that each sample may add, in the place of which comes a bound of what it
  /// would add. Null: each may add the bound.
  double* limits = nullptr;

  [[nodiscard]] PERGRAD_HD bool per_layer() const noexcept { return kind == kind_type::grouped; }
};

/// Does individual accounting let a sample through? Tells what it would add.
template <class Scalar>
[[nodiscard]] PERGRAD_HD bool passes(const clip_rule& rule, const norm_bound& whole, std::size_t count,
                                     int sample) noexcept {
  if (rule.limits == nullptr) return true;
  const double most = clipped_norm_bound<Scalar>(whole, count, rule.bound, rule.unit);
  const bool result = most <= rule.limits[sample];
  rule.limits[sample] = most;
  return result;
}

/// The weights of one sample from the norms of its layers, `layer_stride` apart; the formulas are those of
/// privacy/clip.hpp.
template <class Scalar>
PERGRAD_HD void weigh(const clip_rule& rule, const norm_bound* layers, int layer_count, int parameter_count, int sample,
                      Scalar* weights, int layer_stride) noexcept {
  weights += sample;
  const auto count = static_cast<std::size_t>(parameter_count);
  using kind_type = clip_rule::kind_type;
  const bool normalises = rule.kind == kind_type::normalise || rule.kind == kind_type::adaptive;
  norm_bound whole;
  PERGRAD_ROLLED
  for (int layer = 0; layer < layer_count; ++layer) whole = whole + layers[layer];
  const bool finite = !rule.per_layer() || is_finite_norm<Scalar>(norm_upper_bound(whole, count));
  // One loop for all rules: a factor is long.
  PERGRAD_ROLLED
  for (int group = 0; group < larger_of(1, rule.groups); ++group) {
    norm_bound part = whole;
    if (rule.per_layer()) {
      part = {};
      PERGRAD_ROLLED
      for (int layer = 0; layer < layer_count; ++layer) {
        if (rule.group_of[layer] == group) part = part + layers[layer];
      }
    }
    const double bound = rule.per_layer() ? rule.bounds[group] : rule.bound;
    Scalar weight = pergrad::detail::factor_of<Scalar>(part, count, bound, rule.unit, !normalises, [&](double norm) {
      if (rule.kind == kind_type::adaptive) return rule.stability / (norm + rule.stability);
      return normalises ? rule.stability : 0.0;
    });
    if (!finite) weight = 0;
    if (!rule.per_layer()) {
      weights[0] = passes<Scalar>(rule, whole, count, sample) ? weight : Scalar{0};
      return;
    }
    PERGRAD_ROLLED
    for (int layer = 0; layer < layer_count; ++layer) {
      if (rule.group_of[layer] == group) weights[layer * layer_stride] = weight;
    }
  }
}

}  // namespace pergrad::inline v0_1::on_device
