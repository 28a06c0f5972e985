// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/gemm_affine.hpp - the four products of an affine layer, for gemm_kernel (gemm.hpp has the
// formulas)
//
// Samples beyond `state->count` are not touched. Batches z are groups; of `sums` groups times accumulators; of
// `squares` groups times samples. A sample whose weight is zero gives exactly nothing, whatever is in its values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/gemm.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// What the four have in common.
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

/// Rows: outputs; columns: the view; depth: (sample of the accumulator, position). With DepthFirst = 1 neighbouring
/// threads read neighbouring positions, otherwise neighbouring outputs and elements of the view: for one position. A
/// `Sum` of integers is formed in parts, one a sample, each of which is rounded to whole steps of the grid.
template <class Scalar, class Sum, int DepthFirst>
struct affine_sums {
  static constexpr bool in_parts = std::is_integral_v<Sum>;
  static constexpr bool squares = false;
  static constexpr bool left_depth_first = DepthFirst != 0;
  static constexpr bool right_depth_first = DepthFirst != 0;
  affine_operands<Scalar> on;       ///< `y` is the place of delta
  const Scalar* factors = nullptr;  ///< w_b
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
  [[nodiscard]] PERGRAD_HD int accumulator_samples(int z) const noexcept {
    const int left = on.samples() - first_sample(z % accumulator_count);
    return left <= 0 ? 0 : (left + accumulator_count - 1) / accumulator_count;
  }
  [[nodiscard]] PERGRAD_HD int depth(int z) const noexcept { return accumulator_samples(z) * on.map.positions.value(); }
  [[nodiscard]] PERGRAD_HD int part_depth() const noexcept { return on.map.positions.value(); }
  [[nodiscard]] PERGRAD_HD bool wanted(int z, int /*column*/) const noexcept {
    return depth(z) > 0 || state().first != 0;
  }
  [[nodiscard]] PERGRAD_HD Scalar left(int z, int row, int k) const noexcept {
    const int t = on.map.positions.divide(k);
    const int b = first_sample(z % accumulator_count) + k * accumulator_count;
    const Scalar factor = factors[b];
    if (factor == 0) return Scalar{0};
    const Scalar delta = on.rounded(on.values.read(b, on.y)[on.map.y_offset(z / accumulator_count, row, t)]);
    return multiply(factor, delta);
  }
  [[nodiscard]] PERGRAD_HD Scalar right(int z, int k, int column) const noexcept {
    const int t = on.map.positions.divide(k);
    const int b = first_sample(z % accumulator_count) + k * accumulator_count;
    return factors[b] == 0 ? Scalar{0} : on.view(z / accumulator_count, b, t, column);
  }
  [[nodiscard]] PERGRAD_HD Scalar before(int z, int row, int column) const noexcept {
    if constexpr (in_parts) {
      return 0;
    } else {
      return state().first != 0 ? Scalar{0} : *result(z, row, column);
    }
  }
  PERGRAD_HD void store(int z, int row, int column, Scalar value) const noexcept { *result(z, row, column) = value; }
  PERGRAD_HD void store_part(int z, int row, int column, Scalar value, bool is_first) const noexcept {
    Sum& to = *result(z, row, column);
    to = (is_first && state().first != 0 ? 0 : to) + to_integer(multiply(value, to_grid));
  }

 private:
  [[nodiscard]] PERGRAD_HD const step_state& state() const noexcept { return *on.state; }
  [[nodiscard]] PERGRAD_HD Sum* result(int z, int row, int column) const noexcept {
    return accumulators + z % accumulator_count * accumulator_stride +
           (z / accumulator_count * rows() + row) * columns() + column;
  }
};

/// Rows: outputs; columns: the view; depth: positions of one sample. Square number i of group g is that of block i: the
/// sample's squared norm is the sum of all `groups * blocks`, added up by whoever reads them.
template <class Scalar>
struct affine_squares {
  static constexpr bool squares = true;
  static constexpr bool left_depth_first = true;
  static constexpr bool right_depth_first = true;
  affine_operands<Scalar> on;  ///< `y` is the place of delta
  double* partial = nullptr;   ///< sample b's at [b * partial_stride + g * blocks + block]
  std::int64_t partial_stride = 0;
  int blocks = 1;

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.outputs; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.map.width.value(); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups * on.most_samples; }
  [[nodiscard]] PERGRAD_HD int depth(int /*z*/) const noexcept { return on.map.positions.value(); }
  [[nodiscard]] PERGRAD_HD bool wanted(int z, int /*column*/) const noexcept {
    return on.samples() > z / on.map.view.groups;
  }
  [[nodiscard]] PERGRAD_HD Scalar left(int z, int row, int k) const noexcept {
    const int group = z % on.map.view.groups;
    return on.rounded(on.values.read(z / on.map.view.groups, on.y)[on.map.y_offset(group, row, k)]);
  }
  [[nodiscard]] PERGRAD_HD Scalar right(int z, int k, int column) const noexcept {
    return on.view(z % on.map.view.groups, z / on.map.view.groups, k, column);
  }
  [[nodiscard]] PERGRAD_HD Scalar before(int /*z*/, int /*row*/, int /*column*/) const noexcept { return Scalar{0}; }
  PERGRAD_HD void store_square(int z, int block, double value) const noexcept {
    const int groups = on.map.view.groups;
    partial[z / groups * partial_stride + z % groups * blocks + block] = value;
  }
};

}  // namespace pergrad::inline v0_1::on_device
