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
#include <pergrad/cuda/kernels/functions.hpp>
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
  int most_samples = 0;           ///< of a physical batch
  int accumulate = 0;             ///< forward, adjoint: the result is added to what is there
  stored_format format{};         ///< of operands; weights are rounded to it
  stored_format result_format{};  ///< forward, adjoint

  [[nodiscard]] PERGRAD_HD int samples() const noexcept { return static_cast<int>(state->count); }
  /// Where something of a sample lies; nullptr: there is no such sample.
  [[nodiscard]] PERGRAD_HD Scalar* place_of(int sample, int place, int offset) const noexcept {
    return sample < samples() ? values.at(sample, place) + offset : nullptr;
  }
};

// Operands of the products: gemm.hpp says what a line and a step are. Lines beyond the last one read it again: nobody
// asks for their results.

/// Weights of a group. Lines: outputs; steps: the view.
template <class Scalar>
struct weight_rows {
  static constexpr bool is_weights = true;
  static constexpr bool depth_first = true;
  using line = int;
  using step = int;
  const Scalar* weights;
  int width;
  int last;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept { return smaller_of(row, last) * width; }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept { return k; }
  [[nodiscard]] PERGRAD_HD base_address<Scalar> place_of(step b) const noexcept {
    return base_address<Scalar>{weights, b}.added_up();
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, const base_address<Scalar>& b) const noexcept { return *(b + a); }
};
/// The same. Lines: channels; steps: (output, tap).
template <class Scalar>
struct weight_columns {
  static constexpr bool is_weights = true;
  static constexpr bool depth_first = false;
  using line = base_address<Scalar>;
  using step = int;
  const Scalar* weights;
  const geometry& map;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept {
    return line{weights, smaller_of(row, map.view.channels - 1) * map.taps.value()}.added_up();
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    const int tap = map.taps.divide(k);
    return k * map.width.value() + tap;
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, step b) const noexcept { return *(a + b); }
};
/// What says where an element lies, with the coordinates that are its line's or step's.
template <class Scalar>
struct placed_coordinates {
  base_address<Scalar> values;
  std::uint32_t at = 0;  ///< of axis_fields

  PERGRAD_HD placed_coordinates(const Scalar* of_sample, const coordinates& place) noexcept
      : values{of_sample, place.offset}, at{place.at} {}
  PERGRAD_HD placed_coordinates(base_address<Scalar> base, std::uint32_t fields) noexcept : values{base}, at{fields} {}
  placed_coordinates() = default;
};

/// Values of x. Lines: (sample, position); steps: the view.
template <class Scalar>
struct views_of_samples {
  static constexpr bool depth_first = false;
  using line = placed_coordinates<Scalar>;
  using step = coordinates;
  const affine_operands<Scalar>& on;
  int group;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    int sample = smaller_of(column, on.samples() * on.map.positions.value() - 1);
    const int t = on.map.positions.divide(sample);
    return {on.values.read(sample, on.x), on.map.position(group, t)};
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept { return on.map.tap(k); }
  PERGRAD_HD void leave_out(step& at) const noexcept { at.at += on.map.x_fields.beyond(); }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const step& b) const noexcept {
    return read_if(on.map.x_fields.inside(a.at, b.at), a.values + b.offset);
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
  PERGRAD_HD void leave_out(step& at) const noexcept { at.at += on.map.y_fields.beyond(); }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const step& b) const noexcept {
    return read_if(on.map.y_fields.inside(a.at, b.at), a.values + b.offset);
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
  divisor taps[axes];  ///< how many there are, or 1
  int tap_count = 0;   ///< of all axes

  [[nodiscard]] PERGRAD_HD static constexpr int count(const affine_view& view) noexcept {
    return view.stride[0] * view.stride[1] * view.stride[2];
  }
  stride_class() = default;
  constexpr stride_class(const affine_view& view, int number) noexcept : tap_count{1} {
    for (int axis = axes; axis-- > 0;) {
      const int stride = view.stride[axis];
      const int rest = number % stride;
      number /= stride;
      pixel[axis] = (rest + stride - view.padding[axis] % stride) % stride;
      pixels[axis] = pixel[axis] < view.in[axis] ? (view.in[axis] - pixel[axis] + stride - 1) / stride : 0;
      whole[axis] = (pixel[axis] + view.padding[axis]) / stride;
      while (tap[axis] < view.kernel[axis] && tap[axis] * view.dilation[axis] % stride != rest) ++tap[axis];
      apart[axis] = 1;
      while (apart[axis] * view.dilation[axis] % stride != 0) ++apart[axis];
      const int there = (view.kernel[axis] - tap[axis] + apart[axis] - 1) / apart[axis];
      taps[axis] = divisor{larger_of(there, 1)};
      tap_count *= there;
    }
  }
  /// The most pixels of a class along an axis.
  [[nodiscard]] PERGRAD_HD static constexpr int most(const affine_view& view, int axis) noexcept {
    return (view.in[axis] + view.stride[axis] - 1) / view.stride[axis];
  }
  /// Replaces k by its output and gives its tap along the axes. Precondition: there are taps.
  PERGRAD_HD void tap_of(int& k, int (&at)[axes]) const noexcept {
    for (int axis = axes; axis-- > 0;) at[axis] = tap[axis] + taps[axis].divide(k) * apart[axis];
  }
};
/// Numbers the pixels of any class, as many as the largest has.
struct class_pixels {
  divisor along[axes];
  divisor all;

  class_pixels() = default;
  constexpr explicit class_pixels(const affine_view& view) noexcept {
    for (int axis = 0; axis < axes; ++axis) along[axis] = divisor{stride_class::most(view, axis)};
    all = divisor{along[0].value() * along[1].value() * along[2].value()};
  }
  /// Replaces a column by its sample and gives its pixel along the axes; does `of` have it?
  PERGRAD_HD bool place(const stride_class& of, int& column, int (&at)[axes]) const noexcept {
    int i = all.divide(column);
    bool is_there = true;
    for (int axis = axes; axis-- > 0;) {
      at[axis] = along[axis].divide(i);
      is_there = is_there && at[axis] < of.pixels[axis];
    }
    return is_there;
  }
};
/// Weights of a group. Lines: channels; steps: (output, tap of a class).
template <class Scalar>
struct weight_columns_of_class {
  static constexpr bool is_weights = true;
  static constexpr bool depth_first = false;
  using line = base_address<Scalar>;
  using step = int;
  const Scalar* weights;
  const geometry& map;
  const stride_class& taps;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept {
    return line{weights, smaller_of(row, map.view.channels - 1) * map.taps.value()}.added_up();
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    int at[axes];
    taps.tap_of(k, at);
    return k * map.width.value() + (at[0] * map.view.kernel[1] + at[1]) * map.view.kernel[2] + at[2];
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, step b) const noexcept { return *(a + b); }
};
/// Values of y. Lines: (sample, pixel of a class); steps: (output, tap of it).
template <class Scalar>
struct outputs_that_see_class {
  static constexpr bool depth_first = false;
  using line = typename views_of_samples<Scalar>::line;
  using step = coordinates;
  const affine_operands<Scalar>& on;
  const class_pixels& numbers;
  const stride_class& pixels;
  int group = 0;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    const affine_view& view = on.map.view;
    int sample = smaller_of(column, on.samples() * numbers.all.value() - 1);
    int at[axes];
    int offset = group * view.y_group;
    numbers.place(pixels, sample, at);
    for (int axis = 0; axis < axes; ++axis) {
      at[axis] += pixels.whole[axis];
      offset += at[axis] * view.y_step[axis];
    }
    return {on.values.read(sample, on.y), {offset, on.map.y_fields.first(at)}};
  }
  [[nodiscard]] PERGRAD_HD step step_at(int k) const noexcept {
    const affine_view& view = on.map.view;
    int at[axes];
    pixels.tap_of(k, at);
    int offset = k * view.y_output;
    for (int axis = 0; axis < axes; ++axis) {
      at[axis] = -on.map.stride[axis].quotient(at[axis] * view.dilation[axis]);
      offset += at[axis] * view.y_step[axis];
    }
    return {offset, on.map.y_fields.second(at)};
  }
  PERGRAD_HD void leave_out(step& at) const noexcept { at.at += on.map.y_fields.beyond(); }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const step& b) const noexcept {
    return read_if(on.map.y_fields.inside(a.at, b.at), a.values + b.offset);
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
  [[nodiscard]] PERGRAD_HD Scalar read(line a, step b) const noexcept { return read_if(b >= 0, a + b); }
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
  [[nodiscard]] PERGRAD_HD base_address<Scalar> place_of(step b) const noexcept {
    return base_address<Scalar>{values, b}.added_up();
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, const base_address<Scalar>& b) const noexcept { return *(b + a); }
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
  PERGRAD_HD void leave_out(step& at) const noexcept { at.at += map.x_fields.beyond(); }
  [[nodiscard]] PERGRAD_HD placed_coordinates<Scalar> place_of(const step& b) const noexcept {
    return {base_address<Scalar>{values, b.offset}.added_up(), b.at};
  }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const placed_coordinates<Scalar>& b) const noexcept {
    return read_if(map.x_fields.inside(a.at, b.at), b.values + a.offset);
  }
};
/// The same of the samples from `first` on, one after the other.
template <class Scalar>
struct deltas_of_samples {
  static constexpr bool depth_first = true;
  using line = int;
  using step = base_address<Scalar>;
  const affine_operands<Scalar>& on;
  int group;
  int first;

  [[nodiscard]] PERGRAD_HD line line_at(int row) const noexcept {
    return deltas_of_sample<Scalar>{nullptr, on.map, group}.line_at(row);
  }
  [[nodiscard]] PERGRAD_HD step step_at(int sample, int position) const noexcept {
    return {on.values.read(first + sample, on.y), on.map.y_step(position)};
  }
  [[nodiscard]] PERGRAD_HD Scalar read(line a, const step& b) const noexcept { return *(b + a); }
};
template <class Scalar>
struct views_of_some_samples {
  static constexpr bool depth_first = true;
  using line = coordinates;
  using step = placed_coordinates<Scalar>;
  const affine_operands<Scalar>& on;
  int group;
  int first;

  [[nodiscard]] PERGRAD_HD line line_at(int column) const noexcept {
    return views_of_sample<Scalar>{nullptr, on.map}.line_at(column);
  }
  [[nodiscard]] PERGRAD_HD step step_at(int sample, int position) const noexcept {
    return {on.values.read(first + sample, on.x), on.map.position(group, position)};
  }
  PERGRAD_HD void leave_out(step& at) const noexcept { at.at += on.map.x_fields.beyond(); }
  [[nodiscard]] PERGRAD_HD Scalar read(const line& a, const step& b) const noexcept {
    return read_if(on.map.x_fields.inside(a.at, b.at), b.values + a.offset);
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
    return b.factor == 0 ? Scalar{0} : in_device_memory(b.values)[a];
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
    return b.factor == 0 || a < 0 ? Scalar{0} : in_device_memory(b.values)[a];
  }
};

/// A product whose columns are of samples: its results lie in their workspaces, those of a column's neighbouring rows
/// `row_step()` apart. `Functions`: those of joined nodes.
template <class Scalar, bool OnePosition, class Functions = function_list<>>
struct product_over_samples {
  static constexpr bool squares = false;
  static constexpr bool one_position = OnePosition;
  static constexpr bool may_join = !std::is_same_v<Functions, function_list<>>;
  using sum_type = Scalar;
  affine_operands<Scalar> on;
  joined_node joined{};

  /// Is a result added to what is there? Else a row's begin with its bias, if there are any.
  [[nodiscard]] PERGRAD_HD bool accumulates() const noexcept { return on.accumulate != 0; }
  [[nodiscard]] PERGRAD_HD bool has_bias() const noexcept { return on.bias != nullptr; }
  [[nodiscard]] PERGRAD_HD bool rounds() const noexcept { return on.result_format != stored_format::exact; }
  [[nodiscard]] PERGRAD_HD Scalar rounded(Scalar value) const noexcept { return stored_as(on.result_format, value); }
  /// f<Function>() for the joined node's.
  template <class Function>
  PERGRAD_HD void with_joined(const Function& f) const {
    Functions::visit(joined.function, [&]<class Joined>() {
      if constexpr (is_scalar_function<Joined>) f.template operator()<device_code_of<Joined>>();
    });
  }
};
/// Whose results are gradients of x. That which a joined node takes is written nowhere.
template <class Scalar, bool OnePosition, class Functions>
struct product_back : product_over_samples<Scalar, OnePosition, Functions> {
  using product = product_over_samples<Scalar, OnePosition, Functions>;
  using product::on, product::joined;

  [[nodiscard]] PERGRAD_HD int row_step() const noexcept { return on.map.view.x_channel; }
  [[nodiscard]] PERGRAD_HD bool stores() const noexcept { return joined.function < 0; }
  /// Where a joined node's result lies, from its product's on.
  [[nodiscard]] PERGRAD_HD int joined_at() const noexcept { return joined.dx - on.x; }
  /// What it makes of the product's result at `at`.
  template <class Function>
  [[nodiscard]] PERGRAD_HD Scalar joined_value(const Scalar* at, Scalar value) const {
    const Scalar part = value * Function::derivative(at[joined.x - on.x], at[joined.y - on.x]);
    return joined.accumulate != 0 ? at[joined_at()] + part : part;
  }
};
/// Rows: outputs; columns: (sample, position); depth: the view. `OnePosition`: there is one.
template <class Scalar, bool OnePosition = false, class Functions = function_list<>>
struct affine_forward : product_over_samples<Scalar, OnePosition, Functions> {
  using product = product_over_samples<Scalar, OnePosition, Functions>;
  using product::on, product::joined;

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.outputs; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.most_samples * on.map.positions.value(); }
  [[nodiscard]] PERGRAD_HD Scalar bias(int z, int row) const noexcept { return on.bias[z * rows() + row]; }
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
  [[nodiscard]] PERGRAD_HD Scalar* column_of(int z, int column) const noexcept {
    const int t = on.map.positions.divide(column);
    return on.place_of(column, on.y, on.map.y_offset(z, 0, t));
  }
  [[nodiscard]] PERGRAD_HD int row_step() const noexcept { return on.map.view.y_output; }
  [[nodiscard]] PERGRAD_HD bool stores() const noexcept { return true; }
  [[nodiscard]] PERGRAD_HD int joined_at() const noexcept { return joined.y - on.y; }
  template <class Function>
  [[nodiscard]] PERGRAD_HD Scalar joined_value(const Scalar* /*at*/, Scalar value) const {
    return Function::value(value);
  }
};

/// Rows: channels; columns: (sample, pixel); depth: (output, tap). `OnePosition`: there is one, one pixel and one tap.
template <class Scalar, bool OnePosition = false, class Functions = function_list<>>
struct affine_adjoint : product_back<Scalar, OnePosition, Functions> {
  using product_back<Scalar, OnePosition, Functions>::on;

  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.channels; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.most_samples * on.map.pixels.value(); }
  [[nodiscard]] PERGRAD_HD Scalar bias(int z, int row) const noexcept { return on.bias[z * rows() + row]; }
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
  [[nodiscard]] PERGRAD_HD Scalar* column_of(int z, int column) const noexcept {
    const int pixel = on.map.pixels.divide(column);
    return on.place_of(column, on.x, on.map.pixel_offset(z, 0, pixel));
  }
};

/// The same of views with strides, for some classes of pixels. Batches: groups, classes; columns: (sample, pixel of the
/// class); depth: (output, tap of it).
template <class Scalar, class Functions = function_list<>>
struct affine_strided_adjoint : product_back<Scalar, false, Functions> {
  using product_back<Scalar, false, Functions>::on;
  static constexpr int most_classes = 8;
  class_pixels pixels;
  int class_count = 0;
  stride_class classes[most_classes];

  affine_strided_adjoint() = default;
  /// Of classes first .. first + most_classes - 1, if there are so many.
  affine_strided_adjoint(const affine_operands<Scalar>& operands, const joined_node& node, int first)
      : product_back<Scalar, false, Functions>{{operands, node}},
        pixels{operands.map.view},
        class_count{smaller_of(most_classes, stride_class::count(operands.map.view) - first)} {
    for (int i = 0; i < class_count; ++i) classes[i] = stride_class{operands.map.view, first + i};
  }

  [[nodiscard]] PERGRAD_HD const stride_class& class_of(int z) const noexcept { return classes[z % class_count]; }
  [[nodiscard]] PERGRAD_HD int rows() const noexcept { return on.map.view.channels; }
  [[nodiscard]] PERGRAD_HD int columns() const noexcept { return on.most_samples * pixels.all.value(); }
  [[nodiscard]] PERGRAD_HD Scalar bias(int z, int row) const noexcept {
    return on.bias[z / class_count * rows() + row];
  }
  [[nodiscard]] PERGRAD_HD int batches() const noexcept { return on.map.view.groups * class_count; }
  [[nodiscard]] PERGRAD_HD int depth(int z) const noexcept { return on.map.view.outputs * class_of(z).tap_count; }
  [[nodiscard]] PERGRAD_HD bool wanted(int /*z*/, int column) const noexcept {
    return column < on.samples() * pixels.all.value();
  }
  [[nodiscard]] PERGRAD_HD weight_columns_of_class<Scalar> left(int z) const noexcept {
    return {on.weights + z / class_count * on.map.view.outputs * on.map.width.value(), on.map, class_of(z)};
  }
  [[nodiscard]] PERGRAD_HD outputs_that_see_class<Scalar> right(int z) const noexcept {
    return {on, pixels, class_of(z), z / class_count};
  }
  [[nodiscard]] PERGRAD_HD Scalar* column_of(int z, int column) const noexcept {
    const affine_view& view = on.map.view;
    const stride_class& of = class_of(z);
    const int group = z / class_count;
    int at[axes];
    const bool is_there = pixels.place(of, column, at);
    int offset = group * view.x_group;
    for (int axis = 0; axis < axes; ++axis) {
      offset += (of.pixel[axis] + at[axis] * view.stride[axis]) * view.x_step[axis];
    }
    return on.place_of(is_there ? column : on.samples(), on.x, offset);
  }
};

/// Of views with one position. Rows: outputs; columns: the view; depth: samples of the accumulator. A `Sum` of integers
/// adds what each sample adds, rounded to whole steps of the grid, and all blocks to accumulator 0, from what is there.
/// `Kind`: small_shares, at most so many of an accumulator.
template <class Scalar, class Sum, share_kind Kind = share_kind::any>
struct affine_sums {
  static constexpr bool is_small = Kind != share_kind::any;
  static constexpr bool squares = false;
  static constexpr bool has_order = !std::is_integral_v<Sum>;
  using sum_type = std::conditional_t<is_small, std::uint32_t, Sum>;
  affine_operands<Scalar> on;       ///< `y` is the place of delta
  const Scalar* factors = nullptr;  ///< w_b; nullptr: all are 1
  Scalar to_grid = 1;               ///< of integers: steps of a unit
  small_shares<Kind> shares;
  Sum* accumulators = nullptr;  ///< of the layer's first weight, in accumulator 0
  std::int64_t accumulator_stride = 0;
  int accumulator_count = 1;
  int begins = 0;  ///< of integers in one accumulator: where the logical batch begins, nobody has set them to zero

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
    return depth(z) > 0 || ((has_order || begins != 0) && state().first != 0);
  }
  [[nodiscard]] PERGRAD_HD weighted_deltas<Scalar> left(int z) const noexcept {
    return {samples_of(z, on.y), z / accumulator_count};
  }
  [[nodiscard]] PERGRAD_HD views_at_one_position<Scalar> right(int z) const noexcept {
    return {samples_of(z, on.x), z / accumulator_count};
  }
  /// The group's weights in the accumulator, and the offsets of its small shares.
  struct sums_of {
    Sum* at;
    std::uint32_t offsets;
  };
  [[nodiscard]] PERGRAD_HD sums_of results(int z) const noexcept {
    return {accumulators + (has_order ? z % accumulator_count * accumulator_stride : 0) +
                std::int64_t{z / accumulator_count} * rows() * columns(),
            static_cast<std::uint32_t>(depth(z)) * shares.offset()};
  }
  [[nodiscard]] PERGRAD_HD sums_of column_of(const sums_of& first, int column) const noexcept {
    return {first.at + column, first.offsets};
  }
  [[nodiscard]] PERGRAD_HD sum_type before(const sums_of& where, int row) const noexcept {
    if constexpr (is_small) {
      return 0 - where.offsets;
    } else {
      return !has_order || state().first != 0 ? Sum{0} : where.at[row * columns()];
    }
  }
  PERGRAD_HD void add_term(sum_type& sum, Scalar delta, Scalar x) const noexcept {
    if constexpr (is_small) {
      sum += shares.product_with_offset(delta, x);
    } else {
      on_device::add_share(sum, delta, x, to_grid);
    }
  }
  PERGRAD_HD void store(const sums_of& where, int row, sum_type value) const noexcept {
    Sum& to = where.at[row * columns()];
    if constexpr (has_order) {
      to = value;
    } else {
      const Sum more = is_small ? small_shares<Kind>::whole(static_cast<std::uint32_t>(value)) : value;
      if (begins != 0 && state().first != 0) {
        to = more;
      } else {
        add_to(to, more);
      }
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
/// `Kind`: as of affine_sums.
template <class Scalar, share_kind Kind = share_kind::any>
struct affine_shares {
  static constexpr bool is_small = Kind != share_kind::any;
  static constexpr bool squares = false;
  static constexpr bool adds_shares = true;
  static constexpr int most_shares = is_small ? small_shares<Kind>::most : 1 << 10;  ///< of a part
  using sum_type = Scalar;
  using total_type = std::conditional_t<is_small, std::uint32_t, std::int64_t>;
  affine_operands<Scalar> on;       ///< `y` is the place of delta
  const Scalar* factors = nullptr;  ///< w_b; nullptr: all are 1
  Scalar to_grid = 1;               ///< steps of a unit
  small_shares<Kind> shares;
  std::int64_t* sums = nullptr;  ///< of the layer's first weight
  int parts = 1;                 ///< of the samples

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
  /// How a sample's gradient becomes its share; of one without weight nothing, whatever it is.
  struct share_of_sample {
    Scalar factor;
    Scalar to_grid;
    small_shares<Kind> shares;

    PERGRAD_HD void add_to(total_type& sum, Scalar gradient) const noexcept {
      if (factor == 0) return;
      if constexpr (is_small) {
        sum += shares.with_offset(factor, gradient) - shares.offset();
      } else {
        on_device::add_share(sum, factor, gradient, to_grid);
      }
    }
  };
  [[nodiscard]] PERGRAD_HD share_of_sample share_of(int z, int number) const noexcept {
    const Scalar factor = factors == nullptr ? Scalar{1} : factors[first_sample(z) + number];
    return {factor, to_grid, shares.at_hand()};
  }
  [[nodiscard]] PERGRAD_HD std::int64_t* results(int z) const noexcept {
    return sums + std::int64_t{z / parts} * rows() * columns();
  }
  [[nodiscard]] PERGRAD_HD std::int64_t* column_of(std::int64_t* first, int column) const noexcept {
    return first + column;
  }
  PERGRAD_HD void store(std::int64_t* where, int row, total_type value) const noexcept {
    add_to(where[row * columns()],
           is_small ? small_shares<Kind>::whole(static_cast<std::uint32_t>(value)) : static_cast<std::int64_t>(value));
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

/// Rows: outputs; columns: the view; depth: positions of one sample. Square number i of group g is that of block i, or
/// 0 where there is none: the sample's squared norm is the sum of all `groups * blocks`, added up by whoever reads
/// them.
template <class Scalar>
struct affine_squares {
  static constexpr bool squares = true;
  using sum_type = Scalar;
  affine_operands<Scalar> on;  ///< `y` is the place of delta
  double* partial = nullptr;   ///< sample b's at [b * partial_stride + g * blocks + block]
  std::int64_t partial_stride = 0;
  int blocks = 1;
  Scalar* gradients = nullptr;  ///< [sample][weight], for the sum; nullptr: they are not kept

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
  [[nodiscard]] PERGRAD_HD bool keeps() const noexcept { return gradients != nullptr; }
  [[nodiscard]] PERGRAD_HD Scalar* results(int z) const noexcept {
    return gradients + std::int64_t{z} * rows() * columns();
  }
  [[nodiscard]] PERGRAD_HD Scalar* column_of(Scalar* first, int column) const noexcept { return first + column; }
  PERGRAD_HD void store(Scalar* where, int row, Scalar value) const noexcept { where[row * columns()] = value; }
  /// Of `of` blocks of a group: where there are more places for squares than blocks, the others are 0.
  PERGRAD_HD void store_square(int z, int block, int of, double value) const noexcept {
    const int groups = on.map.view.groups;
    double* const to = partial + (z / groups * partial_stride + z % groups * blocks);
    to[block] = value;
    PERGRAD_ROLLED
    for (int i = block + of; i < blocks; i += of) to[i] = 0;
  }
};

}  // namespace pergrad::inline v0_1::on_device
