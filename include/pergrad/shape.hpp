// SPDX-License-Identifier: Apache-2.0
// pergrad/shape.hpp - compile-time shapes of one sample, and the small window sizes that layers take
//
// A shape never has a batch axis: everything in this library that carries a shape speaks of ONE sample. That is what
// makes a per-sample gradient well defined, and why a layer cannot mix samples by accident.
#pragma once

#include <cstddef>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1 {

/// The logical shape of one sample: 1 to 4 extents, outermost first, as in PyTorch without its batch axis.
///
/// `{features}`, `{positions, features}`, `{channels, height, width}` or `{channels, depth, height, width}`.
/// A structural type, so it can be a template argument. Unused extents are 0; `shape{}` has rank 0 and means "no
/// shape". `token_ids` and `variable` make the two special kinds of input.
struct shape {
  // Not first by chance. g++ 12 with AVX-512 passes a constant structure of 32 bytes by value as the broadcast of its
  // first number if all numbers behind it are the same or trailing zeros: {28, 28, 0, 0} arrives as {28, 28, 28, 28}.
  // No 32 bytes of this one can look like that. tests/network/shape_by_value_test.cpp watches over it.
  std::size_t lengths = 0;  ///< see `varying_axis`
  std::size_t e0 = 0;
  std::size_t e1 = 0;
  std::size_t e2 = 0;
  std::size_t e3 = 0;
  std::size_t ids = 0;  ///< not 0: the values are integers 0 .. ids - 1, not numbers to compute with

  constexpr shape() noexcept = default;
  // Implicit, so that a layer can return {channels, height, width}.
  // NOLINTNEXTLINE(google-explicit-constructor)
  PERGRAD_HD constexpr shape(std::size_t first, std::size_t second = 0, std::size_t third = 0,
                             std::size_t fourth = 0) noexcept
      : e0{first}, e1{second}, e2{third}, e3{fourth} {}
#if PERGRAD_WRITES_MEMBERS
  constexpr shape(std::size_t length_bits, std::size_t first, std::size_t second, std::size_t third, std::size_t fourth,
                  std::size_t id_count) noexcept
      : lengths{length_bits}, e0{first}, e1{second}, e2{third}, e3{fourth}, ids{id_count} {}
#endif

  /// 1 or 2: along this axis, samples have a length of their own; 0: all samples are whole.
  [[nodiscard]] PERGRAD_HD constexpr std::size_t varying_axis() const noexcept { return lengths & 3U; }
  constexpr void set_varying_axis(std::size_t axis) noexcept {
    lengths = axis == 0 ? 0 : std::size_t{1} << 31U | axis;  // a number that no extent has
  }
  /// Number of extents, 0 to 4.
  [[nodiscard]] PERGRAD_HD constexpr std::size_t rank() const noexcept {
    return e0 == 0 ? 0U : e1 == 0 ? 1U : e2 == 0 ? 2U : e3 == 0 ? 3U : 4U;
  }
  /// Is there an extent behind one of 0? `size` would not count it.
  [[nodiscard]] PERGRAD_HD constexpr bool has_gap() const noexcept {
    return (e0 == 0 && e1 != 0) || (e1 == 0 && e2 != 0) || (e2 == 0 && e3 != 0);
  }
  /// Number of values in a sample: the product of the extents (0 for `shape{}`).
  [[nodiscard]] PERGRAD_HD constexpr std::size_t size() const noexcept {
    return e0 * (e1 == 0 ? 1U : e1) * (e2 == 0 ? 1U : e2) * (e3 == 0 ? 1U : e3);
  }
  /// Extent `axis`, counted from the outermost; 1 beyond the rank.
  [[nodiscard]] PERGRAD_HD constexpr std::size_t operator[](std::size_t axis) const noexcept {
    const std::size_t extent = axis == 0 ? e0 : axis == 1 ? e1 : axis == 2 ? e2 : e3;
    return extent == 0 ? 1U : extent;
  }
  friend constexpr bool operator==(const shape&, const shape&) noexcept = default;
};

/// A sequence of integer ids, for a network that begins with an embedding: `{positions}` values in [0, vocabulary).
[[nodiscard]] constexpr shape token_ids(std::size_t positions, std::size_t vocabulary) noexcept {
  shape sequence{positions};
  sequence.ids = vocabulary;
  return sequence;
}
/// The same input with a length a sample: `{positions, features}` or ids of which the first `length` positions are
/// there. What lies beyond contributes nothing to anything.
[[nodiscard]] constexpr shape variable(shape sequence) noexcept {
  sequence.set_varying_axis(1);
  return sequence;
}

/// A shape as a type, so that compilers show it in their messages as people write it: `of_shape<1, 28, 28>`.
template <std::size_t... Extents>
struct of_shape {
  static constexpr shape value{Extents...};
};
/// The same of ids: `of_ids<50000, 128>` is `token_ids(128, 50000)`.
template <std::size_t Vocabulary, std::size_t Positions>
struct of_ids {
  static constexpr shape value = token_ids(Positions, Vocabulary);
};
/// The same of samples that have lengths of their own along an axis.
template <class Longest, std::size_t Axis>
struct of_varying_length {
  static constexpr shape value = [] {
    shape result = Longest::value;
    result.set_varying_axis(Axis);
    return result;
  }();
};

namespace detail {

// Made of std::conditional_t alone: what nvcc hands on to the host's compiler must be able to say it.
template <std::size_t Ids, std::size_t E0, std::size_t E1, std::size_t E2, std::size_t E3>
using name_of_extents = std::conditional_t<
    (Ids != 0), of_ids<Ids, E0>,
    std::conditional_t<(E3 != 0), of_shape<E0, E1, E2, E3>,
                       std::conditional_t<(E2 != 0), of_shape<E0, E1, E2>,
                                          std::conditional_t<(E1 != 0), of_shape<E0, E1>, of_shape<E0>>>>>;
template <class Longest, std::size_t Axis>
using name_with_lengths = std::conditional_t<(Axis != 0), of_varying_length<Longest, Axis>, Longest>;
template <shape Given>
struct name_of_shape {
  using type =
      name_with_lengths<name_of_extents<Given.ids, Given.e0, Given.e1, Given.e2, Given.e3>, Given.varying_axis()>;
};
/// The type that stands for a shape.
template <shape Given>
using shape_name = typename name_of_shape<Given>::type;

}  // namespace detail

/// Depth, height and width of a window, a stride, a padding or a dilation. One number means all three alike; two are
/// height and width, with a depth of 1. Of one number for all axes a layer looks at those that its input has; numbers
/// for others are an error.
struct extent {
  std::size_t depth = 1;
  std::size_t height = 1;
  std::size_t width = 1;

  constexpr extent() noexcept = default;
  // Implicit, so that `conv2d<16, 8>` reads well.
  constexpr extent(std::size_t all) noexcept  // NOLINT(google-explicit-constructor)
      : depth{all}, height{all}, width{all} {}
  constexpr extent(std::size_t rows, std::size_t columns) noexcept : height{rows}, width{columns} {}
  constexpr extent(std::size_t planes, std::size_t rows, std::size_t columns) noexcept
      : depth{planes}, height{rows}, width{columns} {}
  /// Depth · height · width.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return depth * height * width; }
  friend constexpr bool operator==(const extent&, const extent&) noexcept = default;
};

namespace detail {

/// The numbers of an option: one for all axes, two for height and width, three for all of them; `otherwise` elsewhere.
template <std::size_t... Sizes>
[[nodiscard]] constexpr extent extent_of(std::size_t otherwise) noexcept {
  constexpr std::size_t count = sizeof...(Sizes);
  constexpr std::size_t given[count + 1] = {Sizes..., 0};
  if constexpr (count == 1) {
    return {given[0]};
  } else if constexpr (count == 2) {
    return {otherwise, given[0], given[1]};
  } else if constexpr (count == 3) {
    return {given[0], given[1], given[2]};
  } else {
    return {otherwise};
  }
}

}  // namespace detail

/// Layer option: step between neighbouring windows. `stride<2>`, `stride<2, 1>` (height, width) or `stride<1, 2, 2>`
/// (depth, height, width).
template <std::size_t... Sizes>
struct stride {
  static constexpr extent value = detail::extent_of<Sizes...>(1);
};
/// Layer option: zeros around the input. `padding<3>`, `padding<1, 0>` (height, width) or `padding<0, 1, 1>`, on both
/// sides.
template <std::size_t... Sizes>
struct padding {
  static constexpr extent value = detail::extent_of<Sizes...>(0);
};
/// Layer option: distance between the taps of a kernel; 1 means dense.
template <std::size_t... Sizes>
struct dilation {
  static constexpr extent value = detail::extent_of<Sizes...>(1);
};
/// Layer option of a transposed convolution: rows and columns that its output has more, on the far sides.
template <std::size_t... Sizes>
struct output_padding {
  static constexpr extent value = detail::extent_of<Sizes...>(0);
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
  extent output_padding{0};
  std::size_t groups = 1;
  bool bias = true;
  bool stride_given = false;
  bool output_padding_given = false;
  std::size_t axes_given = 0;  ///< the most numbers that an option has
  bool unknown_given = false;  ///< something that is no option at all, or two options that disagree

  friend constexpr bool operator==(const window_options&, const window_options&) noexcept = default;
  constexpr void count_axes(std::size_t numbers) noexcept {
    axes_given = numbers > axes_given ? numbers : axes_given;
    unknown_given = unknown_given || numbers == 0 || numbers > 3;
  }
  /// The same options for a layer with fewer axes: an extent of 1 along the others.
  [[nodiscard]] constexpr window_options on(std::size_t axes) const noexcept;
};

/// What is left of an extent for a layer on a sequence (1: height), an image (2) or a volume (3).
[[nodiscard]] constexpr extent on_axes(extent given, std::size_t axes, std::size_t otherwise) noexcept {
  return {axes < 3 ? otherwise : given.depth, given.height, axes < 2 ? otherwise : given.width};
}
/// Whether an extent says nothing of axes that such a layer does not have; one number for all axes does not.
[[nodiscard]] constexpr bool fits_axes(extent given, std::size_t axes) noexcept {
  return given == extent{given.depth} || given == on_axes(given, axes, 1);
}
constexpr window_options window_options::on(std::size_t axes) const noexcept {
  window_options result = *this;
  result.stride = on_axes(stride, axes, 1);
  result.padding = on_axes(padding, axes, 0);
  result.dilation = on_axes(dilation, axes, 1);
  result.output_padding = on_axes(output_padding, axes, 0);
  result.unknown_given = unknown_given || axes_given > axes;
  return result;
}

template <std::size_t... Sizes>
constexpr void apply(window_options& options, pergrad::stride<Sizes...> option) noexcept {
  options.stride = option.value;
  options.stride_given = true;
  options.count_axes(sizeof...(Sizes));
}
template <std::size_t... Sizes>
constexpr void apply(window_options& options, pergrad::padding<Sizes...> option) noexcept {
  options.padding = option.value;
  options.count_axes(sizeof...(Sizes));
}
template <std::size_t... Sizes>
constexpr void apply(window_options& options, pergrad::dilation<Sizes...> option) noexcept {
  options.dilation = option.value;
  options.count_axes(sizeof...(Sizes));
}
template <std::size_t... Sizes>
constexpr void apply(window_options& options, pergrad::output_padding<Sizes...> option) noexcept {
  options.output_padding = option.value;
  options.output_padding_given = true;
  options.count_axes(sizeof...(Sizes));
}
template <std::size_t Count>
constexpr void apply(window_options& options, pergrad::groups<Count> option) noexcept {
  options.groups = option.value;
}
constexpr void apply(window_options& options, no_bias) noexcept { options.bias = false; }

/// What is no option of the layer.
template <class Gathered, class Unknown>
constexpr void apply(Gathered& options, Unknown) noexcept {
  options.unknown_given = true;
}
/// Do two of the options disagree? Then it matters which of them is looked at last.
template <class Gathered, class First, class... Rest>
[[nodiscard]] constexpr bool options_disagree() noexcept {
  const auto both = [](auto one, auto other) {
    Gathered options;
    apply(options, one);
    apply(options, other);
    return options;
  };
  if (!((both(First{}, Rest{}) == both(Rest{}, First{})) && ...)) return true;
  if constexpr (sizeof...(Rest) < 2) {
    return false;
  } else {
    return options_disagree<Gathered, Rest...>();
  }
}
/// A layer's options, gathered from its option types in any order: `apply(options, option)` says what one of them
/// means.
template <class Gathered, class... Options>
[[nodiscard]] constexpr Gathered gather() noexcept {
  Gathered options;
  (apply(options, Options{}), ...);
  if constexpr (sizeof...(Options) > 1) {
    options.unknown_given = options.unknown_given || options_disagree<Gathered, Options...>();
  }
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

/// The inner axes of a sample of shape {channels, ...}: a sequence's positions are its height.
[[nodiscard]] constexpr extent image_size(shape of) noexcept {
  return of.rank() == 2 ? extent{of.e1, 1} : of.rank() == 3 ? extent{of.e1, of.e2} : extent{of[1], of[2], of[3]};
}
/// {channels, positions}, {channels, height, width} or {channels, depth, height, width}.
[[nodiscard]] constexpr shape image_shape(std::size_t channels, extent size, std::size_t axes) noexcept {
  return axes == 1   ? shape{channels, size.height}
         : axes == 2 ? shape{channels, size.height, size.width}
                     : shape{channels, size.depth, size.height, size.width};
}
[[nodiscard]] constexpr bool has_zero(extent of) noexcept { return of.size() == 0; }

}  // namespace detail
}  // namespace pergrad::inline v0_1
