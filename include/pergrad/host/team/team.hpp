// SPDX-License-Identifier: Apache-2.0
// pergrad/host/team/team.hpp - a thread of the host as a team: the samples of its tile, a vector of elements at a time
//
// The words are those of pergrad/team.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/gemm/transpose.hpp>
#include <pergrad/host/team/channel_groups.hpp>
#include <pergrad/privacy/layer_randomness.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1::on_host {

/// Samples of a tile as one layer sees them. Every function of it may be called for samples 0 .. samples - 1 only.
/// Its functions are marked for both sides because layers that call them are; only the host does.
template <class Scalar>
struct tile_team {
  using scalar = Scalar;

  index samples = 0;
  shape in;
  shape in2;
  shape out;
  sample_arrays<const Scalar> x;
  sample_arrays<const Scalar> x2;
  sample_arrays<Scalar> y;
  sample_arrays<const Scalar> dy;
  sample_arrays<Scalar> dx;
  sample_arrays<Scalar> dx2;
  sample_arrays<Scalar> saved;
  sample_arrays<Scalar> scratch;
  bool wants_factors = true;  ///< false for a frozen layer: what only its factors would read need not be computed
  bool wants_dx = false;
  bool wants_dx2 = false;
  /// Of layers with `stored_order`: where pixels lie.
  layout x_layout;
  layout y_layout;
  layout dx_layout;
  layout dy_layout;

  static constexpr bool projected = false;

  const Scalar* parameters = nullptr;
  const Scalar* panels = nullptr;  ///< null: transposes are read from the matrices
  const index* panel_offsets = nullptr;
  [[nodiscard]] PERGRAD_HD matrix_view<Scalar> matrix(index offset, index /*rows*/, index columns) const noexcept {
    return {parameters + offset, columns};
  }
  /// Packed as [columns][rows] beforehand, unless the weights are read where they lie.
  [[nodiscard]] PERGRAD_HD matrix_view<Scalar> transposed(std::size_t k, index offset, index rows,
                                                          index columns) const noexcept {
    if (panels == nullptr) return {parameters + offset, 1, columns};
    return {panels + panel_offsets[k], rows};
  }

  const std::uint32_t* lengths = nullptr;
  const std::uint32_t* lengths2 = nullptr;
  [[nodiscard]] PERGRAD_HD index length(index sample) const noexcept {
    return lengths == nullptr ? static_cast<index>(in.e0) : static_cast<index>(lengths[sample]);
  }
  [[nodiscard]] PERGRAD_HD index length2(index sample) const noexcept {
    return lengths2 == nullptr ? static_cast<index>(in2.e0) : static_cast<index>(lengths2[sample]);
  }
  [[nodiscard]] PERGRAD_HD bool lengths_vary() const noexcept { return lengths != nullptr; }
  [[nodiscard]] PERGRAD_HD bool lengths2_vary() const noexcept { return lengths2 != nullptr; }
  [[nodiscard]] PERGRAD_HD const std::int32_t* ids(index sample) const noexcept {
    return static_cast<const std::int32_t*>(static_cast<const void*>(x(sample)));
  }

  layer_randomness randomness;
  const std::uint32_t* records = nullptr;
  std::uint32_t layer_number = 0;
  PERGRAD_ONLY_HOST_CALLS
  [[nodiscard]] PERGRAD_HD bool is_random() const noexcept { return randomness.is_random(); }
  PERGRAD_ONLY_HOST_CALLS
  template <class Function>
  PERGRAD_HD void draw(index sample, index first, index count, const Function& f) const {
    constexpr index together = 256;
    std::uint32_t bits[together];
    for (index done = 0; done < count; done += together) {
      const index here = count - done < together ? count - done : together;
      randomness.bits(records[sample], layer_number, static_cast<std::size_t>(first + done),
                      {bits, static_cast<std::size_t>(here)});
      for (index i = 0; i < here; ++i) f(done + i, bits[i]);
    }
  }

  PERGRAD_ONLY_HOST_CALLS
  template <class Function>
  PERGRAD_HD void map(index count, const Function& f) const {
    for_each_pack<Scalar>(count, [&](index i, const auto& lanes) { f(elements_from<Scalar>(i, lanes)); });
  }
  PERGRAD_ONLY_HOST_CALLS
  template <class Function>
  PERGRAD_HD void map(index rows, index count, const Function& f) const {
    for (index r = 0; r < rows; ++r) {
      for_each_pack<Scalar>(count, [&](index i, const auto& lanes) { f(r, elements_from<Scalar>(i, lanes)); });
    }
  }
  PERGRAD_ONLY_HOST_CALLS
  template <class Function>
  PERGRAD_HD void each(index count, const Function& f) const {
    for (index i = 0; i < count; ++i) f(i);
  }
  PERGRAD_ONLY_HOST_CALLS
  PERGRAD_HD void fill(index count, Scalar* to, Scalar value) const { std::fill_n(to, count, value); }
  PERGRAD_ONLY_HOST_CALLS
  PERGRAD_HD void copy(index count, const Scalar* from, Scalar* to) const { std::copy_n(from, count, to); }

  PERGRAD_ONLY_HOST_CALLS
  template <int Sums, class Function>
  [[nodiscard]] PERGRAD_HD values_of<double, Sums> reduce(index count, const Function& f) const {
    return reduce_in_double<Sums, Scalar>(count, f);
  }
  PERGRAD_ONLY_HOST_CALLS
  template <class Function>
  [[nodiscard]] PERGRAD_HD Scalar sum(index count, const Function& f) const {
    return sum_of_packs<Scalar>(count, f);
  }
  PERGRAD_ONLY_HOST_CALLS
  [[nodiscard]] PERGRAD_HD Scalar largest(index count, const Scalar* from) const { return largest_of(from, count); }
  PERGRAD_ONLY_HOST_CALLS
  template <class Function>
  [[nodiscard]] PERGRAD_HD index count(index number, const Function& f) const {
    std::int32_t found = 0;
    for (index i = 0; i < number; ++i) found += f(i) ? 1 : 0;
    return found;
  }
  PERGRAD_ONLY_HOST_CALLS
  template <class Function>
  PERGRAD_HD void for_each_row(index rows, const Function& f) const {
    for (index r = 0; r < rows; ++r) f(r, *this);
  }

  PERGRAD_ONLY_HOST_CALLS
  template <class Function>
  PERGRAD_HD void for_each_group(index channels, index group_size, const Function& f) const {
    for_some_groups<Scalar>(channels, group_size, f);
  }

  PERGRAD_ONLY_HOST_CALLS
  PERGRAD_HD void multiply(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right,
                           Scalar* to) const {
    product(shape_of(sizes, right), left, right.first, to, epilogue::store{});
  }
  PERGRAD_ONLY_HOST_CALLS
  PERGRAD_HD void multiply_add(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right,
                               Scalar* to) const {
    product(shape_of(sizes, right), left, right.first, to, epilogue::add{});
  }
  PERGRAD_ONLY_HOST_CALLS
  PERGRAD_HD void multiply_bias(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right,
                                Scalar* to, const Scalar* bias) const {
    product(shape_of(sizes, right), left, right.first, to, epilogue::store_bias<Scalar>{bias});
  }
  PERGRAD_ONLY_HOST_CALLS
  [[nodiscard]] PERGRAD_HD matrix_view<Scalar> turned(const matrix_view<Scalar>& from, index rows, index columns,
                                                      Scalar* to, index step) const {
    transpose(from.first, from.row, rows, columns, to, step);
    return {to, step};
  }

 private:
  static product_shape shape_of(const product_sizes& sizes, const matrix_view<Scalar>& right) noexcept {
    product_shape shape = coalesce({{{},
                                     {sizes.outer.count, sizes.outer.left, sizes.outer.out},
                                     {sizes.rows.count, sizes.rows.left, sizes.rows.out}},
                                    {{}, {}, {sizes.depth, sizes.left, right.row}},
                                    sizes.columns});
    shape.right_column = right.column;
    return shape;
  }
};

}  // namespace pergrad::inline v0_1::on_host
