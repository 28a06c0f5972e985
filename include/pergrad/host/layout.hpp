// SPDX-License-Identifier: Apache-2.0
// pergrad/host/layout.hpp - where a sample's values lie: channels-last rows inside a halo of zeros
//
// Every value of a sample is (height, width, channels) with the channels of a pixel side by side. Rank 1 is one pixel,
// rank 2 (positions, features) is one column of pixels. A halo as wide as the consumer's padding surrounds the image;
// producers write the inside only, so the halo stays zero and a convolution reads its padding from memory like any
// other pixel.
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_host {

using index = std::ptrdiff_t;

/// Zero pixels around an image.
struct halo {
  index top = 0;
  index left = 0;
  index bottom = 0;
  index right = 0;
  /// The smallest halo that contains both.
  [[nodiscard]] constexpr halo with(halo other) const noexcept {
    return {std::max(top, other.top), std::max(left, other.left), std::max(bottom, other.bottom),
            std::max(right, other.right)};
  }
};

/// Extents of the stored image. `channels_first` says how PyTorch numbers its values: (c, h, w) if set, else (h, w, c).
struct arrangement {
  index channels = 1;
  index height = 1;
  index width = 1;
  bool channels_first = false;

  [[nodiscard]] constexpr index size() const noexcept { return channels * height * width; }
  /// Do the stored order and PyTorch's order agree?
  [[nodiscard]] constexpr bool plain() const noexcept {
    return !channels_first || channels == 1 || height * width == 1;
  }
  friend constexpr bool operator==(const arrangement&, const arrangement&) noexcept = default;
};

[[nodiscard]] constexpr arrangement arrange(shape of) noexcept {
  const auto extent = [&](std::size_t axis) { return static_cast<index>(of[axis]); };
  switch (of.rank()) {
    case 2:
      return {extent(1), extent(0), 1, false};
    case 3:
      return {extent(0), extent(1), extent(2), true};
    default:
      return {static_cast<index>(of.size()), 1, 1, false};
  }
}

/// An arrangement with its halo in memory.
struct layout {
  arrangement values;
  index row = 0;     ///< elements from a pixel to the one below
  index column = 0;  ///< elements from a pixel to the one on its right
  index start = 0;   ///< the first pixel inside the halo
  index size = 0;    ///< elements to reserve for a sample, a multiple of the cache line

  [[nodiscard]] constexpr bool dense() const noexcept { return row == values.width * column || values.height == 1; }
  /// Position of value `i`, counted in PyTorch's order, from the sample's first element.
  [[nodiscard]] constexpr index position(index i) const noexcept {
    const index pixels = values.height * values.width;
    const index channel = values.channels_first ? i / pixels : i % values.channels;
    const index pixel = values.channels_first ? i % pixels : i / values.channels;
    return start + pixel / values.width * row + pixel % values.width * column + channel;
  }
};

inline constexpr index line = 16;  ///< elements that slots are rounded up to: 64 bytes of float
[[nodiscard]] constexpr index round_up(index count, index to = line) noexcept { return (count + to - 1) / to * to; }

[[nodiscard]] constexpr layout lay_out(arrangement values, halo around) noexcept {
  layout result;
  result.values = values;
  result.column = values.channels;
  result.row = (values.width + around.left + around.right) * values.channels;
  result.start = around.top * result.row + around.left * result.column;
  result.size = round_up((values.height + around.top + around.bottom) * result.row);
  return result;
}

/// Calls f(first element in a, first element in b, count) for stretches of values that are contiguous in both layouts.
/// Precondition: the same number of values.
template <class Function>
constexpr void for_each_stretch(const layout& a, const layout& b, Function&& f) {
  if (a.values == b.values) {
    if (a.dense() && b.dense()) {
      f(a.start, b.start, a.values.size());
      return;
    }
    for (index i = 0; i < a.values.height; ++i) f(a.start + i * a.row, b.start + i * b.row, a.values.width * a.column);
    return;
  }
  for (index i = 0; i < a.values.size(); ++i) f(a.position(i), b.position(i), index{1});
}

}  // namespace pergrad::inline v0_1::on_host
