// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/gemm_affine.hpp - the products of an affine layer, for gemm_kernel (gemm.hpp has the formulas)
//
// Samples beyond `state->count` are not touched. Batches z are groups; of `sums` groups times accumulators; of
// `squares` groups times samples; of `partials` groups times chunks times samples. A sample whose weight is zero gives
// exactly nothing, whatever is in its values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/gemm.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// What they have in common.
template <class Scalar>
struct affine_operands {
  geometry map;
  batch_values<Scalar> values;
  const step_state* state = nullptr;
  const Scalar* weights = nullptr;  ///< of the layer, PyTorch's order
  const Scalar* bias = nullptr;     ///< nullptr: none
  int x = 0;                        ///< places
  int y = 0;
  int most_samples = 0;  ///< of a physical batch
  int accumulate = 0;    ///< forward, adjoint: the result is added to what is there
  int tf32 = 0;          ///< round operands to TF32
  int tf32_result = 0;   ///< forward, adjoint: store the result as TF32

  [[nodiscard]] PERGRAD_HD int samples() const noexcept { return static_cast<int>(state->count); }
  [[nodiscard]] PERGRAD_HD Scalar rounded(Scalar value) const noexcept {
    return tf32 != 0 ? round_to_tf32(value) : value;
  }
  [[nodiscard]] PERGRAD_HD Scalar stored(Scalar value) const noexcept {
    return tf32_result != 0 ? round_to_tf32(value) : value;
  }
  /// Of an output of sample b at a position, whose place is `y`.
  [[nodiscard]] PERGRAD_HD Scalar delta(int b, int group, int output, int t) const noexcept {
    return rounded(values.read(b, y)[map.y_offset(group, output, t)]);
  }
  /// Element k of view t of sample b.
  [[nodiscard]] PERGRAD_HD Scalar view(int group, int b, int t, int k) const noexcept {
    const int offset = map.x_offset(group, t, k);
    return offset < 0 ? Scalar{0} : rounded(values.read(b, x)[offset]);
  }
};

/// Rows: outputs; columns: (sample, position); depth: the view.
template <class Scalar>
struct affine_forward {
  static constexpr bool squares = false;
  static constexpr bool left_depth_first = true;
  static constexpr bool right_depth_first = false;
  using sum_type = Scalar;
  affine_operands<Scalar> on;

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.outputs; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.most_samples * on.map.positions.value(); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups; }
  [[nodiscard]] PERGRAD_HD int depth(int /*z*/) const noexcept { return on.map.width.value(); }
  [[nodiscard]] PERGRAD_HD bool wanted(int /*z*/, int column) const noexcept {
    return column < on.samples() * on.map.positions.value();
  }
  [[nodiscard]] PERGRAD_HD Scalar left(int z, int row, int k) const noexcept {
    return on.rounded(on.weights[(z * rows() + row) * on.map.width.value() + k]);
  }
  [[nodiscard]] PERGRAD_HD Scalar right(int z, int k, int column) const noexcept {
    const int t = on.map.positions.divide(column);
    return column < on.samples() ? on.view(z, column, t, k) : Scalar{0};
  }
  [[nodiscard]] PERGRAD_HD Scalar before(int z, int row, int column) const noexcept {
    const int t = on.map.positions.divide(column);
    if (column >= on.samples()) return Scalar{0};
    if (on.accumulate != 0) return on.values.at(column, on.y)[on.map.y_offset(z, row, t)];
    return on.bias == nullptr ? Scalar{0} : on.bias[z * rows() + row];
  }
  PERGRAD_HD void store(int z, int row, int column, Scalar value) const noexcept {
    const int t = on.map.positions.divide(column);
    if (column < on.samples()) on.values.at(column, on.y)[on.map.y_offset(z, row, t)] = on.stored(value);
  }
};

/// Rows: channels; columns: (sample, pixel); depth: (output, tap).
template <class Scalar>
struct affine_adjoint {
  static constexpr bool squares = false;
  static constexpr bool left_depth_first = false;
  static constexpr bool right_depth_first = false;
  using sum_type = Scalar;
  affine_operands<Scalar> on;

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.channels; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.most_samples * on.map.pixels.value(); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups; }
  [[nodiscard]] PERGRAD_HD int depth(int /*z*/) const noexcept { return on.map.view.outputs * on.map.taps.value(); }
  [[nodiscard]] PERGRAD_HD bool wanted(int /*z*/, int column) const noexcept {
    return column < on.samples() * on.map.pixels.value();
  }
  [[nodiscard]] PERGRAD_HD Scalar left(int z, int row, int k) const noexcept {
    const int tap = on.map.taps.divide(k);
    return on.rounded(
        on.weights[(z * on.map.view.outputs + k) * on.map.width.value() + row * on.map.taps.value() + tap]);
  }
  [[nodiscard]] PERGRAD_HD Scalar right(int z, int k, int column) const noexcept {
    const int tap = on.map.taps.divide(k);
    const int pixel = on.map.pixels.divide(column);
    if (column >= on.samples()) return Scalar{0};
    const int offset = on.map.seen_from(z, k, pixel, tap);
    return offset < 0 ? Scalar{0} : on.rounded(on.values.read(column, on.y)[offset]);
  }
  [[nodiscard]] PERGRAD_HD Scalar before(int z, int row, int column) const noexcept {
    const int pixel = on.map.pixels.divide(column);
    if (column >= on.samples()) return Scalar{0};
    if (on.accumulate != 0) return on.values.at(column, on.x)[on.map.pixel_offset(z, row, pixel)];
    return on.bias == nullptr ? Scalar{0} : on.bias[z * rows() + row];
  }
  PERGRAD_HD void store(int z, int row, int column, Scalar value) const noexcept {
    const int pixel = on.map.pixels.divide(column);
    if (column < on.samples()) on.values.at(column, on.x)[on.map.pixel_offset(z, row, pixel)] = on.stored(value);
  }
};

/// Of views with one position. Rows: outputs; columns: the view; depth: samples of the accumulator. A `Sum` of integers
/// adds what each sample adds, rounded to whole steps of the grid.
template <class Scalar, class Sum>
struct affine_sums {
  static constexpr bool squares = false;
  static constexpr bool left_depth_first = false;
  static constexpr bool right_depth_first = false;
  using sum_type = Sum;
  affine_operands<Scalar> on;       ///< `y` is the place of delta
  const Scalar* factors = nullptr;  ///< w_b; nullptr: all are 1
  Scalar to_grid = 1;               ///< of integers: steps of a unit
  Sum* accumulators = nullptr;      ///< of the layer's first weight, in accumulator 0
  std::int64_t accumulator_stride = 0;
  int accumulator_count = 1;

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.outputs; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.map.width.value(); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups * accumulator_count; }
  /// Number of the accumulator's first sample here: positions of the logical batch go round the accumulators.
  [[nodiscard]] PERGRAD_HD int first_sample(int accumulator) const noexcept {
    const int at = static_cast<int>(state().position % static_cast<std::uint64_t>(accumulator_count));
    return accumulator >= at ? accumulator - at : accumulator - at + accumulator_count;
  }
  [[nodiscard]] PERGRAD_HD int depth(int z) const noexcept {
    const int left = on.samples() - first_sample(z % accumulator_count);
    return left <= 0 ? 0 : (left + accumulator_count - 1) / accumulator_count;
  }
  [[nodiscard]] PERGRAD_HD bool wanted(int z, int /*column*/) const noexcept {
    return depth(z) > 0 || state().first != 0;
  }
  [[nodiscard]] PERGRAD_HD Scalar left(int z, int row, int k) const noexcept {
    const int b = first_sample(z % accumulator_count) + k * accumulator_count;
    const Scalar factor = factor_of(b);
    return factor == 0 ? Scalar{0} : multiply(factor, on.delta(b, z / accumulator_count, row, 0));
  }
  [[nodiscard]] PERGRAD_HD Scalar right(int z, int k, int column) const noexcept {
    const int b = first_sample(z % accumulator_count) + k * accumulator_count;
    return factor_of(b) == 0 ? Scalar{0} : on.view(z / accumulator_count, b, 0, column);
  }
  [[nodiscard]] PERGRAD_HD Sum before(int z, int row, int column) const noexcept {
    return state().first != 0 ? Sum{0} : *result(z, row, column);
  }
  PERGRAD_HD void add_term(Sum& sum, Scalar delta, Scalar x) const noexcept {
    if constexpr (std::is_integral_v<Sum>) {
      sum += to_integer(multiply(multiply(delta, x), to_grid));
    } else {
      sum = fma(delta, x, sum);
    }
  }
  PERGRAD_HD void store(int z, int row, int column, Sum value) const noexcept { *result(z, row, column) = value; }

 private:
  [[nodiscard]] PERGRAD_HD const step_state& state() const noexcept { return *on.state; }
  [[nodiscard]] PERGRAD_HD Scalar factor_of(int b) const noexcept {
    return factors == nullptr ? Scalar{1} : factors[b];
  }
  [[nodiscard]] PERGRAD_HD Sum* result(int z, int row, int column) const noexcept {
    return accumulators + z % accumulator_count * accumulator_stride +
           (z / accumulator_count * rows() + row) * columns() + column;
  }
};

/// Of views with several positions: the gradient of each sample, a chunk of its positions at a time. Rows: outputs;
/// columns: the view; depth: positions of a chunk; batches: samples, chunks, groups. Where there is one chunk these are
/// the numbers that affine_squares squares, bit for bit.
template <class Scalar>
struct affine_partials {
  static constexpr bool squares = false;
  static constexpr bool left_depth_first = true;
  static constexpr bool right_depth_first = true;
  using sum_type = Scalar;
  affine_operands<Scalar> on;  ///< `y` is the place of delta; `most_samples` of them
  Scalar* partials = nullptr;  ///< [sample][chunk][weight]
  int first_sample = 0;
  divisor chunks{1};
  int chunk = 1;  ///< positions

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.outputs; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.map.width.value(); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept {
    return on.most_samples * chunks.value() * on.map.view.groups;
  }
  [[nodiscard]] PERGRAD_HD int sample(int z) const noexcept {
    return first_sample + chunks.quotient(on.map.groups.quotient(z));
  }
  [[nodiscard]] PERGRAD_HD int group(int z) const noexcept { return on.map.groups.divide(z); }
  [[nodiscard]] PERGRAD_HD int first_position(int z) const noexcept {
    int number = on.map.groups.quotient(z);
    return chunks.divide(number) * chunk;
  }
  [[nodiscard]] PERGRAD_HD int depth(int z) const noexcept {
    return larger_of(0, smaller_of(chunk, on.map.positions.value() - first_position(z)));
  }
  [[nodiscard]] PERGRAD_HD bool wanted(int z, int /*column*/) const noexcept { return sample(z) < on.samples(); }
  [[nodiscard]] PERGRAD_HD Scalar left(int z, int row, int k) const noexcept {
    return on.delta(sample(z), group(z), row, first_position(z) + k);
  }
  [[nodiscard]] PERGRAD_HD Scalar right(int z, int k, int column) const noexcept {
    return on.view(group(z), sample(z), first_position(z) + k, column);
  }
  [[nodiscard]] PERGRAD_HD Scalar before(int /*z*/, int /*row*/, int /*column*/) const noexcept { return Scalar{0}; }
  PERGRAD_HD void store(int z, int row, int column, Scalar value) const noexcept {
    partials[(std::int64_t{z} * rows() + row) * columns() + column] = value;
  }
};

/// Rows: outputs; columns: the view; depth: positions of one sample. Square number i of group g is that of block i: the
/// sample's squared norm is the sum of all `groups * blocks`, added up by whoever reads them.
template <class Scalar>
struct affine_squares {
  static constexpr bool squares = true;
  static constexpr bool left_depth_first = true;
  static constexpr bool right_depth_first = true;
  using sum_type = Scalar;
  affine_operands<Scalar> on;  ///< `y` is the place of delta
  double* partial = nullptr;   ///< sample b's at [b * partial_stride + g * blocks + block]
  std::int64_t partial_stride = 0;
  int blocks = 1;

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.outputs; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.map.width.value(); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups * on.most_samples; }
  [[nodiscard]] PERGRAD_HD int depth(int /*z*/) const noexcept { return on.map.positions.value(); }
  [[nodiscard]] PERGRAD_HD bool wanted(int z, int /*column*/) const noexcept {
    return on.samples() > on.map.groups.quotient(z);
  }
  [[nodiscard]] PERGRAD_HD Scalar left(int z, int row, int k) const noexcept {
    const int group = on.map.groups.divide(z);
    return on.delta(z, group, row, k);
  }
  [[nodiscard]] PERGRAD_HD Scalar right(int z, int k, int column) const noexcept {
    const int group = on.map.groups.divide(z);
    return on.view(group, z, k, column);
  }
  [[nodiscard]] PERGRAD_HD Scalar before(int /*z*/, int /*row*/, int /*column*/) const noexcept { return Scalar{0}; }
  PERGRAD_HD void store_square(int z, int block, double value) const noexcept {
    const int groups = on.map.view.groups;
    partial[z / groups * partial_stride + z % groups * blocks + block] = value;
  }
};

}  // namespace pergrad::inline v0_1::on_device
