// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gram_extents.hpp - which dot products a Gram norm forms, and how many
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/detail/layout.hpp>
#include <pergrad/gradients/plan.hpp>

namespace pergrad::inline v0_1::on_host {

/// One axis of the grid of pixels that a block's windows lie on, a pixel apart.
struct pixel_axis {
  index positions = 1;
  index taps = 1;   ///< pixels of a window
  index first = 0;  ///< of the pixels that windows see, the first one that is not of the halo
  index count = 0;  ///< pixels from there on that are not of the halo; 0: windows do not lie so

  /// Pixels that the windows see.
  [[nodiscard]] constexpr index seen() const noexcept { return positions + taps - 1; }
};

/// What a Gram norm (gram.hpp) walks over: rows of positions, and a *strip* of so many columns of a row with as many of
/// another. A block whose windows do not overlap is one row of positions with a window of one pixel, which is the view.
struct gram_extents {
  pixel_axis rows;
  pixel_axis columns;
  index pixel = 1;          ///< numbers of x that make a pixel
  bool by_pixels = false;   ///< dots are formed of pixels and added up to those of windows
  bool transposed = false;  ///< columns run along the first axis of positions
  index strip = 0;          ///< columns of positions at once; 0: there is no room for even a few

  /// Doubles that a sample's norm takes on the stack.
  static constexpr index room = 4096;
  /// Vectors are multiplied in blocks of this many with as many. (dot_block.hpp has smaller ones where registers are
  /// few. A plan must not depend on that.)
  static constexpr index side = 4;
  /// Places that are remembered of a strip of either kind: its pixels fit into the room squared.
  static constexpr index most_places = 64 + side;

  [[nodiscard]] constexpr index strip_pixels() const noexcept { return strip + columns.taps - 1; }
  /// Elements from a row to the next of the dots of a strip's pixels, and of its positions.
  [[nodiscard]] constexpr index pixel_pitch() const noexcept { return round_up(strip_pixels(), side); }
  [[nodiscard]] constexpr index pitch() const noexcept { return round_up(strip, side); }
  [[nodiscard]] constexpr index matrix() const noexcept { return pitch() * pitch(); }
  /// Doubles that are used: dots of pixels, as many sums along the columns as a window has rows, and their sum.
  [[nodiscard]] constexpr index used() const noexcept {
    return strip_pixels() * pixel_pitch() + (rows.taps == 1 ? 1 : rows.taps + 1) * matrix();
  }
  /// The pixels, counted from the strip's first one, that are not of the halo.
  struct stretch {
    index begin = 0;
    index end = 0;
  };
  [[nodiscard]] constexpr stretch real_columns(index first_position) const noexcept {
    const index positions = std::min(strip, columns.positions - first_position);
    const index begin = std::max<index>(columns.first - first_position, 0);
    return {begin,
            std::max(begin, std::min(columns.first + columns.count - first_position, positions + columns.taps - 1))};
  }
  /// Additions that a term meets at most, once its two dots are known (gram.hpp): of its row's vectors and their lanes,
  /// of rows of a strip, of pairs of rows and of strips.
  [[nodiscard]] constexpr index additions() const noexcept {
    const index strips = (columns.positions + strip - 1) / strip;
    return (side * pitch() + 8) + pitch() / side + rows.positions + strips * (rows.positions + 1);
  }
  [[nodiscard]] constexpr bool is_real_row(index pixel_row) const noexcept {
    return pixel_row >= rows.first && pixel_row < rows.first + rows.count;
  }
  /// Dots and multiply-adds in them, for `outputs` numbers of delta.
  [[nodiscard]] constexpr gram_work work(index outputs) const noexcept {
    const auto blocks_of = [](index count) { return (count + side - 1) / side; };
    index pixel_blocks = 0;
    index delta_blocks = 0;
    for (index first = 0; first < columns.positions; first += strip) {
      const stretch real = real_columns(first);
      pixel_blocks += blocks_of(real.end - real.begin);
      delta_blocks += blocks_of(std::min(strip, columns.positions - first));
    }
    // A row with itself is symmetric.
    const auto pairs = [&](index blocks, index count) {
      index pairs_of_rows = 0;
      for (index apart = 1; apart < rows.positions; ++apart) pairs_of_rows += std::max<index>(0, count - apart);
      return count * (blocks * (blocks + 1) / 2) + pairs_of_rows * blocks * blocks;
    };
    const index real_rows = std::min(rows.first + rows.count, rows.seen()) - rows.first;
    const index x_dots = side * side * pairs(pixel_blocks, std::max<index>(0, real_rows));
    const index delta_dots = side * side * pairs(delta_blocks, rows.positions);
    return {static_cast<std::size_t>(x_dots + delta_dots),
            static_cast<std::size_t>(x_dots * pixel + delta_dots * outputs)};
  }
};

/// With the widest strip that there is room for.
[[nodiscard]] constexpr gram_extents with_strip(gram_extents of) noexcept {
  // Wider ones have no room, and a walk down from a long sequence would take the compiler's time.
  constexpr index widest = 64;
  for (of.strip = std::min(widest, round_up(of.columns.positions, of.side)); of.strip > 0; of.strip -= of.side) {
    if (of.used() <= gram_extents::room) break;
  }
  return of;
}

/// Of a block's windows of `view` numbers at `positions` positions: dots of whole windows.
[[nodiscard]] constexpr gram_extents gram_of_windows(index positions, index view) noexcept {
  return with_strip({.rows = {.count = 1}, .columns = {.positions = positions, .count = positions}, .pixel = view});
}
/// Whichever is less work: dots of windows or of pixels of `channels` numbers.
[[nodiscard]] constexpr gram_extents gram_of(index positions, index view, const pixel_axis (&axes)[2], index channels,
                                             index outputs) noexcept {
  const gram_extents windows = gram_of_windows(positions, view);
  if (axes[0].count == 0 || axes[1].count == 0 || axes[0].taps * axes[1].taps == 1) return windows;
  const bool transposed = axes[0].positions > axes[1].positions;
  const gram_extents pixels = with_strip({.rows = axes[transposed ? 1 : 0],
                                          .columns = axes[transposed ? 0 : 1],
                                          .pixel = channels,
                                          .by_pixels = true,
                                          .transposed = transposed});
  if (pixels.strip == 0) return windows;
  constexpr host_costs costs;
  return costs.of(pixels.work(outputs)) < costs.of(windows.work(outputs)) ? pixels : windows;
}

}  // namespace pergrad::inline v0_1::on_host
