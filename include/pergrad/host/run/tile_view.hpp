// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/tile_view.hpp - what a tiled layer sees: the samples of a tile, and products over all of them
//
// A tiled layer's forward and backward are written against this interface, as templates: they name no executor.
//   values     x(b), x2(b), y(b), dy(b), dx(b), dx2(b), saved(b), scratch(b): one sample's, in PyTorch's order; samples
//              lie x.step (y.step, ...) elements apart, so a product may run over samples as over any other axis
//   weights    parameters, in PyTorch's order; transposed(k), the k-th of the layer's matrices as [columns][rows]
//   products   multiply, multiply_add, multiply_bias: rows of a strided view times a matrix with contiguous columns
//   turn       the transpose of a matrix
//   the rest   ids(b), length(b), random bits
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/gemm/transpose.hpp>
#include <pergrad/privacy/layer_randomness.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace on_host {

/// One array a sample, `step` elements from one sample to the next.
template <class Value>
struct sample_arrays {
  Value* first = nullptr;
  index step = 0;
  [[nodiscard]] Value* operator()(index sample) const noexcept { return first + sample * step; }
};

/// Samples of a tile as one layer sees them. Every function of it may be called for samples 0 .. samples - 1 only.
template <class Scalar>
struct tile_view {
  using scalar = Scalar;

  index samples = 0;
  shape in;
  shape in2;
  shape out;
  sample_arrays<const Scalar> x;
  sample_arrays<const Scalar> x2;
  sample_arrays<Scalar> y;
  sample_arrays<const Scalar> dy;  ///< backward only
  sample_arrays<Scalar> dx;        ///< backward only; to be written whole, if wants_dx
  sample_arrays<Scalar> dx2;
  sample_arrays<Scalar> saved;    ///< lives from forward to the factors
  sample_arrays<Scalar> scratch;  ///< lives for one call
  bool wants_factors = true;      ///< false for a frozen layer: what only its factors would read need not be computed
  bool wants_dx = false;
  bool wants_dx2 = false;
  /// Of layers with `stored_order`: where pixels lie.
  layout x_layout;
  layout y_layout;
  layout dx_layout;
  layout dy_layout;

  /// All parameters of the layer, in PyTorch's order.
  const Scalar* parameters = nullptr;
  const Scalar* panels = nullptr;
  const index* panel_offsets = nullptr;
  /// Matrix k of the layer's `matrices`, transposed: `[columns][rows]`.
  [[nodiscard]] const Scalar* transposed(std::size_t k) const noexcept { return panels + panel_offsets[k]; }

  const std::uint32_t* lengths = nullptr;
  const std::uint32_t* lengths2 = nullptr;
  /// Positions of the input that are there: its length if lengths vary, else all.
  [[nodiscard]] index length(index sample) const noexcept {
    return lengths == nullptr ? static_cast<index>(in.e0) : static_cast<index>(lengths[sample]);
  }
  [[nodiscard]] index length2(index sample) const noexcept {
    return lengths2 == nullptr ? static_cast<index>(in2.e0) : static_cast<index>(lengths2[sample]);
  }
  /// Do the samples of the input have lengths of their own?
  [[nodiscard]] bool lengths_vary() const noexcept { return lengths != nullptr; }

  /// Integer ids of a sample, if the input is ids.
  [[nodiscard]] const std::int32_t* ids(index sample) const noexcept {
    return static_cast<const std::int32_t*>(static_cast<const void*>(x(sample)));
  }

  layer_randomness randomness;
  const std::uint32_t* records = nullptr;
  std::uint32_t layer_number = 0;
  [[nodiscard]] bool is_random() const noexcept { return randomness.is_random(); }
  /// 32 random bits for each of the elements from `first` on, a multiple of 16, of one sample.
  void random_bits(index sample, std::size_t first, std::span<std::uint32_t> bits) const noexcept {
    randomness.bits(records[sample], layer_number, first, bits);
  }

  /// out = left times right, as `shape` says (product.hpp).
  static void multiply(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out) noexcept {
    product(coalesce(shape), left, right, out, epilogue::store{});
  }
  /// out += left times right.
  static void multiply_add(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out) noexcept {
    product(coalesce(shape), left, right, out, epilogue::add{});
  }
  /// out = left times right + bias, one bias a column.
  static void multiply_bias(const product_shape& shape, const Scalar* left, const Scalar* right, Scalar* out,
                            const Scalar* bias) noexcept {
    product(coalesce(shape), left, right, out, epilogue::store_bias<Scalar>{bias});
  }
  /// to[c * to_step + r] = from[r * from_step + c] for r < rows and c < columns.
  static void turn(const Scalar* from, index from_step, index rows, index columns, Scalar* to, index to_step) noexcept {
    transpose(from, from_step, rows, columns, to, to_step);
  }
};

}  // namespace on_host
}  // namespace pergrad::inline v0_1
