// SPDX-License-Identifier: Apache-2.0
// pergrad/host/conv/affine.hpp - an affine layer and its adjoint as products over the samples of a tile
//
// Both read overlapping strided views of stored images, so no patch is copied: an output's view of the input, and, for
// the adjoint, an input's view of delta, one product for each phase of the stride.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/kernels.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/gemm/transpose.hpp>
#include <pergrad/host/plan/deferred_rows.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/windows.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// y (=|+=) view(x) W + b: rows are samples and positions, the reduction runs over the view.
template <class Scalar>
void through_windows(const node_row& row, const Scalar* panels, index samples, images<const Scalar> in,
                     images<Scalar> out, const std::type_identity_t<Scalar>* bias, bool accumulate) {
  const affine_map& map = row.map;
  const layout& x = in.of;
  const layout& y = out.of;
  const auto number = [](std::size_t value) { return static_cast<index>(value); };
  const index channels = number(map.in_channels / map.groups);
  const index outputs = number(map.group_outputs());
  const index width = number(map.kernel.width);
  const index area = number(map.kernel.height) * width;
  const auto shape_of = [&](index columns) {
    return coalesce({{{number(map.out_size.depth), number(map.stride.depth) * x.plane, y.plane},
                      {number(map.out_size.height), number(map.stride.height) * x.row, y.row},
                      {number(map.out_size.width), number(map.stride.width) * x.column, y.column}},
                     {{number(map.kernel.height), number(map.dilation.height) * x.row, width * channels * columns},
                      {width, number(map.dilation.width) * x.column, channels * columns},
                      {channels, 1, columns}},
                     columns,
                     {samples, in.sample, out.sample},
                     {number(map.kernel.depth), number(map.dilation.depth) * x.plane, area * channels * columns}});
  };
  const Scalar* from = in.first + x.start - number(map.padding.depth) * x.plane - number(map.padding.height) * x.row -
                       number(map.padding.width) * x.column;
  Scalar* to = out.first + y.start;
  const Scalar* panel = panels + row.forward_panel;
  const index view = number(map.view_width());
  for (index block = 0; block < outputs; block += panel_block) {
    const product_shape shape = shape_of(columns_of_block(outputs, block));
    for (index g = 0; g < number(map.groups); ++g) {
      const index first = g * outputs + block;
      write_product(shape, from + g * channels, panel + first * view, to + first,
                    bias == nullptr ? nullptr : bias + first, accumulate);
    }
  }
}

/// x (=|+=) sum over the windows of view^T(W^T delta) + b, the adjoint of `through_windows`: one product a stride
/// phase, over delta read through its halo.
template <class Scalar>
void through_adjoint(const node_row& row, const Scalar* panels, index samples, images<const Scalar> in,
                     images<Scalar> out, const std::type_identity_t<Scalar>* bias, bool accumulate) {
  const affine_map& map = row.map;
  const layout& dx = out.of;
  const layout& dy = in.of;
  const auto number = [](std::size_t value) { return static_cast<index>(value); };
  const index channels = number(map.in_channels / map.groups);
  const index outputs = number(map.group_outputs());
  const Scalar* delta = in.first + dy.start;
  const Scalar* panel = panels + row.backward_panel;
  if (row.whole_view) {
    const index row_values = dx.line_pixels() * dx.values.channels;
    for (index r = 0; r < dx.lines(); ++r) {
      const product_shape shape =
          coalesce({{{}, {}, {samples, in.sample, out.sample}}, {{}, {}, {outputs, 1, dx.values.size()}}, row_values});
      write_product(shape, delta, panel + r * row_values, out.first + dx.line_start(r), nullptr, accumulate);
    }
    return;
  }
  for (index g = 0; g < number(map.groups); ++g) {
    const Scalar* group_bias = bias == nullptr ? nullptr : bias + g * channels;
    for_each_phase(map, [&](const phase& planes, const phase& rows, const phase& columns) {
      const index taps = planes.taps * rows.taps * columns.taps;
      const Scalar* here = panel;
      panel += taps * outputs * channels;
      if (planes.inputs == 0 || rows.inputs == 0 || columns.inputs == 0) return;
      Scalar* first = out.first + dx.start + planes.first_input * dx.plane + rows.first_input * dx.row +
                      columns.first_input * dx.column + g * channels;
      // Where taps are missing no window reaches these inputs: their sums are empty.
      const auto shape_of = [&](index panel_width) {
        return coalesce(
            {{{planes.inputs, dy.plane, number(map.stride.depth) * dx.plane},
              {rows.inputs, dy.row, number(map.stride.height) * dx.row},
              {columns.inputs, dy.column, number(map.stride.width) * dx.column}},
             {{rows.taps, rows.delta_step * dy.row, columns.taps * outputs * panel_width},
              {columns.taps, columns.delta_step * dy.column, outputs * panel_width},
              {outputs, 1, panel_width}},
             panel_width,
             {samples, in.sample, out.sample},
             {planes.taps, planes.delta_step * dy.plane, rows.taps * columns.taps * outputs * panel_width}});
      };
      const auto first_tap = [](const phase& axis) { return axis.first_delta - (axis.taps - 1) * axis.delta_step; };
      const Scalar* from = delta;
      if (taps > 0) {
        from += first_tap(planes) * dy.plane + first_tap(rows) * dy.row + first_tap(columns) * dy.column + g * outputs;
      }
      for (index block = 0; block < channels; block += panel_block) {
        write_product(shape_of(columns_of_block(channels, block)), from, here + block * taps * outputs, first + block,
                      group_bias == nullptr ? nullptr : group_bias + block, accumulate);
      }
    });
  }
}

/// y = W x + b at every pixel of the map, or with `adjoint` y (=|+=) W^T x: a product of pixels with the weights where
/// the parameters lie. `map`: that of a kernel of one pixel, of one group. Its one pixel may be stored as an image,
/// flattened.
template <class Scalar>
void through_pixels(const affine_map& map, const Scalar* weights, index samples, images<const Scalar> in,
                    images<Scalar> out, const std::type_identity_t<Scalar>* bias, bool adjoint, bool accumulate) {
  const layout& x = in.of;
  const layout& y = out.of;
  const auto number = [](std::size_t value) { return static_cast<index>(value); };
  const index inputs = number(map.in_channels);
  const index outputs = number(map.out_channels);
  product_shape shape = coalesce({{{number(map.out_size.depth), x.plane, y.plane},
                                   {number(map.out_size.height), x.row, y.row},
                                   {number(map.out_size.width), x.column, y.column}},
                                  {{}, {}, {adjoint ? outputs : inputs, 1, adjoint ? inputs : 1}},
                                  adjoint ? inputs : outputs,
                                  {samples, in.sample, out.sample}});
  if (!adjoint) shape.right_column = inputs;
  write_product(shape, in.first + x.start, weights, out.first + y.start, bias, accumulate);
}

/// y = W x + b for one position that sees every input once, with the weights where the parameters lie. As the left
/// operand of y^T = W x^T they are read row by row, each element once. Leaves x of each sample, in PyTorch's order, in
/// `rows`, whose sample 0 is the first. `scratch` has room for x^T and y^T. `inputs`: where the samples' x lie in
/// PyTorch's order, or null if they are in `in`.
template <class Scalar>
void through_weights(const node_row& row, const Scalar* weights, index samples, images<const Scalar> in,
                     images<Scalar> out, const std::type_identity_t<Scalar>* bias, const deferred_rows<Scalar>& rows,
                     Scalar* scratch, const Scalar* const* inputs) {
  const auto width = static_cast<index>(row.map.view_width());
  const auto outputs = static_cast<index>(row.map.out_channels);
  const layout plain = plain_twin(in.of);
  const bool in_order = in.of.values.plain() && in.of.dense();
  const Scalar* from = in_order ? in.first + in.of.start : scratch;
  const index step = in_order ? in.sample : round_up(width);
  for (index b = 0; !in_order && inputs == nullptr && b < samples; ++b) {
    transfer(in.of, in.first + b * in.sample, plain, scratch + b * step, false);
  }
  for (index b = 0; b < samples; ++b) {  // inputs come from beyond the caches: each from front to back
    const Scalar* const x = inputs != nullptr ? inputs[b] : from + b * step;
    const Scalar* const next = inputs != nullptr && b + 1 < samples ? inputs[b + 1] : x;
    for (index k = 0; k < width; k += rows.panel()) {
      Scalar* const to = rows.x(row.row_x, width, k, b);
      for_each_vector<Scalar>(rows.columns(width, k), [&](index i, const auto& lanes) {
        __builtin_prefetch(next + k + i);
        lanes.store(to + i, lanes.load(x + k + i));
      });
    }
  }
  Scalar* turned = scratch + round_up(width) * samples;
  for (index k = 0; k < width; k += rows.panel()) {  // of the panels: what was put into order makes way
    transpose(static_cast<const Scalar*>(rows.x(row.row_x, width, k, 0)), rows.x_step(width, k), samples,
              rows.columns(width, k), scratch + k * samples, samples);
  }
  const product_shape shape{{{}, {}, {outputs, width, samples}}, {{}, {}, {width, 1, samples}}, samples};
  product(shape, weights, static_cast<const Scalar*>(scratch), turned, epilogue::store{});
  Scalar* y = out.first + out.of.start;
  if (bias != nullptr) {
    transpose_plus(static_cast<const Scalar*>(turned), samples, outputs, samples, y, out.sample, bias);
  } else {
    transpose(static_cast<const Scalar*>(turned), samples, outputs, samples, y, out.sample);
  }
}

/// x (=|+=) W^T delta for the same layer. Of a W that no second cache holds a few rows at a time, so that they stream
/// through it side by side. `scratch` has room for x.
template <class Scalar>
void through_weights_adjoint(const node_row& row, const Scalar* weights, index samples, images<const Scalar> in,
                             images<Scalar> out, bool accumulate, Scalar* scratch) {
  constexpr index few = 32;
  constexpr index cached = (index{1} << 19) / static_cast<index>(sizeof(Scalar));
  const auto width = static_cast<index>(row.map.view_width());
  const auto outputs = static_cast<index>(row.map.out_channels);
  const index streams = outputs * width <= cached ? outputs : few;
  const bool in_place = out.of.values.plain() && out.of.dense();
  Scalar* to = in_place ? out.first + out.of.start : scratch;
  const index step = in_place ? out.sample : round_up(width);
  for (index n = 0; n < outputs; n += streams) {
    const product_shape shape{
        {{}, {}, {samples, in.sample, step}}, {{}, {}, {std::min(streams, outputs - n), 1, width}}, width};
    write_product(shape, in.first + in.of.start + n, weights + n * width, to, nullptr,
                  n > 0 || (in_place && accumulate));
  }
  for (index b = 0; !in_place && b < samples; ++b) {
    transfer(plain_twin(out.of), static_cast<const Scalar*>(to + b * step), out.of, out.first + b * out.sample,
             accumulate);
  }
}

}  // namespace pergrad::inline v0_1::on_host
