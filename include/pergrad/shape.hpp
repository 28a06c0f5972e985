// SPDX-License-Identifier: Apache-2.0
// pergrad/shape.hpp - compile-time shapes of one sample, and the small window sizes that layers take
//
// A shape never has a batch axis: everything in this library that carries a shape speaks of ONE sample. That is what
// makes a per-sample gradient well defined, and why a layer cannot mix samples by accident.
#pragma once

#include <cstddef>

namespace pergrad::inline v0_1 {

/// The logical shape of one sample: 1 to 4 extents, outermost first, as in PyTorch without its batch axis.
///
/// `{features}`, `{positions, features}`, `{channels, height, width}` or `{channels, depth, height, width}`.
/// A structural type, so it can be a template argument. Unused extents are 0; `shape{}` has rank 0 and means "no
/// shape". `token_ids` and `variable` make the two special kinds of input.
struct shape {
  std::size_t e0 = 0;
  std::size_t e1 = 0;
  std::size_t e2 = 0;
  std::size_t e3 = 0;
  std::size_t ids = 0;            ///< not 0: the values are integers 0 .. ids - 1, not numbers to compute with
  std::size_t varying_axis = 0;   ///< 1 or 2: along this axis, samples have a length of their own; 0: none

  /// Number of extents, 0 to 4.
  [[nodiscard]] constexpr std::size_t rank() const noexcept {
    return e0 == 0 ? 0U : e1 == 0 ? 1U : e2 == 0 ? 2U : e3 == 0 ? 3U : 4U;
  }
  /// Number of values in a sample: the product of the extents (0 for `shape{}`).
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    return e0 * (e1 == 0 ? 1U : e1) * (e2 == 0 ? 1U : e2) * (e3 == 0 ? 1U : e3);
  }
  /// Extent `axis`, counted from the outermost; 1 beyond the rank.
  [[nodiscard]] constexpr std::size_t operator[](std::size_t axis) const noexcept {
    const std::size_t extent = axis == 0 ? e0 : axis == 1 ? e1 : axis == 2 ? e2 : e3;
    return extent == 0 ? 1U : extent;
  }
  friend constexpr bool operator==(const shape&, const shape&) noexcept = default;
};

/// A sequence of integer ids, for a network that begins with an embedding: `{positions}` values in [0, vocabulary).
[[nodiscard]] constexpr shape token_ids(std::size_t positions, std::size_t vocabulary) noexcept {
  return {positions, 0, 0, 0, vocabulary, 0};
}
/// The same input with a length a sample: `{positions, features}` or ids of which the first `length` positions are
/// there. What lies beyond contributes nothing to anything.
[[nodiscard]] constexpr shape variable(shape sequence) noexcept {
  sequence.varying_axis = 1;
  return sequence;
}

/// Height and width of a window, a stride, a padding or a dilation. One number means a square one.
struct extent {
  std::size_t height = 1;
  std::size_t width = 1;

  constexpr extent() noexcept = default;
  // Implicit, so that `conv2d<16, 8>` reads well.
  constexpr extent(std::size_t both) noexcept  // NOLINT(google-explicit-constructor)
      : height{both}, width{both} {}
  constexpr extent(std::size_t rows, std::size_t columns) noexcept : height{rows}, width{columns} {}
  friend constexpr bool operator==(const extent&, const extent&) noexcept = default;
};

/// Layer option: step between neighbouring windows. `stride<2>` or `stride<2, 1>` (height, width).
template <std::size_t Height, std::size_t Width = Height>
struct stride {
  static constexpr extent value{Height, Width};
};
/// Layer option: zeros around the input. `padding<3>` or `padding<1, 0>` (height, width), on both sides.
template <std::size_t Height, std::size_t Width = Height>
struct padding {
  static constexpr extent value{Height, Width};
};
/// Layer option: distance between the taps of a kernel; 1 means dense.
template <std::size_t Height, std::size_t Width = Height>
struct dilation {
  static constexpr extent value{Height, Width};
};
/// Layer option: split channels into independent groups.
template <std::size_t Count>
struct groups {
  static constexpr std::size_t value = Count;
};
/// Layer option: no bias term.
struct no_bias {};

namespace detail {

/// Options of a windowed layer, gathered from its option types in any order.
struct window_options {
  extent stride{1};
  extent padding{0};
  extent dilation{1};
  std::size_t groups = 1;
  bool bias = true;
  bool stride_given = false;
  bool unknown_given = false;  ///< something that is no option at all
};

template <std::size_t Height, std::size_t Width>
constexpr void apply(window_options& options, pergrad::stride<Height, Width> option) noexcept {
  options.stride = option.value;
  options.stride_given = true;
}
template <std::size_t Height, std::size_t Width>
constexpr void apply(window_options& options, pergrad::padding<Height, Width> option) noexcept {
  options.padding = option.value;
}
template <std::size_t Height, std::size_t Width>
constexpr void apply(window_options& options, pergrad::dilation<Height, Width> option) noexcept {
  options.dilation = option.value;
}
template <std::size_t Count>
constexpr void apply(window_options& options, pergrad::groups<Count> option) noexcept {
  options.groups = option.value;
}
constexpr void apply(window_options& options, no_bias) noexcept { options.bias = false; }

template <class Unknown>
constexpr void apply(window_options& options, Unknown) noexcept {
  options.unknown_given = true;
}

template <class... Options>
[[nodiscard]] constexpr window_options gather_options() noexcept {
  window_options options;
  (apply(options, Options{}), ...);
  return options;
}

/// Windows that fit along one axis: floor((size + 2·padding − dilation·(kernel − 1) − 1) / stride) + 1, or 0 if none
/// does.
[[nodiscard]] constexpr std::size_t window_count(std::size_t size, std::size_t kernel, std::size_t stride,
                                                 std::size_t padding, std::size_t dilation) noexcept {
  const std::size_t reach = dilation * (kernel - 1) + 1;
  const std::size_t padded = size + 2 * padding;
  return kernel == 0 || stride == 0 || padded < reach ? 0 : (padded - reach) / stride + 1;
}

}  // namespace detail
}  // namespace pergrad::inline v0_1
