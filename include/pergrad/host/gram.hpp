// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gram.hpp - the Gram form of a norm: sum_{t,s} <x_t, x_s> <delta_t, delta_s>
//
// Where windows overlap, a pixel apart, dots of windows are sums of dots of pixels. With D(y, z)[q, r] = <pixel (y, q),
// pixel (z, r)>, the dots of the windows of two rows i and j of positions are
//   X(i, j)[a, b] = sum_ky S(i + ky, j + ky)[a, b]      S(y, z)[a, b] = sum_kx D(y, z)[a + kx, b + kx]
// For each distance j - i the walk over i keeps the last S, as many as a window has rows. Dots with pixels of the halo
// are 0 and not formed. So all pairs of T windows over kh x kw pixels of C numbers take T^2 C / 2 multiply-adds and not
// T^2 kh kw C / 2. All sums are in double. |<a, b>| <= |a| |b| and Cauchy's inequality bound the magnitudes of the
// terms of X by |x_t| |x_s|, however they are grouped, so C + kh kw additions err no more than the kh kw C of one long
// dot.
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/detail/elements.hpp>
#include <pergrad/detail/layout.hpp>
#include <pergrad/detail/vector.hpp>
#include <pergrad/host/dot_block.hpp>
#include <pergrad/host/gram_extents.hpp>
#include <pergrad/host/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// The Gram form of one group of one sample's block.
template <class Scalar>
class gram_form {
 public:
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): of the scratch, rows_apart clears what it uses
  gram_form(const outer_leaf& leaf, const Scalar* x, const Scalar* delta) noexcept
      : leaf_{leaf}, extents_{leaf.gram()}, x_{x}, delta_{delta} {}

  /// Of a term, beside its two dots.
  [[nodiscard]] index additions() const noexcept { return extents_.additions(); }
  /// The sum; calls seen(<x_t, x_t>, <delta_t, delta_t>) for each position.
  template <class Function>
  [[nodiscard]] double sum(const Function& seen) noexcept {
    double total = 0;
    for (index a = 0; a < extents_.columns.positions; a += extents_.strip) {
      double of_strip = 0;
      for (index b = 0; b < extents_.columns.positions; b += extents_.strip) {
        for (index apart = b < a ? 1 : 0; apart < extents_.rows.positions; ++apart) {
          of_strip += rows_apart({a, b, apart == 0 && a == b}, apart, seen);
        }
      }
      total += of_strip;
    }
    return total;
  }

 private:
  static constexpr auto side = static_cast<index>(dot_block_side);

  /// A strip of columns of a row's positions with one of another row's: their first columns.
  struct strips {
    index a;
    index b;
    bool same;  ///< of the same row: of two positions only the first with the second is wanted
  };
  /// Where the vectors of a strip lie; behind the last one it is repeated, for whole blocks.
  struct places {
    const Scalar* at[gram_extents::most_places];
  };

  /// Of the rows of positions that lie `apart`, the terms of two strips.
  template <class Function>
  [[nodiscard]] double rows_apart(const strips& of, index apart, const Function& seen) noexcept {
    const index window_rows = extents_.rows.taps;
    const index matrix = extents_.matrix();
    double* const along_columns = scratch_ + extents_.strip_pixels() * extents_.pixel_pitch();
    double* const along_rows = along_columns + (window_rows == 1 ? 0 : window_rows * matrix);
    std::fill_n(scratch_, extents_.used(), 0.0);  // also what stands for the halo, and behind the strips' ends
    double total = 0;
    for (index y = 0; y + apart < extents_.rows.seen(); ++y) {
      double* const last = along_columns + y % window_rows * matrix;
      if (extents_.is_real_row(y) && extents_.is_real_row(y + apart)) {
        form_pixel_dots(of, y, y + apart);
        add_along_columns(of, last);
      } else {
        std::fill_n(last, matrix, 0.0);
      }
      const index i = y + 1 - window_rows;
      if (i < 0) continue;
      if (window_rows > 1) add_along_rows(along_columns, along_rows);
      total += terms(of, i, i + apart, along_rows, seen);
    }
    return total;
  }

  /// D of the head of this file.
  void form_pixel_dots(const strips& of, index y, index z) noexcept {
    const auto a = extents_.real_columns(of.a);
    const auto b = extents_.real_columns(of.b);
    places of_a;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by `find`
    places of_b;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by `find`
    find(x_, &step_axis::x, y, of.a, a.begin, a.end, of_a);
    find(x_, &step_axis::x, z, of.b, b.begin, b.end, of_b);
    for (index q = a.begin; q < a.end; q += side) {
      for (index r = of.same ? q : b.begin; r < b.end; r += side) {
        dot_block<Scalar> dots;
        add_pixel_dots(of_a.at + (q - a.begin), of_b.at + (r - b.begin), dots);
        double each[dot_block_side * dot_block_side];
        dots.sums(each);
        for (index i = 0; i < std::min(side, a.end - q); ++i) {
          std::copy_n(each + i * side, std::min(side, b.end - r), scratch_ + (q + i) * extents_.pixel_pitch() + r);
        }
      }
    }
  }
  void add_pixel_dots(const Scalar* const* a, const Scalar* const* b, dot_block<Scalar>& dots) const noexcept {
    const view_axis(&view)[3] = leaf_.view;
    const bool joined = view[1].x == view[2].extent && view[2].x == 1;
    if (extents_.by_pixels || (joined && leaf_.view_plane.extent * view[0].extent == 1)) {
      return dots.add(a, b, extents_.pixel, view[2].x);
    }
    const Scalar* a_here[dot_block_side]{};
    const Scalar* b_here[dot_block_side]{};
    for (index k = 0; k < leaf_.view_plane.extent * view[0].extent; ++k) {
      const index row = k / view[0].extent * leaf_.view_plane.x + k % view[0].extent * view[0].x;
      for (index l = 0; l < (joined ? 1 : view[1].extent); ++l) {
        for (std::size_t i = 0; i < dot_block_side; ++i) {
          a_here[i] = a[i] + row + l * view[1].x;
          b_here[i] = b[i] + row + l * view[1].x;
        }
        dots.add(a_here, b_here, joined ? view[1].extent * view[2].extent : view[2].extent, view[2].x);
      }
    }
  }
  /// S of the head of this file.
  void add_along_columns(const strips& of, double* sums) const noexcept {
    const index rows = std::min(extents_.strip, extents_.columns.positions - of.a);
    const index columns = std::min(extents_.strip, extents_.columns.positions - of.b);
    for (index a = 0; a < rows; ++a) {
      for_each_vector<double>(columns, [&](index b, const auto& lanes) {
        const double* dots = scratch_ + a * extents_.pixel_pitch() + b;
        vector<double> total = lanes.load(dots);
        for (index tap = 1; tap < extents_.columns.taps; ++tap) {
          total += lanes.load(dots + tap * (extents_.pixel_pitch() + 1));
        }
        lanes.store(sums + a * extents_.pitch() + b, total);
      });
    }
  }
  /// X of the head of this file.
  void add_along_rows(const double* sums, double* to) const noexcept {
    const index matrix = extents_.matrix();
    for_each_vector<double>(matrix, [&](index n, const auto& lanes) {
      vector<double> total = lanes.load(sums + n);
      for (index tap = 1; tap < extents_.rows.taps; ++tap) total += lanes.load(sums + tap * matrix + n);
      lanes.store(to + n, total);
    });
  }
  /// The terms of rows i and j of positions.
  template <class Function>
  [[nodiscard]] double terms(const strips& of, index i, index j, const double* x_dots, const Function& seen) noexcept {
    const index rows = std::min(extents_.strip, extents_.columns.positions - of.a);
    const index columns = std::min(extents_.strip, extents_.columns.positions - of.b);
    const index pitch = extents_.pitch();
    places of_a;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by `find`
    places of_b;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by `find`
    find(delta_, &step_axis::delta, i, of.a, 0, rows, of_a);
    find(delta_, &step_axis::delta, j, of.b, 0, columns, of_b);
    double total = 0;
    for (index a = 0; a < rows; a += side) {
      vector<double> of_row{};
      for (index b = of.same ? a : 0; b < columns; b += side) {
        dot_block<Scalar> dots;
        dots.add(of_a.at + a, of_b.at + b, leaf_.outputs, leaf_.delta_stride);
        const double* x_here = x_dots + a * pitch + b;
        if (!of.same || a != b) {
          of_row = dots.add_weighted(x_here, pitch, of_row);
          continue;
        }
        double once[dot_block_side * dot_block_side]{};
        for (index k = 0; k < std::min(side, rows - a); ++k) {
          const double x_squared = x_here[k * pitch + k];
          seen(x_squared, dots.of(static_cast<std::size_t>(k), static_cast<std::size_t>(k)));
          once[k * side + k] = x_squared / 2;
          std::copy_n(x_here + k * pitch + k + 1, side - k - 1, once + k * side + k + 1);
        }
        of_row = dots.add_weighted(once, side, of_row);
      }
      total += sum_of<double>(of_row);
    }
    return 2 * total;
  }

  /// Places [begin, end) of the strip of row `row` that begins at column `first`.
  void find(const Scalar* origin, index step_axis::*step, index row, index first, index begin, index end,
            places& found) const noexcept {
    const step_axis(&axes)[2] = leaf_.step;
    const step_axis& down = axes[extents_.transposed ? 1 : 0];
    const step_axis& across = axes[extents_.transposed ? 0 : 1];
    const Scalar* place = origin;
    index count = 0;
    for (index column = first + begin; column < first + end; ++column) {
      if (extents_.by_pixels) {
        place = origin + row * down.*step + column * across.*step;
      } else {
        const index row_number = column / axes[1].extent;
        place = origin + row_number / axes[0].extent * leaf_.step_plane.*step +
                row_number % axes[0].extent * axes[0].*step + column % axes[1].extent * axes[1].*step;
      }
      found.at[count++] = place;
    }
    for (index k = 1; k < side; ++k) found.at[count++] = place;
  }

  const outer_leaf& leaf_;
  gram_extents extents_;
  const Scalar* x_;
  const Scalar* delta_;
  alignas(vector_bytes) double scratch_[gram_extents::room];
};

}  // namespace pergrad::inline v0_1::on_host
