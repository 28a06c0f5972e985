// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/sums.hpp - weighted sums over samples, materialised gradients and projections
//
// A sum has a fixed number of accumulators: the sample at position p of the logical batch belongs to accumulator p mod
// their number, and within an accumulator the samples follow each other. One thread adds up one element of one
// accumulator, so no bit depends on how a logical batch is cut into physical ones. A sum that will be released is one
// of integers: what a sample adds is rounded to whole steps of the grid by itself (privacy/release.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/norms.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// Finds the leaf that a block of threads works on: all leaves in turn, each in whole blocks.
struct leaf_share {
  int outer = -1;  ///< number of the leaf, or -1
  int elementwise = -1;
  int first = 0;  ///< element of the leaf

  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static leaf_share of(const table_view<Scalar>& tables, int number, int threads) noexcept {
    for (int k = 0; k < tables.outer_count; ++k) {
      const int blocks = blocks_for(tables.outer[k].size(), threads);
      if (number < blocks) return {k, -1, number * threads};
      number -= blocks;
    }
    for (int k = 0; k < tables.elementwise_count; ++k) {
      const int blocks = blocks_for(tables.elementwise[k].count, threads);
      if (number < blocks) return {-1, k, number * threads};
      number -= blocks;
    }
    return {};
  }
};

/// Element `e` of a leaf's gradient of one sample.
template <class Scalar>
[[nodiscard]] PERGRAD_HD Scalar kept_or_formed(const outer_leaf& leaf, norm_method method,
                                               const sample_values<Scalar>& values, const Scalar* kept,
                                               int e) noexcept {
  return method == norm_method::instantiate ? kept[leaf.kept + e] : gradient_element(leaf, values, e);
}

/// What a sample adds to a sum: itself, or rounded to steps of the grid.
template <class Scalar>
PERGRAD_HD inline void add_share(Scalar& sum, Scalar factor, Scalar value, Scalar /*to_grid*/) noexcept {
  sum = fma(factor, value, sum);
}
template <class Scalar>
PERGRAD_HD inline void add_share(std::int64_t& sum, Scalar factor, Scalar value, Scalar to_grid) noexcept {
  sum += to_integer(multiply(multiply(factor, value), to_grid));
}

/// accumulator <- accumulator + sum of w_b g_b over its samples; from zero where the logical batch begins. `blocks(leaf
/// blocks)` of them. `Sum`: Scalar, or std::int64_t.
template <class Scalar, class Target, class Sum, int Threads>
struct sum_kernel {
  static constexpr int threads = Threads;
  struct shared_type {};

  const step_state* state = nullptr;
  table_view<Scalar> tables;
  batch_view<Scalar, Target> samples;
  method_choice method;
  const Scalar* weights = nullptr;  ///< [layer][sample]; nullptr: all are 1
  int layer_stride = 0;             ///< 0: one weight for all layers
  int squares = 0;                  ///< of g_b², element by element
  int lanes = 0;
  int first_block = 0;  ///< of those that leaf_share counts: outer leaves come first
  Scalar to_grid = 1;   ///< of sums of integers: steps of a unit
  Sum* sums = nullptr;  ///< [lane][parameter]

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const int lane = block.index() % lanes;
    const leaf_share share = leaf_share::of(tables, first_block + block.index() / lanes, Threads);
    Sum* out = sums + static_cast<std::size_t>(lane) * static_cast<std::size_t>(tables.parameter_count);
    block.each([&](int t) {
      if (share.outer >= 0) {
        const outer_leaf& leaf = tables.outer[share.outer];
        if (share.first + t < leaf.size()) add(leaf, lane, share.first + t, out + leaf.parameters + share.first + t);
      } else {
        const elementwise_leaf& leaf = tables.elementwise[share.elementwise];
        if (share.first + t < leaf.count) add(leaf, lane, share.first + t, out + leaf.parameters + share.first + t);
      }
    });
  }

 private:
  /// The first sample here that belongs to an accumulator.
  [[nodiscard]] PERGRAD_HD int first_of(int lane) const noexcept {
    const auto number = static_cast<std::uint64_t>(lanes);
    return static_cast<int>((static_cast<std::uint64_t>(lane) + number - state->position % number) % number);
  }
  [[nodiscard]] PERGRAD_HD Scalar weight_of(int sample, int layer) const noexcept {
    return weights == nullptr ? Scalar{1} : weights[layer * layer_stride + sample];
  }
  PERGRAD_HD void add(const outer_leaf& leaf, int lane, int e, Sum* to) const noexcept {
    const auto count = static_cast<int>(state->count);
    const norm_method chosen = method.of(leaf);
    Sum sum = state->first != 0 ? Sum{0} : *to;
    for (int b = first_of(lane); b < count; b += lanes) {
      const Scalar weight = weight_of(b, leaf.layer);
      if (weight == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
      const sample_values<Scalar> values = samples.values(b);
      if (chosen == norm_method::product && squares == 0) {
        const product_factors<Scalar> at = factors_at(leaf, values, e);
        add_share(sum, multiply(weight, at.delta), at.x, to_grid);
        continue;
      }
      const Scalar value = kept_or_formed(leaf, chosen, values, samples.kept_of(b), e);
      add_share(sum, squares != 0 ? multiply(weight, value) : weight, value, to_grid);
    }
    *to = sum;
  }
  PERGRAD_HD void add(const elementwise_leaf& leaf, int lane, int i, Sum* to) const noexcept {
    const auto count = static_cast<int>(state->count);
    Sum sum = state->first != 0 ? Sum{0} : *to;
    for (int b = first_of(lane); b < count; b += lanes) {
      const Scalar weight = weight_of(b, leaf.layer);
      if (weight == 0) continue;
      const Scalar value = samples.kept_of(b)[leaf.kept + i];
      add_share(sum, squares != 0 ? multiply(weight, value) : weight, value, to_grid);
    }
    *to = sum;
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
    const leaf_share share = leaf_share::of(tables, block.index() % leaf_blocks, Threads);
    const sample_values<Scalar> values = samples.values(sample);
    const Scalar* kept = samples.kept_of(sample);
    Scalar* out = rows + static_cast<std::size_t>(row) * static_cast<std::size_t>(tables.parameter_count);
    block.each([&](int t) {
      const int e = share.first + t;
      if (share.outer >= 0) {
        const outer_leaf& leaf = tables.outer[share.outer];
        if (e >= leaf.size()) return;
        out[leaf.parameters + e] = weighted(sample, leaf.layer, kept_or_formed(leaf, method.of(leaf), values, kept, e));
      } else {
        const elementwise_leaf& leaf = tables.elementwise[share.elementwise];
        if (e < leaf.count) out[leaf.parameters + e] = weighted(sample, leaf.layer, kept[leaf.kept + e]);
      }
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
      for (int k = 0; k < tables.outer_count; ++k) {
        const outer_leaf& leaf = tables.outer[k];
        const norm_method chosen = method.of(leaf);
        for (int e = t; e < leaf.size(); e += Threads) {
          sum = fma(static_cast<double>(kept_or_formed(leaf, chosen, values, kept, e)),
                    static_cast<double>(direction[leaf.parameters + e]), sum);
        }
      }
      for (int k = 0; k < tables.elementwise_count; ++k) {
        const elementwise_leaf& leaf = tables.elementwise[k];
        for (int i = t; i < leaf.count; i += Threads) {
          sum = fma(static_cast<double>(kept[leaf.kept + i]), static_cast<double>(direction[leaf.parameters + i]), sum);
        }
      }
      sums[t] = sum;
    });
    const double total = block.sum(sums, shared.partial);
    block.once([&] { projections[sample] = total; });
  }
};

}  // namespace pergrad::inline v0_1::on_device
