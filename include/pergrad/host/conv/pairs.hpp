// SPDX-License-Identifier: Apache-2.0
// pergrad/host/conv/pairs.hpp - convolutions with even kernels, of stride 1, and their weights' gradients by minimal
// filtering: 9 products where direct sums take 16
//
// Winograd's F(2, 2) along both axes. Two neighbouring outputs of a kernel with two taps take three products:
//
//   y0 = x0 w0 + x1 w1 = m0 + m1      m0 = (x0 - x1) w0
//   y1 = x1 w0 + x2 w1 = m1 - m2      m1 = x1 (w0 + w1)        m2 = (x1 - x2) w1
//
// A kernel of 2K taps is K such pairs two pixels apart. So for each of the nine pairs (row, column) of m's, x becomes
// an image of half the extents, the kernels become kernels of half the extents, and the products are an ordinary
// convolution of these, added up in the outputs with signs. The gradient of the weights is the same with delta in the
// kernel's place: g0 = x0 d0 + x1 d1 and g1 = x1 d0 + x2 d1.
//
// One of the nine at a time, so that its images stay in the cache. Every element of a product is one chain of
// multiply-adds, and the order of the nine is fixed; bits depend on nothing but the sample. Sums of four values
// overflow where one is beyond a quarter of the largest number: the sample is then not finite.
#pragma once

#include <cstddef>
#include <type_traits>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/winograd.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/winograd_extents.hpp>
#include <pergrad/simd/processor.hpp>

namespace pergrad::inline v0_1::on_host {

/// One convolution in pairs.
template <class Scalar>
struct pair_filter {
  pair_extents of;
  const pair_kernels<Scalar>& kernels = pairs_of<Scalar>(kernel_target_in_use());

  /// An image to be halved, from its first pixel on, and its steps.
  struct image {
    const Scalar* first;
    index row;
    index column;
  };
  /// x: x0 - x1, x1 and x1 - x2. delta: d0, d0 + d1 and d1. What of it lies behind its image is 0.
  void spread(const image& from, bool is_delta, index m_row, index m_column, Scalar* to) const noexcept {
    const auto skipped = [&](index m) { return index{is_delta ? m == 2 : m > 0}; };
    pair_task<Scalar> task;
    task.count = is_delta ? of.output_columns() : of.input_columns();
    task.values = is_delta ? of.outputs : of.channels;
    task.from_step = 2 * from.column;
    task.to_step = task.values;
    task.sign = is_delta ? Scalar{1} : Scalar{-1};
    task.row = (m_row == 1) == is_delta ? from.row : 0;
    task.column = (m_column == 1) == is_delta ? from.column : 0;
    task.from = from.first + skipped(m_row) * from.row + skipped(m_column) * from.column;
    task.to = to;
    for (index i = is_delta ? of.output_rows() : of.input_rows(); i > 0; --i) {
      kernels.combine(task);
      task.from += 2 * from.row;
      task.to += task.count * task.values;
    }
  }
  /// Adds one of the nine to the two by two places that it reaches: f(row, column, task), which has its sign.
  template <class Function>
  static void gather(index m_row, index m_column, bool onto, pair_task<Scalar> task, const Function& f) {
    for (index i = m_row > 0 ? m_row - 1 : 0; i < 2 && i <= m_row; ++i) {
      for (index j = m_column > 0 ? m_column - 1 : 0; j < 2 && j <= m_column; ++j) {
        pair_task<Scalar> here = task;
        here.sign = (i == 1 && m_row == 2) == (j == 1 && m_column == 2) ? Scalar{1} : Scalar{-1};
        here.onto = onto || m_row != i || m_column != j;
        if (here.onto) here.bias = nullptr;
        f(i, j, here);
      }
    }
  }

  /// y = conv(x, kernels) + b of one sample. `panel` holds the packed kernels, `room` of.room() elements.
  void forward(const image& x, const Scalar* panel, Scalar* y, index y_row, index y_column, const Scalar* bias,
               Scalar* room) const noexcept {
    Scalar* const sums = room + of.of_input();
    const index view = of.kernel_columns * of.channels;
    for (index part = 0; part < 9; ++part) {
      spread(x, false, part / 3, part % 3, room);
      for (index block = 0; block < of.outputs; block += panel_block) {
        const index columns = columns_of_block(of.outputs, block);
        const rows down[] = {{of.output_rows(), line_values(), of.output_columns() * of.outputs},
                             {of.output_columns(), of.channels, of.outputs}};
        const loop terms[] = {{of.kernel_rows, line_values(), view * columns}, {view, 1, columns}};
        multiply(down, terms, columns, room, panel + part * of.of_kernels() + block * of.kernel_rows * view,
                 sums + block);
      }
      pair_task<Scalar> task;
      task.values = task.from_step = of.outputs;
      task.to_step = 2 * y_column;
      task.bias = bias;
      gather(part / 3, part % 3, false, task, [&](index i, index j, pair_task<Scalar>& here) {
        here.count = (of.width - j + 1) / 2;
        for (index r = i; r < of.height; r += 2) {
          here.from = sums + r / 2 * of.output_columns() * of.outputs;
          here.to = y + r * y_row + j * y_column;
          kernels.combine(here);
        }
      });
    }
  }

  /// G (=|+=) sum over positions of delta (x) x of one sample, natively [kernel row][kernel column][channel][output].
  /// `room` holds of.room() elements.
  void gradient(const image& x, const image& delta, Scalar* out, bool onto, Scalar* room) const noexcept {
    Scalar* const deltas = room + of.of_input();
    Scalar* const sums = deltas + of.of_output();
    const index tap = of.channels * of.outputs;
    for (index part = 0; part < 9; ++part) {
      spread(x, false, part / 3, part % 3, room);
      spread(delta, true, part / 3, part % 3, deltas);
      for (index block = 0; block < of.outputs; block += panel_block) {
        const rows down[] = {{of.kernel_rows, line_values(), of.kernel_columns * tap},
                             {of.kernel_columns * of.channels, 1, of.outputs}};
        const loop terms[] = {{of.output_rows(), line_values(), of.output_columns() * of.outputs},
                              {of.output_columns(), of.channels, of.outputs}};
        multiply(down, terms, columns_of_block(of.outputs, block), room, deltas + block, sums + block);
      }
      pair_task<Scalar> task;
      task.count = of.kernel_columns;
      task.values = task.from_step = tap;
      task.to_step = 2 * tap;
      gather(part / 3, part % 3, onto, task, [&](index i, index j, pair_task<Scalar>& here) {
        for (index p = 0; p < of.kernel_rows; ++p) {
          here.from = sums + p * of.kernel_columns * tap;
          here.to = out + ((2 * p + i) * 2 * of.kernel_columns + j) * tap;
          kernels.combine(here);
        }
      });
    }
  }

 private:
  [[nodiscard]] index line_values() const noexcept { return of.input_columns() * of.channels; }
  static void multiply(const rows (&down)[2], const loop (&terms)[2], index columns, const Scalar* left,
                       const Scalar* right, Scalar* out) noexcept {
    product(coalesce({{{}, down[0], down[1]}, {{}, terms[0], terms[1]}, columns}), left, right, out, epilogue::store{});
  }
};

/// `through_windows` in pairs, for a row that says so.
template <class Scalar>
void filter_in_pairs(const node_row& row, const Scalar* panels, index samples, images<const Scalar> in,
                     images<Scalar> out, const std::type_identity_t<Scalar>* bias, Scalar* room) {
  const pair_filter<Scalar> filter{extents_in_pairs(row.map)};
  const Scalar* const first = in.first + in.of.start - static_cast<index>(row.map.padding.height) * in.of.row -
                              static_cast<index>(row.map.padding.width) * in.of.column;
  for (index b = 0; b < samples; ++b) {
    filter.forward({first + b * in.sample, in.of.row, in.of.column}, panels + row.forward_panel,
                   out.first + b * out.sample + out.of.start, out.of.row, out.of.column, bias, room);
  }
}

/// A leaf's gradient (=|+=) of one sample, whose x and delta are given.
template <class Scalar>
void gradient_in_pairs(const outer_leaf& leaf, const Scalar* x, const Scalar* delta, Scalar* out, bool onto,
                       Scalar* room) noexcept {
  const step_axis(&step)[2] = leaf.step;
  const pair_filter<Scalar> filter{{leaf.view[2].extent, leaf.outputs, step[0].extent, step[1].extent,
                                    leaf.view[0].extent / 2, leaf.view[1].extent / 2}};
  filter.gradient({x, step[0].x, step[1].x}, {delta, step[0].delta, step[1].delta}, out, onto, room);
}

/// Kernels of outputs [first, last) from PyTorch's order into nine times `[block of outputs][pair of rows][pair of
/// columns][channel][output]`: w0, w0 + w1 and w1 along both axes.
template <class Scalar>
void pack_pairs(const affine_map& map, const Scalar* weights, Scalar* panel, index first, index last) {
  const pair_extents of = extents_in_pairs(map);
  const index width = 2 * of.kernel_columns;
  const index pairs = of.kernel_rows * of.kernel_columns;
  const auto joined = [](Scalar a, Scalar b, index m) { return m == 0 ? a : m == 1 ? a + b : b; };
  for (index c = 0; c < of.channels; ++c) {
    for (index pair = 0; pair < pairs; ++pair) {
      const index corner = pair / of.kernel_columns * 2 * width + pair % of.kernel_columns * 2;
      for (index n = first; n < last; ++n) {
        const index block = n / panel_block * panel_block;
        const Scalar* const taps = weights + (n * of.channels + c) * 4 * pairs + corner;
        Scalar* const to = panel + block * pairs * of.channels +
                           (pair * of.channels + c) * columns_of_block(of.outputs, block) + n - block;
        for (index part = 0; part < 9; ++part) {
          to[part * of.of_kernels()] =
              joined(joined(taps[0], taps[1], part % 3), joined(taps[width], taps[width + 1], part % 3), part / 3);
        }
      }
    }
  }
}

}  // namespace pergrad::inline v0_1::on_host
