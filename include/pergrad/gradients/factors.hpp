// SPDX-License-Identifier: Apache-2.0
// pergrad/gradients/factors.hpp - how a layer states its per-sample gradient: once, as factors that lie on the tape
//
// Every parameter block's gradient for sample b is one of
//     outer-product sum    G_b = sum_t  delta_{b,t} (x) x_{b,t}        (rows = delta, columns = x)
//     elementwise sum      g_b = sum_t  delta_{b,t} (.) u_{b,t}        (u = 1 for a bias)
//     row sum              G_b[id] = sum over t with id_{b,t} = id of  delta_{b,t}   (a table, few rows used)
// so a layer only says WHERE delta, x and u lie. Norms, clipping, sums, materialised gradients and the memory plan are
// derived. An affine layer (linear, convolution) says even less: y_t = W view_t(x) + b; the view is its x, the output
// gradient its delta.
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// Where a factor's values lie, for one sample.
enum class source {
  activation,         ///< the layer's input x
  second_activation,  ///< the second input of a layer that has two
  output,             ///< the layer's output y
  backprop,           ///< the gradient of the loss with respect to the layer's output
  saved,              ///< values that the layer's own forward or backward wrote to its saved area
  ones                ///< the constant 1 (elementwise factors only)
};

/// One factor: values at `offset + t * position_stride + i * stride` of a source, for position t and element i.
struct operand {
  source from = source::ones;
  std::size_t offset = 0;
  std::size_t position_stride = 0;
  std::size_t stride = 1;
};

/// One parameter block's gradient. Make it with `outer_sum` or `elementwise_sum`.
struct factor {
  bool outer = false;
  std::size_t positions = 1;  ///< T
  std::size_t rows = 0;       ///< width of delta; for an elementwise sum the block's size
  std::size_t columns = 1;    ///< width of x; 1 for an elementwise sum
  operand delta;
  operand other;        ///< x of an outer product, u of an elementwise product, the ids of a row sum
  bool sparse = false;  ///< a row sum: `rows` is the vocabulary, `columns` the width of delta
  std::size_t skipped_id = ~std::size_t{0};  ///< of a row sum: an id whose row has no gradient
  bool by_ids = false;  ///< an outer sum whose delta_t is 1 at the id that position t holds, and 0 elsewhere

  /// Parameters in the block; an outer block is stored `[rows][columns]`, like PyTorch's `[out, in]`.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return rows * columns; }
};

/// `G = sum_t delta_t (x) x_t`, a block of `rows * columns` parameters.
[[nodiscard]] constexpr factor outer_sum(std::size_t positions, std::size_t rows, operand delta, std::size_t columns,
                                         operand x) noexcept {
  return {.outer = true, .positions = positions, .rows = rows, .columns = columns, .delta = delta, .other = x};
}
/// `g = sum_t delta_t (.) u_t`, a block of `count` parameters. With `u` left out, u = 1: a bias.
[[nodiscard]] constexpr factor elementwise_sum(std::size_t positions, std::size_t count, operand delta,
                                               operand u = {}) noexcept {
  return {.positions = positions, .rows = count, .delta = delta, .other = u};
}
/// `G[id] = sum of delta_t over the positions t that hold id`, a block of `vocabulary * width` parameters. The ids are
/// the layer's input. With a position stride of 0 all positions share one delta.
[[nodiscard]] constexpr factor row_sum(std::size_t positions, std::size_t vocabulary, std::size_t width, operand delta,
                                       std::size_t skipped_id = ~std::size_t{0}) noexcept {
  return {.positions = positions,
          .rows = vocabulary,
          .columns = width,
          .delta = delta,
          .other = {.from = source::activation},
          .sparse = true,
          .skipped_id = skipped_id};
}

/// A row sum as the outer-product sum that it is: `G = sum_t onehot(id_t) (x) delta_t`. So a table may be shared with a
/// layer whose gradient is an outer-product sum of the same extents.
[[nodiscard]] constexpr factor as_outer_sum(const factor& rows) noexcept {
  factor turned = rows;
  turned.outer = turned.by_ids = true;
  turned.sparse = false;
  turned.delta = rows.other;
  turned.other = rows.delta;
  return turned;
}

/// A weight matrix `[rows][columns]` that begins at `offset` of a layer's parameters.
struct matrix {
  std::size_t offset = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

/// A product `y_t = W x_t (+ b)` of a layer on tiles, over all positions of its input: what an executor may form for
/// all samples of a batch together, before the layer if it reads one of the layer's inputs, behind it if saved values;
/// and the same back, from `delta` to the gradient of x. Then the layer's team says `projected`.
struct position_projection {
  std::size_t positions = 0;
  matrix weights;
  operand x;                           ///< of an input, or saved
  operand y;                           ///< saved, or the output
  operand delta;                       ///< of y, when the layer's backward is done or, behind a layer, when it begins
  std::size_t bias = ~std::size_t{0};  ///< where among the layer's parameters; none otherwise
  std::size_t gradient = 0;            ///< of saved x: where in scratch its gradient goes
  [[nodiscard]] constexpr bool reads_input() const noexcept { return x.from != source::saved; }
};

/// What a layer's `factors(shape)` returns: its blocks in the order of its parameters.
template <std::size_t Count>
using factor_list = std::array<factor, Count>;

/// A tensor among a layer's parameters: its name in files, and its extents there, as PyTorch's module has them. One
/// whose first extent is 0 is not there.
struct parameter_block {
  const char* name = "";
  std::array<std::size_t, 5> extents{};  ///< 0: no further axis
};
/// What a layer's `blocks(shape)` returns, in the order of its parameters. A layer without it has `weight` and `bias`
/// if it is affine, else its factors by number.
template <std::size_t Count>
using block_list = std::array<parameter_block, Count>;

template <class... Factors>
[[nodiscard]] constexpr factor_list<sizeof...(Factors)> list_factors(Factors... factors) noexcept {
  return {factors...};
}

/// The geometry of an affine layer  y_t = W view_t(x) + b  on a (channels, depth, height, width) input.
///
/// View t = (d, i, j) sees, per group, `kernel` taps `dilation` apart from row `i * stride - padding` on. Parameters: W
/// as `[out, in / groups, kernel.depth, kernel.height, kernel.width]`, then b as `[out]`: PyTorch's order. A linear
/// layer is the view that sees everything at one position; images and sequences have a depth of 1.
///
/// With `adjoint` the layer is the map's adjoint, a transposed convolution: `in_...` describes its output y and
/// `out_...` its input x, y = sum_t view_t^T(W^T x_t) + b with b as `[in]`. Its gradient is the outer-product sum of
/// the same map, with x in the place of delta and the output gradient in the place of x.
struct affine_map {
  std::size_t in_channels = 0;
  extent in_size;
  std::size_t out_channels = 0;
  extent out_size;
  extent kernel{1};
  extent stride{1};
  extent padding{0};
  extent dilation{1};
  std::size_t groups = 1;
  bool bias = true;
  bool adjoint = false;

  /// Positions T of the view.
  [[nodiscard]] constexpr std::size_t positions() const noexcept { return out_size.size(); }
  /// Width of the view per group: d.
  [[nodiscard]] constexpr std::size_t view_width() const noexcept { return in_channels / groups * kernel.size(); }
  /// Outputs per group: p.
  [[nodiscard]] constexpr std::size_t group_outputs() const noexcept { return out_channels / groups; }
  [[nodiscard]] constexpr std::size_t weight_count() const noexcept { return out_channels * view_width(); }
  [[nodiscard]] constexpr std::size_t bias_count() const noexcept {
    return bias ? (adjoint ? in_channels : out_channels) : 0;
  }
  [[nodiscard]] constexpr std::size_t parameter_count() const noexcept { return weight_count() + bias_count(); }
};

}  // namespace pergrad::inline v0_1
