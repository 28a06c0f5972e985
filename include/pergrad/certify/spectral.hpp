// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/spectral.hpp - largest singular values, from above
//
// The least of three bounds of ‖A‖₂: Frobenius, sqrt(‖A‖₁ ‖A‖_inf), and the Gram iteration (Delattre et al. 2023,
// arXiv:2305.16173): ‖A‖² = ‖A A^T‖, so with A_0 = A, A_(k+1) = A_k A_k^T any norm of A_k gives a bound whose gap
// shrinks with its 2^k-th root. The computed A_(k+1) is off by at most gamma_n ‖A_k‖_F² in Frobenius' norm, so
//     ‖A_k‖ <= sqrt(‖A_(k+1)‖ + gamma_n ‖A_k‖_F²),
// from the last one, of which Frobenius and the largest row sum are taken, back to A. A power iteration comes from
// below and proves nothing.
//
// Of a convolution y_t = sum_k W_k x_(t s + k r - p) + b, the least of
//     sqrt(c) ‖W as [out][in k]‖         c: windows that see one pixel, at most
//     sqrt(sum over classes (sum_k ‖W_k‖)²)   taps of a class meet the same pixels, those of different ones do not
//     sqrt(max_o sum |W|  max_c sum |W|)
// each of the map on an endless image, of which the one with borders is a part.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <pergrad/certify/upper.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/gemm/product_shape.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/math.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::certified {

/// A matrix in double, row by row. Parameters are in it exactly.
struct dense_matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<double> values{};

  dense_matrix(std::size_t of_rows, std::size_t of_columns)
      : rows{of_rows}, columns{of_columns}, values(of_rows * of_columns) {}
  [[nodiscard]] double* row(std::size_t i) noexcept { return values.data() + i * columns; }
  [[nodiscard]] const double* row(std::size_t i) const noexcept { return values.data() + i * columns; }
};

/// ‖x‖₂ from above, whatever the order of additions.
template <class Value>
[[nodiscard]] upper l2_norm_of(std::span<const Value> x) noexcept {
  constexpr roundoff doubles{0x1p-53};
  const double squares = on_host::squares_in_double(x.data(), static_cast<on_host::index>(x.size()));
  // Squares that vanish: less than 2^-1021 each.
  if (squares > 0x1p-600 && squares < 0x1p1000) {
    return sqrt(upper{squares} * doubles.growth(x.size() + 2) + upper{x.size()} * 0x1p-1020);
  }
  double largest = 0;
  for (const Value each : x) {
    const double size = std::fabs(static_cast<double>(each));
    if (!(size <= intervals::inside::unbounded)) return intervals::inside::unbounded;
    largest = std::max(largest, size);
  }
  if (largest == 0 || !intervals::inside::is_finite(largest)) return largest;
  const int exponent =
      std::max(-1000, std::ilogb(largest));  // so that no square overflows, and none that counts vanishes
  const double scale = std::ldexp(1.0, -exponent);
  double sum = 0;
  for (const Value each : x) {
    const double scaled = static_cast<double>(each) * scale;
    sum += scaled * scaled;
  }
  return sqrt(upper{sum} * doubles.growth(x.size() + 2) + upper{x.size()} * 0x1p-1020) * std::ldexp(1.0, exponent);
}

namespace inside {

[[nodiscard]] inline dense_matrix transposed(const dense_matrix& a) {
  dense_matrix result{a.columns, a.rows};
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < a.columns; ++j) result.row(j)[i] = a.row(i)[j];
  }
  return result;
}
/// A A^T, exactly symmetric: an element is one chain of multiply-adds in the order of A's columns.
[[nodiscard]] inline dense_matrix gram_of(const dense_matrix& a) {
  const auto rows = static_cast<on_host::index>(a.rows);
  const auto columns = static_cast<on_host::index>(a.columns);
  dense_matrix result{a.rows, a.rows};
  constexpr on_host::index together = 32;  // of which the columns behind are not formed
  for (on_host::index first = 0; first < rows; first += together) {
    on_host::product_shape shape;
    shape.row[2] = {std::min(together, rows - first), columns, rows};
    shape.reduce[2] = {columns, 1, 1};
    shape.right_column = columns;
    shape.columns = first + shape.row[2].extent;
    on_host::product(shape, a.values.data() + first * columns, a.values.data(), result.values.data() + first * rows);
  }
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = i + 1; j < a.rows; ++j) result.row(i)[j] = result.row(j)[i];
  }
  return result;
}
[[nodiscard]] inline std::pair<upper, upper> row_and_column_sums(const dense_matrix& a) {
  constexpr roundoff doubles{0x1p-53};
  std::vector<double> columns(a.columns);
  double most = 0;
  for (std::size_t i = 0; i < a.rows; ++i) {
    const double* const row = a.row(i);
    double* const sums = columns.data();
    const double sum = on_host::sum_in_double(
        static_cast<on_host::index>(a.columns),
        [&](on_host::vector<double>& all, on_host::index j) {
          const on_host::vector<double> size = math::abs(on_host::load(row + j));
          on_host::store(sums + j, on_host::load(sums + j) + size);
          all += size;
        },
        [&](double& all, on_host::index j) {
          sums[j] += std::fabs(row[j]);
          all += std::fabs(row[j]);
        });
    most = std::max(most, sum);
  }
  const double most_of_column = a.columns == 0 ? 0 : *std::max_element(columns.begin(), columns.end());
  return {upper{most} * doubles.growth(a.columns), upper{most_of_column} * doubles.growth(a.rows)};
}

}  // namespace inside

/// Multiply-adds beyond which no Gram matrix is formed: then the bound is that of Frobenius or of sums.
inline constexpr double most_gram_work = 0x1p32;

/// The largest singular value, from above.
[[nodiscard]] inline upper spectral_norm(dense_matrix a) {
  const upper frobenius = l2_norm_of(std::span<const double>{a.values});
  if (frobenius.value() == 0 || !frobenius.is_finite()) return frobenius;
  const auto [rows, columns] = inside::row_and_column_sums(a);
  const upper simple = std::min(frobenius, sqrt(rows * columns));
  if (a.rows == 1 || a.columns == 1) return frobenius;
  if (a.rows > a.columns) a = inside::transposed(a);
  const auto height = static_cast<double>(a.rows);
  const int iterations = height <= 256 ? 6 : 5;
  if (height * height * (static_cast<double>(a.columns) / 2 + height * iterations / 2) > most_gram_work) return simple;

  constexpr roundoff doubles{0x1p-53};
  struct step {
    int exponent;  ///< A_k was divided by 2^exponent
    upper error;   ///< of A_k A_k^T
  };
  std::vector<step> steps;
  upper last;
  for (int k = 0;; ++k) {
    const upper size = k == 0 ? frobenius : l2_norm_of(std::span<const double>{a.values});
    if (size.value() == 0) {
      last = size;
      break;
    }
    if (k == iterations) {
      last = std::min(size, inside::row_and_column_sums(a).first);  // symmetric: a row sum bounds it
      break;
    }
    const int exponent = std::max(-1000, std::ilogb(size.value()) + 1);
    const double scale = std::ldexp(1.0, -exponent);
    // Of usual sizes A A^T is scaled in the place of A, which may have many more columns.
    const bool is_usual = std::abs(exponent) < 100;
    if (!is_usual) std::for_each(a.values.begin(), a.values.end(), [=](double& each) { each *= scale; });
    // Products below 2^-1022 may vanish; elements that became subnormal are off by 2^-1074.
    steps.push_back({exponent, doubles.gamma(a.columns + 2) + upper{a.values.size() + a.columns} * 0x1p-800});
    a = inside::gram_of(a);
    if (is_usual) std::for_each(a.values.begin(), a.values.end(), [=](double& each) { each *= scale * scale; });
  }
  for (std::size_t k = steps.size(); k-- > 0;) last = sqrt(last + steps[k].error) * std::ldexp(1.0, steps[k].exponent);
  return std::min(simple, last);
}

/// What is known of a layer's weights, of all layers in the same words. A rule says which of them it reads.
/// What nobody says is without bound.
struct weight_bound {
  upper norm{intervals::inside::unbounded};  ///< of the linear map ‖W‖₂; of gains the largest; of a table the
                                             ///< longest row
  upper frobenius{intervals::inside::unbounded};  ///< of the weights of a linear map
  upper bias{intervals::inside::unbounded};       ///< ‖b‖₂, of all that is added

  /// Of no weights at all.
  [[nodiscard]] static constexpr weight_bound of_none() noexcept { return {upper{}, upper{}, upper{}}; }

  friend bool operator<=(const weight_bound& a, const weight_bound& b) noexcept {
    return !(b.norm < a.norm) && !(b.frobenius < a.frobenius) && !(b.bias < a.bias);
  }
};

namespace inside {

/// Windows that see a pixel along one axis, at most.
[[nodiscard]] inline std::size_t most_windows(std::size_t in, std::size_t out, std::size_t kernel, std::size_t stride,
                                              std::size_t padding, std::size_t dilation) {
  std::vector<std::size_t> seen(in);
  std::size_t most = 0;
  for (std::size_t o = 0; o < out; ++o) {
    for (std::size_t k = 0; k < kernel; ++k) {
      const std::size_t at = o * stride + k * dilation;
      if (at >= padding && at - padding < in) most = std::max(most, ++seen[at - padding]);
    }
  }
  return most;
}

}  // namespace inside

/// c: how many windows of a map see one pixel of what it reads (of an adjoint: writes), at most.
[[nodiscard]] inline std::size_t most_windows(const affine_map& map) {
  return inside::most_windows(map.in_size.depth, map.out_size.depth, map.kernel.depth, map.stride.depth,
                              map.padding.depth, map.dilation.depth) *
         inside::most_windows(map.in_size.height, map.out_size.height, map.kernel.height, map.stride.height,
                              map.padding.height, map.dilation.height) *
         inside::most_windows(map.in_size.width, map.out_size.width, map.kernel.width, map.stride.width,
                              map.padding.width, map.dilation.width);
}

/// Of an affine map with these parameters, or its adjoint.
template <class Scalar>
[[nodiscard]] weight_bound measure_affine(const affine_map& map, std::span<const Scalar> parameters) {
  const std::span<const Scalar> weights = parameters.first(map.weight_count());
  weight_bound result = weight_bound::of_none();
  result.frobenius = l2_norm_of(weights);
  result.bias = l2_norm_of(parameters.subspan(map.weight_count()));
  const std::size_t outputs = map.group_outputs();
  const std::size_t channels = map.in_channels / map.groups;
  const std::size_t taps = map.kernel.size();
  const std::size_t width = map.view_width();
  const upper overlap = root_of(most_windows(map));
  for (std::size_t g = 0; g < map.groups; ++g) {
    const std::span<const Scalar> mine = weights.subspan(g * outputs * width, outputs * width);
    dense_matrix whole{outputs, width};
    std::copy(mine.begin(), mine.end(), whole.values.begin());
    const upper row_sum = taps > 1 ? inside::row_and_column_sums(whole).first : upper{};
    upper norm = spectral_norm(std::move(whole)) * overlap;
    if (taps > 1) {
      constexpr roundoff doubles{0x1p-53};
      upper squares;
      double most_of_channel = 0;
      for (std::size_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (std::size_t o = 0; o < outputs; ++o) {
          for (std::size_t k = 0; k < taps; ++k) sum += std::fabs(static_cast<double>(mine[o * width + c * taps + k]));
        }
        most_of_channel = std::max(most_of_channel, sum);
      }
      norm = std::min(norm, sqrt(row_sum * (upper{most_of_channel} * doubles.growth(outputs * taps))));
      const auto number_of = [&](std::size_t k) {
        const std::size_t column = k % map.kernel.width;
        const std::size_t row = k / map.kernel.width % map.kernel.height;
        const std::size_t plane = k / map.kernel.width / map.kernel.height;
        return (plane * map.dilation.depth % map.stride.depth * map.stride.height +
                row * map.dilation.height % map.stride.height) *
                   map.stride.width +
               column * map.dilation.width % map.stride.width;
      };
      // No norm is below that of a column. Where even so the classes' bound is the larger one, nobody asks for it.
      std::vector<double> least(map.stride.size());
      for (std::size_t k = 0; k < taps; ++k) {
        double longest = 0;
        for (std::size_t c = 0; c < channels; ++c) {
          double column = 0;
          for (std::size_t o = 0; o < outputs; ++o) {
            const auto weight = static_cast<double>(mine[o * width + c * taps + k]);
            column += weight * weight;
          }
          longest = std::max(longest, column);
        }
        least[number_of(k)] += std::sqrt(longest);
      }
      double least_squares = 0;
      for (const double each : least) least_squares += each * each;
      if (!(std::sqrt(least_squares) < norm.value())) {
        result.norm = std::max(result.norm, norm);
        continue;
      }
      std::vector<upper> classes(map.stride.size());
      for (std::size_t k = 0; k < taps; ++k) {
        dense_matrix tap{outputs, channels};
        for (std::size_t o = 0; o < outputs; ++o) {
          for (std::size_t c = 0; c < channels; ++c)
            tap.row(o)[c] = static_cast<double>(mine[o * width + c * taps + k]);
        }
        classes[number_of(k)] += spectral_norm(std::move(tap));
      }
      for (const upper& each : classes) squares += each * each;
      norm = std::min(norm, sqrt(squares));
    }
    result.norm = std::max(result.norm, norm);
  }
  return result;
}

}  // namespace pergrad::inline v0_1::certified
