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

/// Where a sample's results of one position or pixel lie, those of neighbouring rows `step` apart.
template <class Scalar>
struct sample_column {
  Scalar* values;      ///< nullptr: there is no such sample
  const Scalar* bias;  ///< of row 0; nullptr: none
  int step;

  [[nodiscard]] PERGRAD_HD Scalar before(int row, int accumulate) const noexcept {
    if (values == nullptr) return Scalar{0};
    if (accumulate != 0) return values[row * step];
    return bias == nullptr ? Scalar{0} : bias[row];
  }
};

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
  [[nodiscard]] PERGRAD_HD Scalar stored(Scalar value) const noexcept {
    return tf32_result != 0 ? round_to_tf32(value) : value;
  }
  [[nodiscard]] PERGRAD_HD sample_column<Scalar> column(int sample, int place, int offset, int step,
                                                        int first_bias) const noexcept {
    return {sample < samples() ? values.at(sample, place) + offset : nullptr,
            bias == nullptr ? nullptr : bias + first_bias, step};
  }
};

// Operands of the products: gemm.hpp says what a line and a step are. Lines beyond the last one read it again: nobody
// asks for their results.

/// Weights of a group. Lines: outputs; steps: the view.
template <class Scalar>
struct weight_rows {
  static constexpr bool depth_first = true;
  using line = int;
  using step = int;
  const Scalar* weights;
  int width;
  int last;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept { return smaller_of(row, last) * width; }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept { return k; }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, step b) const noexcept { return weights[a + b]; }
};
/// The same. Lines: channels; steps: (output, tap).
template <class Scalar>
struct weight_columns {
  static constexpr bool depth_first = false;
  using line = int;
  using step = int;
  const Scalar* weights;
  const geometry& map;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept {
    return smaller_of(row, map.view.channels - 1) * map.taps.value();
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    const int tap = map.taps.divide(k);
    return k * map.width.value() + tap;
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, step b) const noexcept { return weights[a + b]; }
};
/// values[offset], or 0 in the padding; something is read in any case, so that nothing branches.
template <class Scalar>
[[nodiscard]] PERGRAD_HD Scalar read_inside(bool inside, const Scalar* values, int offset) noexcept {
  const Scalar value = values[inside ? offset : 0];
  return inside ? value : Scalar{0};
}

/// Values of x. Lines: (sample, position); steps: the view.
template <class Scalar>
struct views_of_samples {
  static constexpr bool depth_first = false;
  struct line {
    const Scalar* values;
    coordinates at;
  };
  using step = coordinates;
  const affine_operands<Scalar>& on;
  int group;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    int sample = smaller_of(column, on.samples() * on.map.positions.value() - 1);
    const int t = on.map.positions.divide(sample);
    return {on.values.read(sample, on.x), on.map.position(group, t)};
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept { return on.map.tap(k); }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const step& b) const noexcept {
    return read_inside(on.map.inside_x(a.at, b), a.values, a.at.offset + b.offset);
  }
};
/// Values of y. Lines: (sample, pixel); steps: (output, tap).
template <class Scalar>
struct outputs_that_see {
  static constexpr bool depth_first = false;
  using line = typename views_of_samples<Scalar>::line;
  using step = coordinates;
  const affine_operands<Scalar>& on;
  int group;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    int sample = smaller_of(column, on.samples() * on.map.pixels.value() - 1);
    const int i = on.map.pixels.divide(sample);
    return {on.values.read(sample, on.y), on.map.pixel(group, i)};
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    const int tap = on.map.taps.divide(k);
    return on.map.seen_by(k, tap);
  }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const step& b) const noexcept {
    return read_inside(on.map.inside_y(a.at, b), a.values, a.at.offset + b.offset);
  }
};
/// What the pixels of an input have in common whose windows begin at the same place of a stride: their taps. A strided
/// product back takes each of these classes by itself, and multiplies by no tap that sees nothing.
struct stride_class {
  int pixel[axes]{};   ///< the first one along an axis
  int pixels[axes]{};  ///< how many there are
  int whole[axes]{};   ///< window of the first pixel's tap 0
  int tap[axes]{};     ///< the first one
  int apart[axes]{};   ///< the next one
  int taps[axes]{};

  [[nodiscard]] PERGRAD_HD static constexpr int count(const affine_view& view) noexcept {
    return view.stride[0] * view.stride[1] * view.stride[2];
  }
  PERGRAD_HD stride_class(const affine_view& view, int number) noexcept {
    for (int axis = axes; axis-- > 0;) {
      const int stride = view.stride[axis];
      const int rest = number % stride;
      number /= stride;
      pixel[axis] = (rest + stride - view.padding[axis] % stride) % stride;
      pixels[axis] = pixel[axis] < view.in[axis] ? (view.in[axis] - pixel[axis] + stride - 1) / stride : 0;
      whole[axis] = (pixel[axis] + view.padding[axis]) / stride;
      tap[axis] = 0;
      while (tap[axis] < view.kernel[axis] && tap[axis] * view.dilation[axis] % stride != rest) ++tap[axis];
      apart[axis] = 1;
      while (apart[axis] * view.dilation[axis] % stride != 0) ++apart[axis];
      taps[axis] = (view.kernel[axis] - tap[axis] + apart[axis] - 1) / apart[axis];
    }
  }
  /// The most pixels of a class along an axis, and of a class.
  [[nodiscard]] PERGRAD_HD static constexpr int most(const affine_view& view, int axis) noexcept {
    return (view.in[axis] + view.stride[axis] - 1) / view.stride[axis];
  }
  [[nodiscard]] PERGRAD_HD static constexpr int most(const affine_view& view) noexcept {
    return most(view, 0) * most(view, 1) * most(view, 2);
  }
  /// Numbers along the axes of pixel i of most(view); is it there?
  PERGRAD_HD bool place(const affine_view& view, int i, int (&at)[axes]) const noexcept {
    bool is_there = true;
    for (int axis = axes; axis-- > 0;) {
      at[axis] = i % most(view, axis);
      i /= most(view, axis);
      is_there = is_there && at[axis] < pixels[axis];
    }
    return is_there;
  }
  /// Replaces k by its output and gives its tap along the axes. Precondition: there are taps.
  PERGRAD_HD void tap_of(int& k, int (&at)[axes]) const noexcept {
    for (int axis = axes; axis-- > 0;) {
      at[axis] = tap[axis] + k % taps[axis] * apart[axis];
      k /= taps[axis];
    }
  }
};
/// Weights of a group. Lines: channels; steps: (output, tap of a class).
template <class Scalar>
struct weight_columns_of_class {
  static constexpr bool depth_first = false;
  using line = int;
  using step = int;
  const Scalar* weights;
  const geometry& map;
  stride_class taps;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept {
    return smaller_of(row, map.view.channels - 1) * map.taps.value();
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    int at[axes];
    taps.tap_of(k, at);
    return k * map.width.value() + (at[0] * map.view.kernel[1] + at[1]) * map.view.kernel[2] + at[2];
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, step b) const noexcept { return weights[a + b]; }
};
/// Values of y. Lines: (sample, pixel of a class); steps: (output, tap of it).
template <class Scalar>
struct outputs_that_see_class {
  static constexpr bool depth_first = false;
  using line = typename views_of_samples<Scalar>::line;
  using step = coordinates;
  const affine_operands<Scalar>& on;
  int group = 0;
  stride_class pixels;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    const affine_view& view = on.map.view;
    const int most = stride_class::most(view);
    const int number = smaller_of(column, on.samples() * most - 1);
    int at[axes];
    pixels.place(view, number % most, at);
    coordinates to{group * view.y_group, {0, 0, 0}};
    for (int axis = 0; axis < axes; ++axis) {
      to.at[axis] = at[axis] + pixels.whole[axis];
      to.offset += to.at[axis] * view.y_step[axis];
    }
    return {on.values.read(number / most, on.y), to};
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    const affine_view& view = on.map.view;
    int at[axes];
    pixels.tap_of(k, at);
    coordinates to{k * view.y_output, {0, 0, 0}};
    for (int axis = 0; axis < axes; ++axis) {
      to.at[axis] = -(at[axis] * view.dilation[axis] / view.stride[axis]);
      to.offset += to.at[axis] * view.y_step[axis];
    }
    return to;
  }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const step& b) const noexcept {
    return read_inside(on.map.inside_y(a.at, b), a.values, a.at.offset + b.offset);
  }
};
/// Values of x or y with one position, whose neighbours in the depth lie next to each other. Lines: samples.
template <class Scalar>
struct samples_of_one_position {
  static constexpr bool depth_first = true;
  using line = const Scalar*;
  using step = int;  ///< negative: padding
  const affine_operands<Scalar>& on;
  int group;
  bool is_x;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    return on.values.read(smaller_of(column, on.samples() - 1), is_x ? on.x : on.y);
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    return is_x ? on.map.x_offset(group, 0, k) : on.map.y_offset(group, k, 0);
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, step b) const noexcept { return read_inside(b >= 0, a, b); }
};
/// Deltas of one sample. Lines: outputs; steps: positions from `first` on.
template <class Scalar>
struct deltas_of_sample {
  static constexpr bool depth_first = true;
  using line = int;
  using step = int;
  const Scalar* values;
  const geometry& map;
  int group = 0;
  int first = 0;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept {
    return group * map.view.y_group + smaller_of(row, map.view.outputs - 1) * map.view.y_output;
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept { return map.y_step(first + k); }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, step b) const noexcept { return values[a + b]; }
};
/// Values of x of one sample. Lines: the view; steps: positions from `first` on.
template <class Scalar>
struct views_of_sample {
  static constexpr bool depth_first = true;
  using line = coordinates;
  using step = coordinates;
  const Scalar* values;
  const geometry& map;
  int group = 0;
  int first = 0;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    return map.tap(smaller_of(column, map.width.value() - 1));
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept { return map.position(group, first + k); }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const step& b) const noexcept {
    return read_inside(map.inside_x(a, b), values, a.offset + b.offset);
  }
};
/// The same of the samples from `first` on, one after the other: a step is one of (sample, position).
template <class Scalar>
struct deltas_of_samples {
  static constexpr bool depth_first = true;
  using line = int;
  struct step {
    const Scalar* values;
    int offset;
  };
  const affine_operands<Scalar>& on;
  int group;
  int first;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept {
    return deltas_of_sample<Scalar>{nullptr, on.map, group}.line_at(row);
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    const int position = on.map.positions.divide(k);
    return {on.values.read(first + k, on.y), on.map.y_step(position)};
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, const step& b) const noexcept { return b.values[a + b.offset]; }
};
template <class Scalar>
struct views_of_some_samples {
  static constexpr bool depth_first = true;
  using line = coordinates;
  struct step {
    const Scalar* values;
    coordinates at;
  };
  const affine_operands<Scalar>& on;
  int group;
  int first;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    return views_of_sample<Scalar>{nullptr, on.map}.line_at(column);
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    const int position = on.map.positions.divide(k);
    return {on.values.read(first + k, on.x), on.map.position(group, position)};
  }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const step& b) const noexcept {
    return read_inside(on.map.inside_x(a, b.at), b.values, a.offset + b.at.offset);
  }
};
/// Samples `first`, `first + apart`, ... of a batch, with their factors: those of 0 read nothing.
template <class Scalar>
struct weighted_samples {
  struct step {
    const Scalar* values;
    Scalar factor;
  };
  const affine_operands<Scalar>& on;
  const Scalar* factors;
  int place;
  int first;
  int apart;

  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    const int b = first + k * apart;
    return {on.values.read(b, place), factors == nullptr ? Scalar{1} : factors[b]};
  }
};
/// Their weighted deltas, of one position. Lines: outputs; steps: samples.
template <class Scalar>
struct weighted_deltas : weighted_samples<Scalar> {
  static constexpr bool depth_first = false;
  using line = int;
  using typename weighted_samples<Scalar>::step;
  int group;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept {
    return this->on.map.y_offset(group, smaller_of(row, this->on.map.view.outputs - 1), 0);
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, const step& b) const noexcept {
    return b.factor == 0 ? Scalar{0} : b.values[a];
  }
  /// A delta once it is rounded, if it is.
  [[nodiscard]] PERGRAD_HD static Scalar weighted(const step& b, Scalar delta) noexcept {
    return b.factor == 0 ? Scalar{0} : multiply(b.factor, delta);
  }
};
/// Their views at the one position. Lines: the view; steps: samples.
template <class Scalar>
struct views_at_one_position : weighted_samples<Scalar> {
  static constexpr bool depth_first = false;
  using line = int;  ///< negative: padding
  using typename weighted_samples<Scalar>::step;
  int group;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    return this->on.map.x_offset(group, 0, smaller_of(column, this->on.map.width.value() - 1));
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, const step& b) const noexcept {
    return b.factor == 0 || a < 0 ? Scalar{0} : b.values[a];
  }
};

/// A product whose columns are of samples: its results lie in their workspaces.
template <class Scalar, bool OnePosition>
struct product_over_samples {
  static constexpr bool squares = false;
  static constexpr bool one_position = OnePosition;
  using sum_type = Scalar;
  affine_operands<Scalar> on;

  [[nodiscard]] PERGRAD_HD int results(int z) const noexcept { return z; }
  [[nodiscard]] PERGRAD_HD Scalar before(const sample_column<Scalar>& where, int row) const noexcept {
    return where.before(row, on.accumulate);
  }
  PERGRAD_HD void store(const sample_column<Scalar>& where, int row, Scalar value) const noexcept {
    if (where.values != nullptr) where.values[row * where.step] = on.stored(value);
  }
};
/// Rows: outputs; columns: (sample, position); depth: the view. `OnePosition`: there is one.
template <class Scalar, bool OnePosition = false>
struct affine_forward : product_over_samples<Scalar, OnePosition> {
  using product_over_samples<Scalar, OnePosition>::on;

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.outputs; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.most_samples * on.map.positions.value(); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups; }
  [[nodiscard]] PERGRAD_HD int depth(int /*z*/) const noexcept { return on.map.width.value(); }
  [[nodiscard]] PERGRAD_HD bool wanted(int /*z*/, int column) const noexcept {
    return column < on.samples() * on.map.positions.value();
  }
  [[nodiscard]] PERGRAD_HD weight_rows<Scalar> left(int z) const noexcept {
    return {on.weights + z * rows() * on.map.width.value(), on.map.width.value(), rows() - 1};
  }
  [[nodiscard]] PERGRAD_HD auto right(int z) const noexcept {
    if constexpr (OnePosition) {
      return samples_of_one_position<Scalar>{on, z, true};
    } else {
      return views_of_samples<Scalar>{on, z};
    }
  }
  [[nodiscard]] PERGRAD_HD sample_column<Scalar> column_of(int z, int column) const noexcept {
    const int t = on.map.positions.divide(column);
    return on.column(column, on.y, on.map.y_offset(z, 0, t), on.map.view.y_output, z * rows());
  }
};

/// Rows: channels; columns: (sample, pixel); depth: (output, tap). `OnePosition`: there is one, one pixel and one tap.
template <class Scalar, bool OnePosition = false>
struct affine_adjoint : product_over_samples<Scalar, OnePosition> {
  using product_over_samples<Scalar, OnePosition>::on;

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.channels; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.most_samples * on.map.pixels.value(); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups; }
  [[nodiscard]] PERGRAD_HD int depth(int /*z*/) const noexcept { return on.map.view.outputs * on.map.taps.value(); }
  [[nodiscard]] PERGRAD_HD bool wanted(int /*z*/, int column) const noexcept {
    return column < on.samples() * on.map.pixels.value();
  }
  [[nodiscard]] PERGRAD_HD weight_columns<Scalar> left(int z) const noexcept {
    return {on.weights + z * on.map.view.outputs * on.map.width.value(), on.map};
  }
  [[nodiscard]] PERGRAD_HD auto right(int z) const noexcept {
    if constexpr (OnePosition) {
      return samples_of_one_position<Scalar>{on, z, false};
    } else {
      return outputs_that_see<Scalar>{on, z};
    }
  }
  [[nodiscard]] PERGRAD_HD sample_column<Scalar> column_of(int z, int column) const noexcept {
    const int pixel = on.map.pixels.divide(column);
    return on.column(column, on.x, on.map.pixel_offset(z, 0, pixel), on.map.view.x_channel, z * rows());
  }
};

/// The same of views with strides. Batches: groups, classes of pixels; columns: (sample, pixel of the class); depth:
/// (output, tap of it).
template <class Scalar>
struct affine_strided_adjoint : product_over_samples<Scalar, false> {
  using product_over_samples<Scalar, false>::on;

  [[nodiscard]] PERGRAD_HD int classes() const noexcept { return stride_class::count(on.map.view); }
  [[nodiscard]] PERGRAD_HD stride_class class_of(int z) const noexcept { return {on.map.view, z % classes()}; }
  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.channels; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.most_samples * stride_class::most(on.map.view); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups * classes(); }
  [[nodiscard]] PERGRAD_HD int depth(int z) const noexcept {
    const stride_class of = class_of(z);
    return on.map.view.outputs * of.taps[0] * of.taps[1] * of.taps[2];
  }
  [[nodiscard]] PERGRAD_HD bool wanted(int /*z*/, int column) const noexcept {
    return column < on.samples() * stride_class::most(on.map.view);
  }
  [[nodiscard]] PERGRAD_HD weight_columns_of_class<Scalar> left(int z) const noexcept {
    return {on.weights + z / classes() * on.map.view.outputs * on.map.width.value(), on.map, class_of(z)};
  }
  [[nodiscard]] PERGRAD_HD outputs_that_see_class<Scalar> right(int z) const noexcept {
    return {on, z / classes(), class_of(z)};
  }
  [[nodiscard]] PERGRAD_HD sample_column<Scalar> column_of(int z, int column) const noexcept {
    const affine_view& view = on.map.view;
    const int most = stride_class::most(view);
    const stride_class of = class_of(z);
    const int group = z / classes();
    int at[axes];
    const bool is_there = of.place(view, column % most, at);
    int offset = group * view.x_group;
    for (int axis = 0; axis < axes; ++axis) {
      offset += (of.pixel[axis] + at[axis] * view.stride[axis]) * view.x_step[axis];
    }
    return on.column(is_there ? column / most : on.samples(), on.x, offset, view.x_channel, group * rows());
  }
};

/// Of views with one position. Rows: outputs; columns: the view; depth: samples of the accumulator. A `Sum` of integers
/// adds what each sample adds, rounded to whole steps of the grid, and all blocks to accumulator 0, from what is there.
template <class Scalar, class Sum>
struct affine_sums {
  static constexpr bool squares = false;
  static constexpr bool has_order = !std::is_integral_v<Sum>;
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
    return depth(z) > 0 || (has_order && state().first != 0);
  }
  [[nodiscard]] PERGRAD_HD weighted_deltas<Scalar> left(int z) const noexcept {
    return {samples_of(z, on.y), z / accumulator_count};
  }
  [[nodiscard]] PERGRAD_HD views_at_one_position<Scalar> right(int z) const noexcept {
    return {samples_of(z, on.x), z / accumulator_count};
  }
  /// The group's weights in the accumulator.
  [[nodiscard]] PERGRAD_HD Sum* results(int z) const noexcept {
    return accumulators + (has_order ? z % accumulator_count * accumulator_stride : 0) +
           std::int64_t{z / accumulator_count} * rows() * columns();
  }
  [[nodiscard]] PERGRAD_HD Sum* column_of(Sum* first, int column) const noexcept { return first + column; }
  [[nodiscard]] PERGRAD_HD Sum before(const Sum* where, int row) const noexcept {
    return !has_order || state().first != 0 ? Sum{0} : where[row * columns()];
  }
  PERGRAD_HD void add_term(Sum& sum, Scalar delta, Scalar x) const noexcept {
    on_device::add_share(sum, delta, x, to_grid);
  }
  PERGRAD_HD void store(Sum* where, int row, Sum value) const noexcept {
    if constexpr (has_order) {
      where[row * columns()] = value;
    } else {
      add_to(where[row * columns()], value);
    }
  }

 private:
  [[nodiscard]] PERGRAD_HD const step_state& state() const noexcept { return *on.state; }
  [[nodiscard]] PERGRAD_HD weighted_samples<Scalar> samples_of(int z, int place) const noexcept {
    return {on, factors, place, first_sample(z % accumulator_count), accumulator_count};
  }
};

/// Of views with several positions, not cut into chunks: a sum of integers. Rows: outputs; columns: the view; depth:
/// the positions of a part of the samples. A sample's gradient is formed as affine_squares does and adds its share.
template <class Scalar>
struct affine_shares {
  static constexpr bool squares = false;
  static constexpr bool adds_shares = true;
  using sum_type = Scalar;
  affine_operands<Scalar> on;       ///< `y` is the place of delta
  const Scalar* factors = nullptr;  ///< w_b; nullptr: all are 1
  Scalar to_grid = 1;               ///< steps of a unit
  std::int64_t* sums = nullptr;     ///< of the layer's first weight
  int parts = 1;                    ///< of the samples

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.outputs; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.map.width.value(); }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups * parts; }
  [[nodiscard]] PERGRAD_HD int of_part() const noexcept { return blocks_for(on.most_samples, parts); }
  [[nodiscard]] PERGRAD_HD int first_sample(int z) const noexcept { return z % parts * of_part(); }
  [[nodiscard]] PERGRAD_HD int samples(int z) const noexcept {
    return larger_of(0, smaller_of(of_part(), on.samples() - first_sample(z)));
  }
  /// Steps of a sample, and of all.
  [[nodiscard]] PERGRAD_HD int positions() const noexcept { return on.map.positions.value(); }
  [[nodiscard]] PERGRAD_HD int depth(int z) const noexcept { return samples(z) * positions(); }
  [[nodiscard]] PERGRAD_HD bool wanted(int z, int /*column*/) const noexcept { return samples(z) > 0; }
  [[nodiscard]] PERGRAD_HD deltas_of_samples<Scalar> left(int z) const noexcept {
    return {on, z / parts, first_sample(z)};
  }
  [[nodiscard]] PERGRAD_HD views_of_some_samples<Scalar> right(int z) const noexcept {
    return {on, z / parts, first_sample(z)};
  }
  /// The share of sample b's gradient; of one without weight nothing, whatever it is.
  PERGRAD_HD void add_share(std::int64_t& sum, Scalar factor, Scalar gradient) const noexcept {
    if (factor != 0) on_device::add_share(sum, factor, gradient, to_grid);
  }
  [[nodiscard]] PERGRAD_HD Scalar factor(int z, int number) const noexcept {
    return factors == nullptr ? Scalar{1} : factors[first_sample(z) + number];
  }
  [[nodiscard]] PERGRAD_HD std::int64_t* results(int z) const noexcept {
    return sums + std::int64_t{z / parts} * rows() * columns();
  }
  [[nodiscard]] PERGRAD_HD std::int64_t* column_of(std::int64_t* first, int column) const noexcept {
    return first + column;
  }
  PERGRAD_HD void store(std::int64_t* where, int row, std::int64_t value) const noexcept {
    add_to(where[row * columns()], value);
  }
};

/// Of views with several positions: the gradient of each sample, a chunk of its positions at a time. Rows: outputs;
/// columns: the view; depth: positions of a chunk; batches: samples, chunks, groups. Where there is one chunk these are
/// the numbers that affine_squares squares, bit for bit.
template <class Scalar>
struct affine_partials {
  static constexpr bool squares = false;
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
  [[nodiscard]] PERGRAD_HD deltas_of_sample<Scalar> left(int z) const noexcept {
    return {on.values.read(sample(z), on.y), on.map, group(z), first_position(z)};
  }
  [[nodiscard]] PERGRAD_HD views_of_sample<Scalar> right(int z) const noexcept {
    return {on.values.read(sample(z), on.x), on.map, group(z), first_position(z)};
  }
  [[nodiscard]] PERGRAD_HD Scalar* results(int z) const noexcept {
    return partials + std::int64_t{z} * rows() * columns();
  }
  [[nodiscard]] PERGRAD_HD Scalar* column_of(Scalar* first, int column) const noexcept { return first + column; }
  [[nodiscard]] PERGRAD_HD Scalar before(const Scalar* /*where*/, int /*row*/) const noexcept { return Scalar{0}; }
  PERGRAD_HD void store(Scalar* where, int row, Scalar value) const noexcept { where[row * columns()] = value; }
};

/// Rows: outputs; columns: the view; depth: positions of one sample. Square number i of group g is that of block i: the
/// sample's squared norm is the sum of all `groups * blocks`, added up by whoever reads them.
template <class Scalar>
struct affine_squares {
  static constexpr bool squares = true;
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
  [[nodiscard]] PERGRAD_HD deltas_of_sample<Scalar> left(int z) const noexcept {
    const int group = on.map.groups.divide(z);
    return {on.values.read(z, on.y), on.map, group};
  }
  [[nodiscard]] PERGRAD_HD views_of_sample<Scalar> right(int z) const noexcept {
    const int group = on.map.groups.divide(z);
    return {on.values.read(z, on.x), on.map, group};
  }
  PERGRAD_HD void store_square(int z, int block, double value) const noexcept {
    const int groups = on.map.view.groups;
    partial[z / groups * partial_stride + z % groups * blocks + block] = value;
  }
};

}  // namespace pergrad::inline v0_1::on_device
