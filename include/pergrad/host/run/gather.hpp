// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/gather.hpp - sums of outer products from where they were formed to where the caller wants them
//
// A sum lies in accumulators, one or more arrays that are to be added up in order, each [views][outputs]; a row of it
// is one element of the view with all outputs. PyTorch's order has the outputs outside. So blocks of it are added up
// and turned around, instead of walking along rows whose neighbours lie a whole matrix row apart in the result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/kernels.hpp>
#include <pergrad/host/gemm/transpose.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// Accumulators that hold one sum, what it is multiplied by, and where it goes: written or added. Integers are added.
template <class Scalar>
struct partial_sums {
  std::span<const Scalar* const> accumulators;
  Scalar scale = 1;
  Scalar* out = nullptr;
  std::int64_t* integers = nullptr;  ///< not null: of accumulators of integers, instead of `out`
  bool accumulate = false;

  /// The sum of one element.
  void finish(index parameter, index native) const noexcept {
    if (integers != nullptr) {
      for (const Scalar* accumulator : accumulators) {
        integers[parameter] += reinterpret_cast<const integer_of<Scalar>*>(accumulator)[native];
      }
      return;
    }
    Scalar total = 0;
    for (const Scalar* accumulator : accumulators) total += accumulator[native];
    total *= scale;
    out[parameter] = accumulate ? out[parameter] + total : total;
  }
  /// The sums of `count` elements from `native` on into `totals`.
  [[gnu::noinline]] void add_accumulators(index native, index count, Scalar* totals) const noexcept {
    for_each_vector<Scalar>(count, [&](index i, const auto& part) {
      vector<Scalar> total = splat(Scalar{0});
      for (const Scalar* accumulator : accumulators) total = total + part.load(accumulator + native + i);
      part.store(totals + i, total * splat(scale));
    });
  }
};

/// Adds an accumulator's sums to the total and leaves zeros, for the next one in the same buffer.
template <class Scalar>
[[gnu::noinline]] void move_onto(Scalar* total, Scalar* accumulator, index count) noexcept {
  for_each_vector<Scalar>(count, [&](index i, const auto& part) {
    part.store(total + i, part.load(total + i) + part.load(accumulator + i));
    part.store(accumulator + i, splat(Scalar{0}));
  });
}
/// The same for accumulators of integers.
template <class Integer>
[[gnu::noinline]] void move_integers_onto(Integer* total, Integer* accumulator, index count) noexcept {
  for (index i = 0; i < count; ++i) {
    total[i] += accumulator[i];
    accumulator[i] = 0;
  }
}

/// Rows [first_row, last_row) of a leaf.
template <class Scalar>
inline void gather_rows(const outer_leaf& leaf, index first_row, index last_row,
                        const partial_sums<Scalar>& sum) noexcept {
  if (sum.integers != nullptr) {
    for_each_parameter(leaf, first_row, last_row, [&](index p, index n) { sum.finish(p, n); });
    return;
  }
  constexpr index most_rows = 32;
  constexpr index most_outputs = 64;
  Scalar totals[most_rows * most_outputs];
  for (index row = first_row; row < last_row;) {
    // Rows whose parameters lie equally far apart.
    const index parameter = parameter_of_row(leaf, row);
    const index step = row + 1 < last_row ? parameter_of_row(leaf, row + 1) - parameter : 1;
    index rows = 1;
    while (rows < most_rows && row + rows < last_row && parameter_of_row(leaf, row + rows) == parameter + rows * step) {
      ++rows;
    }
    for (index n = 0; n < leaf.outputs; n += most_outputs) {
      const index outputs = std::min(most_outputs, leaf.outputs - n);
      for (index r = 0; r < rows; ++r) {
        sum.add_accumulators(leaf.native + (row + r) * leaf.outputs + n, outputs, totals + r * most_outputs);
      }
      Scalar* out = sum.out + parameter + n * leaf.parameter_output;
      if (step == 1 && sum.accumulate) {
        transpose_add<Scalar>(totals, most_outputs, rows, outputs, out, leaf.parameter_output);
      } else if (step == 1) {
        transpose<Scalar>(totals, most_outputs, rows, outputs, out, leaf.parameter_output);
      } else {
        for (index k = 0; k < outputs; ++k) {
          copy_strided(static_cast<const Scalar*>(totals + k), most_outputs, out + k * leaf.parameter_output, step,
                       rows, sum.accumulate);
        }
      }
    }
    row += rows;
  }
}

}  // namespace pergrad::inline v0_1::on_host
