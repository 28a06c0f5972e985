// SPDX-License-Identifier: Apache-2.0
// pergrad/graph/layout.hpp - where a sample's values lie: channels-last rows inside a halo of zeros
//
// Every value of a sample is (depth, height, width, channels) with the channels of a pixel side by side. Rank 1 is one
// pixel; rank 2 is one column of pixels, a position a pixel, whether PyTorch numbers it (positions, features) or
// (channels, positions): both are the same stored column, so that transposing it moves nothing. A halo as wide as the
// consumer's padding surrounds the image; producers write the inside only, so the halo stays zero and a convolution
// reads its padding from memory like any other pixel.
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/detail/index.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_host {

/// Zero pixels around an image.
struct halo {
  index top = 0;
  index left = 0;
  index bottom = 0;
  index right = 0;
  index front = 0;
  index back = 0;
  /// The smallest halo that contains both.
  [[nodiscard]] constexpr halo with(halo other) const noexcept {
    return {std::max(top, other.top),     std::max(left, other.left),   std::max(bottom, other.bottom),
            std::max(right, other.right), std::max(front, other.front), std::max(back, other.back)};
  }
  friend constexpr bool operator==(const halo&, const halo&) noexcept = default;
};

/// Extents of the stored image. `channels_first` says how PyTorch numbers its values: (c, d, h, w) if set, else
/// (d, h, w, c).
struct arrangement {
  index channels = 1;
  index height = 1;
  index width = 1;
  bool channels_first = false;
  index depth = 1;

  [[nodiscard]] constexpr index pixels() const noexcept { return depth * height * width; }
  [[nodiscard]] constexpr index size() const noexcept { return channels * pixels(); }
  /// Do the stored order and PyTorch's order agree?
  [[nodiscard]] constexpr bool plain() const noexcept { return !channels_first || channels == 1 || pixels() == 1; }
  /// Is every value at the same place in both, counted in PyTorch's order?
  [[nodiscard]] constexpr bool agrees_with(const arrangement& other) const noexcept {
    return channels == other.channels && depth == other.depth && height == other.height && width == other.width &&
           (channels_first == other.channels_first || channels == 1 || pixels() == 1);
  }
  /// The same stored column of pixels with the axes of its rank-2 shape exchanged.
  [[nodiscard]] constexpr arrangement transposed() const noexcept {
    arrangement result = *this;
    result.channels_first = !channels_first;
    return result;
  }
  friend constexpr bool operator==(const arrangement&, const arrangement&) noexcept = default;
};

/// How a shape is stored. Rank 2 is (positions, features), or (channels, positions) if `channels_first` says so.
[[nodiscard]] constexpr arrangement arrange(shape of, bool channels_first = false) noexcept {
  const auto extent = [&](std::size_t axis) { return static_cast<index>(of[axis]); };
  switch (of.rank()) {
    case 2:
      return {extent(channels_first ? 0 : 1), extent(channels_first ? 1 : 0), 1, channels_first, 1};
    case 3:
      return {extent(0), extent(1), extent(2), true, 1};
    case 4:
      return {extent(0), extent(2), extent(3), true, extent(1)};
    default:
      return {static_cast<index>(of.size()), 1, 1, false, 1};
  }
}

/// An arrangement with its halo in memory.
struct layout {
  arrangement values;
  index row = 0;          ///< elements from a pixel to the one below
  index column = 0;       ///< elements from a pixel to the one on its right
  index start = 0;        ///< the first pixel inside the halo
  index size = 0;         ///< elements to reserve for a sample, a multiple of the cache line
  index plane = 0;        ///< elements from a pixel to the one behind
  bool has_halo = false;  ///< even where `start` is 0 and rounding up has room for all of it

  [[nodiscard, gnu::noinline]] constexpr bool dense() const noexcept {
    return (row == values.width * column || values.height * values.depth == 1) &&
           (plane == values.height * row || values.depth == 1);
  }
  /// Rows of pixels that are contiguous: one if all are.
  [[nodiscard]] constexpr index lines() const noexcept { return dense() ? 1 : values.depth * values.height; }
  [[nodiscard]] constexpr index line_pixels() const noexcept { return dense() ? values.pixels() : values.width; }
  /// First element of such a row.
  [[nodiscard]] constexpr index line_start(index number) const noexcept {
    return values.depth == 1 ? start + number * row
                             : start + number / values.height * plane + number % values.height * row;
  }
  /// Position of value `i`, counted in PyTorch's order, from the sample's first element.
  [[nodiscard]] constexpr index position(index i) const noexcept {
    const index channel = values.channels_first ? i / values.pixels() : i % values.channels;
    const index pixel = values.channels_first ? i % values.pixels() : i / values.channels;
    return start + pixel / values.width / values.height * plane + pixel / values.width % values.height * row +
           pixel % values.width * column + channel;
  }
};

inline constexpr index line = 16;  ///< elements that slots are rounded up to: 64 bytes of float
[[nodiscard]] constexpr index round_up(index count, index to = line) noexcept { return (count + to - 1) / to * to; }

[[nodiscard]] constexpr layout lay_out(arrangement values, halo around) noexcept {
  layout result;
  result.values = values;
  result.column = values.channels;
  result.row = (values.width + around.left + around.right) * values.channels;
  result.plane = (values.height + around.top + around.bottom) * result.row;
  result.start = around.front * result.plane + around.top * result.row + around.left * result.column;
  result.size = round_up((values.depth + around.front + around.back) * result.plane);
  result.has_halo = around != halo{};
  return result;
}
/// The values of another layout in PyTorch's order without gaps.
[[nodiscard]] constexpr layout plain_twin(const layout& of) noexcept {
  return lay_out(of.values.plain() ? of.values : arrangement{of.values.size(), 1, 1, false, 1}, {});
}

/// Walks through a layout in PyTorch's order, in runs of equal steps.
class run_cursor {
 public:
  constexpr explicit run_cursor(const layout& of) noexcept
      : of_{&of},
        by_channel_{!of.values.plain()},
        step_{by_channel_ ? of.column : 1},
        length_{of.line_pixels() * (by_channel_ ? 1 : of.values.channels)},
        left_{length_},
        at_{of.line_start(0)} {}

  [[nodiscard]] constexpr index at() const noexcept { return at_; }
  [[nodiscard]] constexpr index step() const noexcept { return step_; }
  /// Values to the end of the run.
  [[nodiscard]] constexpr index left() const noexcept { return left_; }
  /// Precondition: `count <= left()`.
  [[gnu::noinline]] constexpr void advance(index count) noexcept {
    left_ -= count;
    at_ += count * step_;
    if (left_ > 0) return;
    left_ = length_;
    if (++line_ == of_->lines()) {
      line_ = 0;
      ++channel_;
    }
    at_ = of_->line_start(line_) + channel_;
  }

 private:
  const layout* of_;
  bool by_channel_;
  index step_;
  index length_;
  index left_;
  index at_;
  index line_ = 0;
  index channel_ = 0;
};

/// Calls f(first element in a, first element in b, count) for stretches of values that are contiguous in both layouts.
/// Precondition: their arrangements agree.
template <class Function>
constexpr void for_each_stretch(const layout& a, const layout& b, Function&& f) {
  // One call of f: it is inlined here, and many functions are made of this one.
  const bool dense = a.dense() && b.dense();
  const index count = dense ? a.values.size() : a.values.width * a.values.channels;
  const index stretches = dense ? 1 : a.values.depth * a.values.height;
  index plane = 0;
  index row = 0;
  for (index stretch = 0; stretch < stretches; ++stretch) {
    f(a.start + plane * a.plane + row * a.row, b.start + plane * b.plane + row * b.row, count);
    if (++row == a.values.height) {
      row = 0;
      ++plane;
    }
  }
}

}  // namespace pergrad::inline v0_1::on_host
