// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/sums.hpp - weighted sums over samples, materialised gradients and projections
//
// A sum that will be released is one of integers: what a sample adds is rounded to whole steps of the grid by itself
// (privacy/release.hpp). Integers have no order, so any number of blocks adds to one accumulator, which `clear_kernel`
// sets to zero where a logical batch begins.
//
// A sum in floating point has a fixed number of accumulators: the sample at position p of the logical batch belongs to
// accumulator p mod their number, and within an accumulator the samples follow each other. One thread adds up one
// element of one accumulator, so no bit depends on how a logical batch is cut into physical ones. Products of several
// positions need no accumulators: they form the samples' gradients, some at a time, which are added up in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/norms.hpp>
#include <pergrad/cuda/kernels/rows.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// Elements of work on a leaf: none where another leaf is the first use of the same block.
template <class Leaf>
[[nodiscard]] PERGRAD_HD constexpr int work_of(const Leaf& leaf) noexcept {
  return leaf.first != 0 ? leaf.size() : 0;
}
/// What a block of threads works on: elements of one leaf.
struct leaf_share {
  const outer_leaf* outer = nullptr;
  const elementwise_leaf* elementwise = nullptr;
  const row_leaf* rows = nullptr;  ///< of a table: elements are buckets and columns
  norm_method method = norm_method::instantiate;
  int layer = 0;
  int parameters = 0;
  int kept = 0;
  int size = 0;   ///< of the leaf
  int first = 0;  ///< element

  [[nodiscard]] PERGRAD_HD static leaf_share whole(const outer_leaf& leaf, const method_choice& choice) noexcept {
    return {&leaf, nullptr, nullptr, choice.of(leaf), leaf.layer, leaf.parameters, leaf.kept, work_of(leaf)};
  }
  [[nodiscard]] PERGRAD_HD static leaf_share whole(const elementwise_leaf& leaf) noexcept {
    return {nullptr, &leaf, nullptr, norm_method::instantiate, leaf.layer, leaf.parameters, leaf.kept, work_of(leaf)};
  }
  [[nodiscard]] PERGRAD_HD static leaf_share whole(const row_leaf& leaf) noexcept {
    return {nullptr, nullptr, &leaf, norm_method::elementwise, leaf.layer, leaf.parameters, 0, work_of(leaf)};
  }
  /// Number k of all leaves: outer ones, elementwise ones, tables.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static leaf_share number(const table_view<Scalar>& tables, const method_choice& choice,
                                                    int k) noexcept {
    if (k < tables.outer_count) return whole(tables.outer[k], choice);
    k -= tables.outer_count;
    return k < tables.elementwise_count ? whole(tables.elementwise[k])
                                        : whole(tables.rows[k - tables.elementwise_count]);
  }
  /// That of block `number`: all leaves in turn, each in whole blocks. `by_products`: without those that products form.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static leaf_share of(const table_view<Scalar>& tables, const method_choice& choice,
                                                int number, int threads, int by_products = 0) noexcept {
    leaf_share share;
    for (int k = 0; k < tables.outer_count + tables.elementwise_count + tables.row_count; ++k) {
      share = leaf_share::number(tables, choice, k);
      if (by_products != 0 && share.outer != nullptr && is_one_product(*share.outer)) share.size = 0;
      const int blocks = blocks_for(share.size, threads);
      share.first = number * threads;
      if (number < blocks) break;
      number -= blocks;
    }
    return share;
  }

  /// The same where the others have no sum here.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static leaf_share of_elementwise(const table_view<Scalar>& tables, int number,
                                                            int threads) noexcept {
    leaf_share share;
    for (int k = 0; k < tables.elementwise_count; ++k) {
      share = whole(tables.elementwise[k]);
      const int blocks = blocks_for(share.size, threads);
      share.first = number * threads;
      if (number < blocks) break;
      number -= blocks;
    }
    return share;
  }

  /// Element `e` of the leaf's gradient of one sample.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Scalar element(const sample_values<Scalar>& values, const Scalar* of_sample,
                                          int e) const noexcept {
    return outer == nullptr ? read(values, of_sample, e) : of_product(values, of_sample, e);
  }
  /// The same of an outer leaf.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Scalar of_product(const sample_values<Scalar>& values, const Scalar* of_sample,
                                             int e) const noexcept {
    return method == norm_method::instantiate ? of_sample[kept + e] : gradient_element(*outer, values, e);
  }
  /// The same of an elementwise leaf.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Scalar read(const sample_values<Scalar>& values, const Scalar* of_sample,
                                       int e) const noexcept {
    return kept >= 0 ? of_sample[kept + e] : at_one_position<Scalar>{*elementwise, values}(e);
  }
};

/// Sets a sum of integers to zero where a logical batch begins; blocks() of them.
struct clear_kernel {
  static constexpr int threads = 256;
  struct shared_type {};

  const step_state* state = nullptr;
  std::int64_t* sums = nullptr;
  std::int64_t count = 0;

  [[nodiscard]] int blocks() const noexcept { return blocks_for(count, threads); }
  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    if (state->first == 0) return;
    block.each([&](int t) {
      const std::int64_t element = std::int64_t{block.index()} * threads + t;
      if (element < count) sums[element] = 0;
    });
  }
};

/// accumulator <- accumulator + sum of w_b g_b over its samples; from zero where the logical batch begins. Leaf blocks
/// times accumulators of them. `Sum`: Scalar, or std::int64_t: all add to accumulator 0 then, from what is there.
/// `OfElementwise`: of elementwise leaves alone, weighted and not squared.
template <class Scalar, class Target, class Sum, int Threads, bool OfElementwise = false>
struct sum_kernel {
  static constexpr int threads = Threads;
  struct shared_type {};

  static constexpr bool has_order = !std::is_integral_v<Sum>;

  const step_state* state = nullptr;
  table_view<Scalar> tables;
  batch_view<Scalar, Target> samples;
  method_choice method;
  const Scalar* weights = nullptr;  ///< [layer][sample]; nullptr: all are 1
  int layer_stride = 0;             ///< 0: one weight for all layers
  int squares = 0;                  ///< of g_b², element by element
  int accumulators = 0;
  int by_products = 0;  ///< the sums of outer leaves of one use are formed elsewhere
  Scalar to_grid = 1;   ///< of sums of integers: steps of a unit
  Sum* sums = nullptr;  ///< [accumulator][parameter]

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int accumulator = block.index() % accumulators;
    const leaf_share share = share_of(block.index() / accumulators);
    const int place = has_order ? accumulator : 0;
    Sum* out = sums + static_cast<std::size_t>(place) * static_cast<std::size_t>(tables.parameter_count);
    block.each([&](int t) {
      const int e = share.first + t;
      if (e >= share.size) return;
      if constexpr (!OfElementwise) {
        if (share.rows != nullptr) return add_rows(share, accumulator, e, out + share.parameters);
      }
      add(share, accumulator, e, out + share.parameters + e);
    });
  }

 private:
  [[nodiscard]] PERGRAD_HD leaf_share share_of(int number) const noexcept {
    if constexpr (OfElementwise) {
      return leaf_share::of_elementwise(tables, number, Threads);
    } else {
      return leaf_share::of(tables, method, number, Threads, by_products);
    }
  }
  /// The first sample here that belongs to an accumulator.
  [[nodiscard]] PERGRAD_HD int first_of(int accumulator) const noexcept {
    const auto number = static_cast<std::uint64_t>(accumulators);
    return static_cast<int>((static_cast<std::uint64_t>(accumulator) + number - state->position % number) % number);
  }
  [[nodiscard]] PERGRAD_HD Scalar weight_of(int sample, int layer) const noexcept {
    return weights == nullptr ? Scalar{1} : weights[layer * layer_stride + sample];
  }
  PERGRAD_HD void add(const leaf_share& share, int accumulator, int e, Sum* to) const noexcept {
    const auto count = static_cast<int>(state->count);
    Sum sum = !has_order || state->first != 0 ? Sum{0} : *to;
    if (OfElementwise ||
        share.elementwise != nullptr) {  // loads of several samples are under way before the first is added
      constexpr int together = 4;
      for (int first = first_of(accumulator); first < count; first += together * accumulators) {
        Scalar weight[together];
        Scalar value[together];
        PERGRAD_UNROLL
        for (int i = 0; i < together; ++i) {
          const int b = first + i * accumulators;
          weight[i] = b < count ? weight_of(b, share.layer) : Scalar{0};
          value[i] = b < count ? share.read(samples.values(b), samples.kept_of(b), e) : Scalar{0};
        }
        PERGRAD_UNROLL
        for (int i = 0; i < together; ++i) {
          if (weight[i] == 0) continue;  // as below
          const bool is_squared = !OfElementwise && squares != 0;
          add_share(sum, is_squared ? multiply(weight[i], value[i]) : weight[i], value[i], to_grid);
        }
      }
      return finish(sum, to);
    }
    if constexpr (!OfElementwise) add_others(share, accumulator, e, sum, to);
  }
  /// Of outer leaves.
  PERGRAD_HD void add_others(const leaf_share& share, int accumulator, int e, Sum sum, Sum* to) const noexcept {
    const auto count = static_cast<int>(state->count);
    for (int b = first_of(accumulator); b < count; b += accumulators) {
      const Scalar weight = weight_of(b, share.layer);
      if (weight == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
      const sample_values<Scalar> values = samples.values(b);
      if (share.method == norm_method::product && squares == 0) {
        const product_factors<Scalar> at = factors_at(*share.outer, values, e);
        add_share(sum, multiply(weight, at.delta), at.x, to_grid);
        continue;
      }
      const Scalar value = share.of_product(values, samples.kept_of(b), e);
      add_share(sum, squares != 0 ? multiply(weight, value) : weight, value, to_grid);
    }
    finish(sum, to);
  }
  PERGRAD_HD static void finish(Sum sum, Sum* to) noexcept {
    if constexpr (has_order) {
      *to = sum;
    } else {
      add_to(*to, sum);
    }
  }
  /// Of the rows of a bucket, sample after sample.
  PERGRAD_HD void add_rows(const leaf_share& share, int accumulator, int e, Sum* table) const noexcept {
    const auto count = static_cast<int>(state->count);
    const int width = share.rows->width;
    if (has_order && state->first != 0) clear_rows(*share.rows, e, table);
    for (int b = first_of(accumulator); b < count; b += accumulators) {
      const Scalar weight = weight_of(b, share.layer);
      if (weight == 0) continue;
      const table_rows<Scalar> rows{*share.rows, samples.values(b)};
      const auto value_of = [&](Scalar value) { return squares != 0 ? multiply(weight, value) : weight; };
      if constexpr (has_order) {
        rows.for_each_row(e, [&](int id, Scalar value) {
          add_share(table[id * width + e % width], value_of(value), value, to_grid);
        });
      } else {
        rows.for_each_share(e, [&](int id, Scalar value) {
          Sum sum = 0;
          add_share(sum, value_of(value), value, to_grid);
          add_to(table[id * width + e % width], sum);
        });
      }
    }
  }
};

/// What affine_partials leaves of some samples' gradients.
template <class Scalar>
struct partial_gradients {
  const step_state* state = nullptr;
  const Scalar* partials = nullptr;  ///< [sample][chunk][weight]
  int first_sample = 0;
  int most_samples = 0;
  int chunks = 1;
  int size = 0;  ///< weights

  /// Those of them that are there, perhaps less than 0.
  [[nodiscard]] PERGRAD_HD int samples() const noexcept {
    return smaller_of(static_cast<int>(state->count) - first_sample, most_samples);
  }
  /// Element e of the gradient of the b-th of them: its chunks, in order. Norms and sums call this.
  [[nodiscard]] PERGRAD_HD Scalar element(int b, int e) const noexcept {
    const Scalar* const from = partials + std::int64_t{b} * chunks * size + e;
    Scalar sum = *from;
    for (int c = 1; c < chunks; ++c) sum = on_device::add(sum, from[std::int64_t{c} * size]);
    return sum;
  }
};

/// sum += w_b g_b over these samples. Sums in floating point begin with the batch; samples go round some accumulators
/// by their positions in the logical batch, so no bit depends on how it is cut. Integers have no order, and all go to
/// accumulator 0. Several threads share a sum. blocks() of them.
template <class Scalar, class Sum>
struct fold_partials_kernel {
  static constexpr int threads = 256;
  static constexpr bool is_integral = std::is_integral_v<Sum>;
  struct shared_type {
    Sum sums[is_integral ? static_cast<std::size_t>(threads) : std::size_t{1}];
  };

  partial_gradients<Scalar> gradients;
  const Scalar* factors = nullptr;  ///< w_b; nullptr: all are 1
  Scalar to_grid = 1;
  Sum* accumulators = nullptr;  ///< of the layer's first weight
  std::int64_t accumulator_stride = 0;
  int accumulator_count = 1;

  /// Threads that share a sum of `count` accumulators: of integers where these are few, else one an accumulator.
  [[nodiscard]] PERGRAD_HD static constexpr int sharing(int size, int count) noexcept {
    constexpr int most = 8;
    if (!is_integral) return smaller_of(count, most);
    return size <= 1 << 18 ? most : 1;
  }
  [[nodiscard]] PERGRAD_HD int sharing() const noexcept { return sharing(gradients.size, accumulator_count); }
  [[nodiscard]] PERGRAD_HD int elements() const noexcept { return threads / sharing(); }
  [[nodiscard]] int blocks() const noexcept { return blocks_for(gradients.size, elements()); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    const int sharing = this->sharing();
    const int elements = this->elements();
    const bool begins = gradients.state->first != 0 && gradients.first_sample == 0;
    const int samples = gradients.samples();
    // The first sample's accumulator.
    const auto position = gradients.state->position + static_cast<unsigned>(gradients.first_sample);
    const int turn = is_integral ? 0 : static_cast<int>(position % static_cast<unsigned>(sharing));
    block.each([&](int t) {
      const int number = t / elements;
      const int e = block.index() * elements + t % elements;
      if (number >= sharing || e >= gradients.size) return;
      Sum* const own = accumulators + (is_integral ? 0 : number * accumulator_stride) + e;
      Sum sum = is_integral ? (number == 0 ? *own : Sum{0}) : begins ? Sum{0} : *own;
      for (int b = number >= turn ? number - turn : number - turn + sharing; b < samples; b += sharing) {
        const Scalar factor = factors == nullptr ? Scalar{1} : factors[gradients.first_sample + b];
        if (factor == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
        add_share(sum, factor, gradients.element(b, e), to_grid);
      }
      if constexpr (is_integral) {
        shared.sums[t] = sum;
      } else {
        *own = sum;
        for (int i = number + sharing; begins && i < accumulator_count; i += sharing) {
          accumulators[i * accumulator_stride + e] = 0;
        }
      }
    });
    if constexpr (is_integral) {
      block.each([&](int t) {
        const int e = block.index() * elements + t;
        if (t >= elements || e >= gradients.size) return;
        Sum sum = shared.sums[t];
        for (int i = 1; i < sharing; ++i) sum += shared.sums[i * elements + t];
        accumulators[e] = sum;
      });
    }
  }
};

/// Squared norms of these samples' gradients, in parts of `elements`; blocks() of them.
template <class Scalar>
struct square_partials_kernel {
  static constexpr int threads = 256;
  struct shared_type {
    double partial[static_cast<std::size_t>(threads / warp_size)];
  };

  partial_gradients<Scalar> gradients;
  double* squares = nullptr;  ///< sample b's at [b * stride + part]
  std::int64_t stride = 0;

  /// Elements of a block: few where few samples would otherwise be few blocks.
  [[nodiscard]] PERGRAD_HD static constexpr int elements_of(int size) noexcept { return size > 1 << 18 ? 4096 : 512; }
  [[nodiscard]] PERGRAD_HD static constexpr int parts_of(int size) noexcept {
    return blocks_for(size, elements_of(size));
  }
  [[nodiscard]] int blocks() const noexcept { return gradients.most_samples * parts_of(gradients.size); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int parts = parts_of(gradients.size);
    const int elements = elements_of(gradients.size);
    const int b = block.index() / parts;
    const int part = block.index() % parts;
    if (b >= gradients.samples()) return;
    auto& shared = block.template shared<shared_type>();
    typename Block::template local<double> own;
    block.each([&](int t) {
      double sum = 0;
      const int end = smaller_of((part + 1) * elements, gradients.size);
      for (int e = part * elements + t; e < end; e += threads) {
        const auto value = static_cast<double>(gradients.element(b, e));
        sum = fma(value, value, sum);
      }
      own[t] = sum;
    });
    const double total = block.sum(own, shared.partial);
    block.once([&] { squares[(gradients.first_sample + b) * stride + part] = total; });
  }
};

/// rows[r] = w_b g_b for samples b = first_sample + r, in PyTorch's order. Blocks: rows times leaf blocks.
template <class Scalar, class Target, int Threads>
struct row_kernel {
  static constexpr int threads = Threads;
  struct shared_type {};

  table_view<Scalar> tables;
  batch_view<Scalar, Target> samples;
  method_choice method;
  const Scalar* weights = nullptr;  ///< nullptr: all are 1
  int layer_stride = 0;
  int first_sample = 0;
  int leaf_blocks = 0;
  Scalar* rows = nullptr;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int row = block.index() / leaf_blocks;
    const int sample = first_sample + row;
    const leaf_share share = leaf_share::of(tables, method, block.index() % leaf_blocks, Threads);
    const sample_values<Scalar> values = samples.values(sample);
    const Scalar* kept = samples.kept_of(sample);
    Scalar* out = rows + static_cast<std::size_t>(row) * static_cast<std::size_t>(tables.parameter_count);
    block.each([&](int t) {
      const int e = share.first + t;
      if (e >= share.size) return;
      if (share.rows != nullptr) {
        Scalar* table = out + share.parameters;
        const int width = share.rows->width;
        clear_rows(*share.rows, e, table);
        return table_rows<Scalar>{*share.rows, values}.for_each_row(
            e, [&](int id, Scalar value) { table[id * width + e % width] = weighted(sample, share.layer, value); });
      }
      out[share.parameters + e] = weighted(sample, share.layer, share.element(values, kept, e));
    });
  }

 private:
  [[nodiscard]] PERGRAD_HD Scalar weighted(int sample, int layer, Scalar value) const noexcept {
    if (weights == nullptr) return value;
    const Scalar weight = weights[layer * layer_stride + sample];
    return weight == 0 ? Scalar{0} : multiply(weight, value);
  }
};

/// projections[b] = <g_b, direction>, in double. A block a sample.
template <class Scalar, class Target, int Threads>
struct projection_kernel {
  static constexpr int threads = Threads;
  struct shared_type {
    double partial[static_cast<std::size_t>(Threads / warp_size)];
  };

  const step_state* state = nullptr;
  table_view<Scalar> tables;
  batch_view<Scalar, Target> samples;
  method_choice method;
  const Scalar* direction = nullptr;
  double* projections = nullptr;

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int sample = block.index();
    if (static_cast<std::uint32_t>(sample) >= state->count) return;
    auto& shared = block.template shared<shared_type>();
    const sample_values<Scalar> values = samples.values(sample);
    const Scalar* kept = samples.kept_of(sample);
    typename Block::template local<double> sums;
    block.each([&](int t) {
      double sum = 0;
      const auto add = [&](Scalar value, int parameter) {
        sum = fma(static_cast<double>(value), static_cast<double>(direction[parameter]), sum);
      };
      for (int k = 0; k < tables.outer_count + tables.elementwise_count + tables.row_count; ++k) {
        const leaf_share share = leaf_share::number(tables, method, k);
        for (int e = t; e < share.size; e += Threads) {
          if (share.rows == nullptr) {
            add(share.element(values, kept, e), share.parameters + e);
            continue;
          }
          const int width = share.rows->width;
          table_rows<Scalar>{*share.rows, values}.for_each_row(
              e, [&](int id, Scalar value) { add(value, share.parameters + id * width + e % width); });
        }
      }
      sums[t] = sum;
    });
    const double total = block.sum(sums, shared.partial);
    block.once([&] { projections[sample] = total; });
  }
};

}  // namespace pergrad::inline v0_1::on_device
