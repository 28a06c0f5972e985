// SPDX-License-Identifier: Apache-2.0
// pergrad/host/conv/winograd.hpp - 3 x 3 convolutions of stride 1 by minimal filtering: 16 products where direct sums
// take 36
//
// Winograd's F(2 x 2, 3 x 3), after Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016,
// arXiv:1509.09308). Each 2 x 2 outputs see a patch d of 4 x 4 pixels, patches overlap by two:
//
//   V = B^T d B           a patch, channel by channel
//   U = G g G^T           a kernel, once a step
//   M = sum over c of U V an element of the 4 x 4 at a time: 16 matrix products over all patches
//   Y = A^T M A           a patch, output by output
//
//         1  0 -1  0           1   0   0            1  0
//   B^T = 0  1  1  0     G =  1/2 1/2 1/2     A =   1  1
//         0 -1  1  0          1/2 -1/2 1/2          1 -1
//         0  1  0 -1           0   0   1            0 -1
//
// The input gradient is the same with delta for x and the kernels turned round. A few rows of patches at a time, so
// that V and M stay in the cache. Every element of M is one chain of multiply-adds over the channels, and the
// transforms look at one patch; so no bit depends on how patches are cut into stripes or which samples share them. Sums
// of four values overflow where one is beyond a quarter of the largest number: the sample is then not finite.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/affine.hpp>
#include <pergrad/host/gemm/micro_kernel.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/gemm/transpose.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/winograd_extents.hpp>
#include <pergrad/simd/processor.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// One row of patches: from its pixels to V, or from M to its outputs.
template <class Scalar>
struct winograd_task {
  index patches = 0;
  index channels = 0;
  index row = 0;  ///< steps of the image
  index column = 0;
  const Scalar* x = nullptr;   ///< the first patch's first pixel
  Scalar* y = nullptr;         ///< the first patch's first output
  Scalar* products = nullptr;  ///< V or M: [16][patch][channel], of the row's first patch
  index step = 0;              ///< from one of the 16 to the next
  index width = 0;             ///< outputs of the row, and how many of its two rows exist
  index height = 0;
  const Scalar* bias = nullptr;
  bool accumulate = false;
};

/// `count` stretches of `values` elements, from where they lie to where they go, in pairs (pairs.hpp).
template <class Scalar>
struct pair_task {
  index count = 0;
  index values = 0;
  const Scalar* from = nullptr;
  index from_step = 0;
  Scalar* to = nullptr;
  index to_step = 0;
  Scalar sign = 1;               ///< of what joins a value
  index row = 0;                 ///< to the value below that joins it; 0: none does
  index column = 0;              ///< on the right
  bool onto = false;             ///< it joins what is there
  const Scalar* bias = nullptr;  ///< added
};

template <class Scalar>
struct pair_kernels {
  void (*combine)(const pair_task<Scalar>&) noexcept;
};
template <class Scalar>
struct winograd_kernels {
  void (*spread)(const winograd_task<Scalar>&) noexcept;
  void (*gather)(const winograd_task<Scalar>&) noexcept;
};

}  // namespace pergrad::inline v0_1::on_host

#define PERGRAD_TARGET_SOURCE "pergrad/host/conv/winograd.inl"
#include <pergrad/simd/multi_target.inl>

namespace pergrad::inline v0_1::on_host {

/// The kernels of a target, which must be compiled into the program.
template <class Scalar>
[[nodiscard]] inline const winograd_kernels<Scalar>& winograd_of(kernel_target target) noexcept {
  return PERGRAD_OF_TARGET(target, winograd::kernels<Scalar>);
}

template <class Scalar>
[[nodiscard]] inline const pair_kernels<Scalar>& pairs_of(kernel_target target) noexcept {
  return PERGRAD_OF_TARGET(target, winograd::in_pairs<Scalar>);
}

/// U = G g G^T of `count` <= line kernels, of which `taps` holds [9][line]: `to[16][count]`, the 16 `to_step` apart.
/// What `taps` holds beyond `count` does not matter.
template <class Scalar>
inline void transform_kernels(const Scalar* taps, index count, Scalar* to, index to_step) noexcept {
  // Halves are exact, so that a compiler that contracts changes nothing.
  constexpr Scalar half = Scalar{1} / 2;
  alignas(64) Scalar rows[12 * line];
  for (index s = 0; s < 3 * line; ++s) {
    const Scalar ends = half * (taps[s] + taps[6 * line + s]);
    const Scalar middle = half * taps[3 * line + s];
    rows[s] = taps[s];
    rows[3 * line + s] = ends + middle;
    rows[6 * line + s] = ends - middle;
    rows[9 * line + s] = taps[6 * line + s];
  }
  alignas(64) Scalar result[4 * line];
  for (index r = 0; r < 4; ++r) {
    const Scalar* row = rows + r * 3 * line;
    for (index j = 0; j < line; ++j) {
      const Scalar ends = half * (row[j] + row[2 * line + j]);
      const Scalar middle = half * row[line + j];
      result[j] = row[j];
      result[line + j] = ends + middle;
      result[2 * line + j] = ends - middle;
      result[3 * line + j] = row[2 * line + j];
    }
    for (index s = 0; s < 4; ++s) {
      Scalar* const out = to + (4 * r + s) * to_step;
      if (count == line) {  // a constant count is two moves, not a call
        std::copy_n(result + s * line, line, out);
      } else {
        std::copy_n(result + s * line, count, out);
      }
    }
  }
}

/// Kernels of outputs [first, last) from PyTorch's order into `[16][block of outputs][channel][output]`.
template <class Scalar>
inline void pack_winograd_forward(const affine_map& map, const Scalar* weights, Scalar* panel, index first,
                                  index last) {
  constexpr index at_once = 16;
  const index step = winograd_forward(map).panel_step();
  const auto channels = static_cast<index>(map.in_channels);
  const auto outputs = static_cast<index>(map.out_channels);
  alignas(64) Scalar taps[at_once * 9 * line] = {};
  for (index n = first; n < last;) {
    const index together = std::min(line - n % line, last - n);
    const index block = n / panel_block * panel_block;
    const index block_width = columns_of_block(outputs, block);
    Scalar* to = panel + block * channels + n - block;
    for (index c = 0; c < channels; c += at_once) {
      const index here = std::min(at_once, channels - c);
      transpose(weights + (n * channels + c) * 9, channels * 9, together, here * 9, taps, line);
      for (index k = 0; k < here; ++k) {
        transform_kernels<Scalar>(taps + k * 9 * line, together, to + (c + k) * block_width, step);
      }
    }
    n += together;
  }
}
/// The same, turned round, into `[16][block of channels][output][channel]`.
template <class Scalar>
inline void pack_winograd_backward(const affine_map& map, const Scalar* weights, Scalar* panel, index first,
                                   index last) {
  const index step = winograd_backward(map).panel_step();
  const auto channels = static_cast<index>(map.in_channels);
  const auto outputs = static_cast<index>(map.out_channels);
  alignas(64) Scalar taps[9 * line] = {};
  for (index c = 0; c < channels; c += line) {
    const index together = std::min(line, channels - c);
    const index block = c / panel_block * panel_block;
    const index block_width = columns_of_block(channels, block);
    for (index n = first; n < last; ++n) {
      const Scalar* from = weights + (n * channels + c) * 9;
      for (index tap = 0; tap < 9; ++tap) {
        for (index j = 0; j < together; ++j) taps[(8 - tap) * line + j] = from[j * 9 + tap];
      }
      transform_kernels<Scalar>(taps, together, panel + block * outputs + n * block_width + c - block, step);
    }
  }
}

/// y (=|+=) conv(x, kernels) + b over the samples of a tile, `rows_together` rows of patches at a time. `room` holds
/// `extents.room(rows_together)` elements.
///
/// Reads the whole patches: an odd extent has one row or column of pixels more than the outputs see. What they hold
/// meets no output.
template <class Scalar>
void through_patches(const winograd_extents& extents, index rows_together, const Scalar* panel, index samples,
                     images<const Scalar> x, images<Scalar> y, const Scalar* bias, bool accumulate, Scalar* room) {
  const winograd_kernels<Scalar>& kernels = winograd_of<Scalar>(kernel_target_in_use());
  const index patch_rows = extents.patch_rows();
  const index patch_columns = extents.patch_columns();
  const index rows_count = samples * patch_rows;
  winograd_task<Scalar> in;
  in.patches = patch_columns;
  in.channels = extents.channels;
  in.row = x.of.row;
  in.column = x.of.column;
  in.step = extents.spread_step(rows_together);
  winograd_task<Scalar> out;
  out.patches = patch_columns;
  out.channels = extents.outputs;
  out.row = y.of.row;
  out.column = y.of.column;
  out.step = extents.sums_step(rows_together);
  out.width = extents.width;
  out.bias = bias;
  out.accumulate = accumulate;
  const Scalar* const first_patch = x.first + x.of.start - extents.above * x.of.row - extents.left * x.of.column;
  Scalar* const first_output = y.first + y.of.start;
  Scalar* const spread = room;
  Scalar* const sums = room + 16 * in.step;
  for (index first = 0; first < rows_count; first += rows_together) {
    const index count = std::min(rows_together, rows_count - first);
    for (index r = 0; r < count; ++r) {
      in.x = first_patch + (first + r) / patch_rows * x.sample + (first + r) % patch_rows * 2 * x.of.row;
      in.products = spread + r * patch_columns * extents.channels;
      kernels.spread(in);
    }
    for (index element = 0; element < 16; ++element) {
      const Scalar* of_element = panel + element * extents.panel_step();
      for (index block = 0; block < extents.outputs; block += panel_block) {
        const index columns = columns_of_block(extents.outputs, block);
        const product_shape shape{{{}, {}, {count * patch_columns, extents.channels, extents.outputs}},
                                  {{}, {}, {extents.channels, 1, columns}},
                                  columns};
        product(shape, static_cast<const Scalar*>(spread + element * in.step), of_element + block * extents.channels,
                sums + element * out.step + block, epilogue::store{});
      }
    }
    for (index r = 0; r < count; ++r) {
      const index row = (first + r) % patch_rows * 2;
      out.y = first_output + (first + r) / patch_rows * y.sample + row * y.of.row;
      out.height = std::min(index{2}, extents.height - row);
      out.products = sums + r * patch_columns * extents.outputs;
      kernels.gather(out);
    }
  }
}

/// `through_windows` by minimal filtering, for a row that says so.
template <class Scalar>
void filter_windows(const node_row& row, const Scalar* panels, index samples, images<const Scalar> in,
                    images<Scalar> out, const std::type_identity_t<Scalar>* bias, Scalar* room) {
  through_patches(winograd_forward(row.map), row.winograd_rows, panels + row.forward_panel, samples, in, out, bias,
                  false, room);
}
/// `through_adjoint` in the same way.
template <class Scalar>
void filter_adjoint(const node_row& row, const Scalar* panels, index samples, images<const Scalar> in,
                    images<Scalar> out, bool accumulate, Scalar* room) {
  through_patches<Scalar>(winograd_backward(row.map), row.winograd_dx_rows, panels + row.backward_panel, samples, in,
                          out, nullptr, accumulate, room);
}

}  // namespace pergrad::inline v0_1::on_host
