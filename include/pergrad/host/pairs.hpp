// SPDX-License-Identifier: Apache-2.0
// pergrad/host/pairs.hpp - convolutions with even kernels, of stride 1, and their weights' gradients by minimal
// filtering: 9 products where direct sums take 16
//
// Winograd's F(2, 2) along both axes. Two neighbouring outputs of a kernel with two taps take three products:
//
//   y0 = x0 w0 + x1 w1 = m0 + m1      m0 = (x0 - x1) w0
//   y1 = x1 w0 + x2 w1 = m1 - m2      m1 = x1 (w0 + w1)        m2 = (x1 - x2) w1
//
// A kernel of 2K taps is K such pairs two pixels apart. So for each of the nine pairs (row, column) of m's, x becomes
// an image of half the extents, the kernels become kernels of half the extents, and the products are an ordinary
// convolution of these, summed up in the outputs with signs. The gradient of the weights is the same with delta in the
// kernel's place: g0 = x0 d0 + x1 d1 and g1 = x1 d0 + x2 d1.
//
// One of the nine at a time, so that its images stay in the cache. Every element of a product is one chain of
// multiply-adds, and the order of the nine is fixed; bits depend on nothing but the sample. Sums of four values
// overflow where one is beyond a quarter of the largest number: the sample is then not finite.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <pergrad/detail/layout.hpp>
#include <pergrad/detail/processor.hpp>
#include <pergrad/detail/vector.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/host/pairs_extents.hpp>
#include <pergrad/host/product.hpp>
#include <pergrad/host/tables.hpp>
#include <pergrad/host/tile.hpp>
#include <pergrad/host/transpose.hpp>

namespace pergrad::inline v0_1::on_host {

/// `count` stretches of `values` elements.
template <class Scalar>
struct pair_task {
  index count = 0;
  index values = 0;
  const Scalar* from = nullptr;
  index from_step = 0;
  Scalar* to = nullptr;
  index to_step = 0;
  bool adds = false;  ///< or subtracts
  index row = 0;      ///< spread: to the values below and on the right; 0: they do not count
  index column = 0;
  bool onto = false;             ///< gather: what is there counts
  const Scalar* bias = nullptr;  ///< gather: added where nothing is there
};

template <class Scalar>
struct pair_kernels {
  void (*spread)(const pair_task<Scalar>&) noexcept;
  void (*gather)(const pair_task<Scalar>&) noexcept;
};

}  // namespace pergrad::inline v0_1::on_host

#define PERGRAD_FAMILY_TEXT "pergrad/host/pairs_text.hpp"
#include <pergrad/detail/every_family_text.hpp>

namespace pergrad::inline v0_1::on_host {

/// The kernels of a family, which must be compiled into the program.
template <class Scalar>
[[nodiscard]] inline const pair_kernels<Scalar>& pairs_of(kernel_family family) noexcept {
  return PERGRAD_OF_FAMILY(family, pairs::kernels<Scalar>);
}

/// One convolution in pairs. `row` and `column` are the steps of the stored image, whose first window begins at x.
template <class Scalar>
struct pair_filter {
  pair_extents of;
  index row = 0;
  index column = 0;
  const pair_kernels<Scalar>& kernels = pairs_of<Scalar>(kernel_family_in_use());

  /// Calls f(m's row, m's column, number) for the nine.
  template <class Function>
  static void for_each_part(Function&& f) {
    for (index part = 0; part < 9; ++part) f(part / 3, part % 3, part);
  }

  /// The image that x becomes: [patch row][patch column][channel].
  void spread(const Scalar* x, index m_row, index m_column, Scalar* to) const noexcept {
    pair_task<Scalar> task;
    task.count = of.patch_columns();
    task.values = of.channels;
    task.from_step = 2 * column;
    task.to_step = of.channels;
    task.row = m_row == 1 ? 0 : row;
    task.column = m_column == 1 ? 0 : column;
    x += (m_row > 0 ? row : 0) + (m_column > 0 ? column : 0);
    for (index i = 0; i < of.patch_rows(); ++i) {
      task.from = x + 2 * i * row;
      task.to = to + i * of.patch_columns() * of.channels;
      kernels.spread(task);
    }
  }
  /// The same of delta: d0, d0 + d1 and d1. What lies beyond the image counts as 0.
  void spread_delta(const Scalar* delta, index delta_row, index delta_column, index m_row, index m_column,
                    Scalar* to) const noexcept {
    const index width = of.tile_columns() * of.outputs;
    pair_task<Scalar> task;
    task.values = of.outputs;
    task.from_step = 2 * delta_column;
    task.to_step = of.outputs;
    task.adds = true;
    const index whole = of.width / 2;
    for (index i = 0; i < of.tile_rows(); ++i) {
      const bool has_below = 2 * i + 1 < of.height;
      task.to = to + i * width;
      if (m_row == 2 && !has_below) {
        std::fill_n(task.to, width, Scalar{0});
        continue;
      }
      task.row = m_row == 1 && has_below ? delta_row : 0;
      const Scalar* const from = delta + (2 * i + (m_row == 2 ? 1 : 0)) * delta_row;
      task.from = from + (m_column == 2 ? delta_column : 0);
      task.count = whole;
      task.column = m_column == 1 ? delta_column : 0;
      kernels.spread(task);
      if (whole == of.tile_columns()) continue;
      task.to += whole * of.outputs;
      if (m_column == 2) {
        std::fill_n(task.to, of.outputs, Scalar{0});
        continue;
      }
      task.from = from + 2 * whole * delta_column;
      task.count = 1;
      task.column = 0;
      kernels.spread(task);
    }
  }

  /// What one of the nine adds to two by two places: calls f(row, column, adds, is first) for each that it reaches.
  template <class Function>
  static void for_each_place(index m_row, index m_column, Function&& f) {
    for (index i = 0; i < 2; ++i) {
      for (index j = 0; j < 2; ++j) {
        if (m_row - i < 0 || m_row - i > 1 || m_column - j < 0 || m_column - j > 1) continue;
        const bool subtracts_row = i == 1 && m_row == 2;
        const bool subtracts_column = j == 1 && m_column == 2;
        f(i, j, subtracts_row == subtracts_column, m_row == i && m_column == j);
      }
    }
  }

  /// y = conv(x, kernels) + b of one sample. `panel` holds the packed kernels, `room` of.forward_room() elements.
  void forward(const Scalar* x, const Scalar* panel, Scalar* y, index y_row, index y_column, const Scalar* bias,
               Scalar* room) const noexcept {
    Scalar* const sums = room + of.spread();
    for_each_part([&](index m_row, index m_column, index part) {
      spread(x, m_row, m_column, room);
      const Scalar* const weights = panel + part * of.kernels();
      const index line_values = of.patch_columns() * of.channels;
      const index view = of.kernel_rows * of.kernel_columns * of.channels;
      for (index block = 0; block < of.outputs; block += panel_block) {
        const index columns = columns_of_block(of.outputs, block);
        const product_shape shape = coalesce({{{},
                                               {of.tile_rows(), line_values, of.tile_columns() * of.outputs},
                                               {of.tile_columns(), of.channels, of.outputs}},
                                              {{},
                                               {of.kernel_rows, line_values, of.kernel_columns * of.channels * columns},
                                               {of.kernel_columns * of.channels, 1, columns}},
                                              columns});
        product(shape, static_cast<const Scalar*>(room), weights + block * view, sums + block, epilogue::store{});
      }
      pair_task<Scalar> task;
      task.values = of.outputs;
      task.from_step = of.outputs;
      task.to_step = 2 * y_column;
      task.bias = bias;
      for_each_place(m_row, m_column, [&](index i, index j, bool adds, bool first) {
        task.adds = adds;
        task.onto = !first;
        task.count = (of.width - j + 1) / 2;
        for (index r = i; r < of.height; r += 2) {
          task.from = sums + r / 2 * of.tile_columns() * of.outputs;
          task.to = y + r * y_row + j * y_column;
          kernels.gather(task);
        }
      });
    });
  }

  /// G (=|+=) sum over positions of delta (x) x of one sample, natively [kernel row][kernel column][channel][output].
  /// `room` holds of.gradient_room() elements.
  void gradient(const Scalar* x, const Scalar* delta, index delta_row, index delta_column, Scalar* out, bool onto,
                Scalar* room) const noexcept {
    Scalar* const deltas = room + of.spread();
    Scalar* const sums = deltas + of.tiles();
    const index tap = of.channels * of.outputs;
    const index line_values = of.patch_columns() * of.channels;
    for_each_part([&](index m_row, index m_column, index) {
      spread(x, m_row, m_column, room);
      spread_delta(delta, delta_row, delta_column, m_row, m_column, deltas);
      for (index block = 0; block < of.outputs; block += panel_block) {
        const product_shape shape = coalesce({{{},
                                               {of.kernel_rows, line_values, of.kernel_columns * tap},
                                               {of.kernel_columns * of.channels, 1, of.outputs}},
                                              {{},
                                               {of.tile_rows(), line_values, of.tile_columns() * of.outputs},
                                               {of.tile_columns(), of.channels, of.outputs}},
                                              columns_of_block(of.outputs, block)});
        product(shape, static_cast<const Scalar*>(room), static_cast<const Scalar*>(deltas + block), sums + block,
                epilogue::store{});
      }
      pair_task<Scalar> task;
      task.count = of.kernel_columns;
      task.values = tap;
      task.from_step = tap;
      task.to_step = 2 * tap;
      for_each_place(m_row, m_column, [&](index i, index j, bool adds, bool first) {
        task.adds = adds;
        task.onto = onto || !first;
        for (index p = 0; p < of.kernel_rows; ++p) {
          task.from = sums + p * of.kernel_columns * tap;
          task.to = out + ((2 * p + i) * 2 * of.kernel_columns + j) * tap;
          kernels.gather(task);
        }
      });
    });
  }
};

/// `through_windows` in pairs, for a row that says so.
template <class Scalar>
void through_pairs(const node_row& row, const Scalar* panel, index samples, images<const Scalar> in, images<Scalar> out,
                   const std::type_identity_t<Scalar>* bias, Scalar* room) {
  const pair_filter<Scalar> filter{extents_in_pairs(row.map), in.of.row, in.of.column};
  const index first = in.of.start - static_cast<index>(row.map.padding.height) * in.of.row -
                      static_cast<index>(row.map.padding.width) * in.of.column;
  for (index b = 0; b < samples; ++b) {
    filter.forward(in.first + b * in.sample + first, panel, out.first + b * out.sample + out.of.start, out.of.row,
                   out.of.column, bias, room);
  }
}

/// A leaf's gradient (=|+=) of one sample, whose x and delta are given.
template <class Scalar>
void gradient_in_pairs(const outer_leaf& leaf, const Scalar* x, const Scalar* delta, Scalar* out, bool onto,
                       Scalar* room) noexcept {
  const step_axis(&step)[2] = leaf.step;
  const pair_filter<Scalar> filter{{leaf.view[2].extent, leaf.outputs, step[0].extent, step[1].extent,
                                    leaf.view[0].extent / 2, leaf.view[1].extent / 2},
                                   step[0].x,
                                   step[1].x};
  filter.gradient(x, delta, step[0].delta, step[1].delta, out, onto, room);
}

/// Kernels of outputs [first, last) from PyTorch's order into nine times `[block of outputs][pair of rows][pair of
/// columns][channel][output]`: w0, w0 + w1 and w1 along both axes.
template <class Scalar>
inline void pack_pairs(const affine_map& map, const Scalar* weights, Scalar* panel, index first, index last) {
  constexpr index columns_together = 16;
  const pair_extents of = extents_in_pairs(map);
  const index width = 2 * of.kernel_columns;
  const index taps = 2 * of.kernel_rows * width;
  const index view = of.kernel_rows * of.kernel_columns * of.channels;
  // A cache line of outputs at a time, turned round: their kernels lie far apart.
  alignas(64) Scalar rows[2][columns_together * line] = {};
  const auto in_pairs = [](Scalar a, Scalar b, index m) { return m == 0 ? a : m == 1 ? a + b : b; };
  for (index n = first; n < last;) {
    const index together = std::min(line - n % line, last - n);
    const index block = n / panel_block * panel_block;
    const index block_width = columns_of_block(of.outputs, block);
    Scalar* const to = panel + block * view + n - block;
    for (index c = 0; c < of.channels; ++c) {
      const Scalar* const from = weights + (n * of.channels + c) * taps;
      for (index p = 0; p < of.kernel_rows; ++p) {
        for (index s = 0; s < width; s += columns_together) {
          const index here = std::min(columns_together, width - s);
          for (index r = 0; r < 2; ++r) {
            transpose(from + (2 * p + r) * width + s, of.channels * taps, together, here, rows[r], line);
          }
          for (index q = 0; q < here / 2; ++q) {
            const index pair = p * of.kernel_columns + s / 2 + q;
            for (index part = 0; part < 9; ++part) {
              Scalar* const out = to + part * of.kernels() + (pair * of.channels + c) * block_width;
              for (index j = 0; j < together; ++j) {
                const index at = 2 * q * line + j;
                out[j] = in_pairs(in_pairs(rows[0][at], rows[0][at + line], part % 3),
                                  in_pairs(rows[1][at], rows[1][at + line], part % 3), part / 3);
              }
            }
          }
        }
      }
    }
    n += together;
  }
}

}  // namespace pergrad::inline v0_1::on_host
