// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/attention_softmax.hpp - the softmax of scores and its gradient, row by row, and the dropout
// behind it
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <pergrad/layers/shared/attention_layout.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/math.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::detail {

/// The first `count` of `step` scores, times `scale`, become probabilities; the others zero.
template <class Scalar>
void softmax_row(Scalar* row, std::ptrdiff_t count, std::ptrdiff_t step, Scalar scale) noexcept {
  using vector = on_host::vector<Scalar>;
  constexpr auto lanes = static_cast<std::ptrdiff_t>(on_host::vector_lanes<Scalar>);
  if (count == 0) {
    std::fill(row, row + step, Scalar{0});
    return;
  }
  const std::ptrdiff_t whole = count / lanes * lanes;
  const std::ptrdiff_t padded = (count + lanes - 1) / lanes * lanes;
  std::fill(row + count, row + padded, std::numeric_limits<Scalar>::lowest());
  vector most = on_host::splat(std::numeric_limits<Scalar>::lowest());
  for (std::ptrdiff_t k = 0; k < padded; k += lanes) {
    const vector scores = on_host::load(row + k);
    most = most < scores ? scores : most;
  }
  const Scalar largest = on_host::largest_of<Scalar>(most);
  vector sums{};
  for (std::ptrdiff_t k = 0; k < padded; k += lanes) {
    const vector power =
        on_host::in_packs<Scalar>((on_host::load(row + k) - on_host::splat(largest)) * on_host::splat(scale),
                                  [](auto exponent) { return math::exp_or_zero(exponent); });
    on_host::store(row + k, power);
    if (k < whole) sums += power;
  }
  Scalar sum = on_host::sum_of<Scalar>(sums);
  for (std::ptrdiff_t k = whole; k < count; ++k) sum += row[k];
  const vector share = on_host::splat(Scalar{1} / sum);
  for (std::ptrdiff_t k = 0; k < padded; k += lanes) on_host::store(row + k, on_host::load(row + k) * share);
  std::fill(row + count, row + step, Scalar{0});
}

/// Draws the mask of `count` probabilities: leaves it in their signs, and them as they are used in `dropped`. `element`
/// numbers the first among all of the layer's.
template <class Tile, class Scalar>
void drop_probabilities(const Tile& tile, std::ptrdiff_t sample, std::ptrdiff_t element, const attention_layout& at,
                        Scalar* probabilities, std::ptrdiff_t count, Scalar* dropped) {
  constexpr std::ptrdiff_t together = 256;
  std::uint32_t bits[together];
  const Scalar shares[2] = {static_cast<Scalar>(at.kept), 0};  // looked up: a branch would be guessed wrongly
  constexpr Scalar signs[2] = {1, -1};
  for (std::ptrdiff_t first = 0; first < count; first += together) {
    const std::ptrdiff_t here = std::min(together, count - first);
    tile.random_bits(sample, static_cast<std::size_t>(element + first), {bits, static_cast<std::size_t>(here)});
    for (std::ptrdiff_t k = 0; k < here; ++k) {
      const Scalar probability = probabilities[first + k];
      const std::size_t drops = bits[k] < at.threshold ? 1 : 0;
      probabilities[first + k] = probability * signs[drops];
      dropped[first + k] = probability * shares[drops];
    }
  }
}

/// Turns the gradient of one row of (dropped) probabilities into that of its scores.
template <class Scalar>
void softmax_row_backward(const Scalar* row, Scalar* gradient, std::ptrdiff_t count, std::ptrdiff_t step,
                          Scalar scale) noexcept {
  using vector = on_host::vector<Scalar>;
  vector sums{};
  on_host::for_each_vector<Scalar>(
      count, [&](std::ptrdiff_t k, const auto& lanes) { sums += lanes.load(row + k) * lanes.load(gradient + k); });
  const Scalar sum = on_host::sum_of<Scalar>(sums);
  on_host::for_each_vector<Scalar>(count, [&](std::ptrdiff_t k, const auto& lanes) {
    lanes.store(gradient + k,
                lanes.load(row + k) * ((lanes.load(gradient + k) - on_host::splat(sum)) * on_host::splat(scale)));
  });
  std::fill(gradient + count, gradient + step, Scalar{0});
}
/// The same behind dropout: first makes |P| of the signed row, the dropped row, and the gradient of P.
template <class Scalar>
void undrop_row(Scalar* row, Scalar* gradient, Scalar* dropped, std::ptrdiff_t count, std::ptrdiff_t step,
                Scalar kept) noexcept {
  using pack = on_host::pack<Scalar>;
  on_host::for_each_pack<Scalar>(count, [&](std::ptrdiff_t k, const auto& lanes) {
    const pack signed_row = lanes.load(row + k);
    const pack share = math::select(signed_row < pack{}, pack{}, math::splat<pack>(kept));
    lanes.store(dropped + k, signed_row * share);
    lanes.store(gradient + k, lanes.load(gradient + k) * share);
    lanes.store(row + k, math::abs(signed_row));
  });
  std::fill(dropped + count, dropped + step, Scalar{0});
}

/// out [rows][out_row] = left times right [depth][right_row].
template <class Tile, class Scalar>
void multiply_matrices(std::ptrdiff_t rows, std::ptrdiff_t depth, std::ptrdiff_t columns, const Scalar* left,
                       std::ptrdiff_t left_row, std::ptrdiff_t left_step, const Scalar* right, std::ptrdiff_t right_row,
                       Scalar* out, std::ptrdiff_t out_row) noexcept {
  Tile::multiply({{{}, {}, {rows, left_row, out_row}}, {{}, {}, {depth, left_step, right_row}}, columns}, left, right,
                 out);
}

}  // namespace pergrad::inline v0_1::detail
