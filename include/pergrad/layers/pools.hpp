// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/pools.hpp - the maximum or the mean of each window of a sequence, an image or a volume
//
// A pool is made of windows, which inputs an output sees, and of a rule, what it makes of them and how its gradient is
// shared among them: a maximum's goes to the first input that equals it or is NaN, a mean's is shared equally.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Windows of one size at equal steps along `Axes` axes of an input {channels, ...}; the stride defaults to the kernel,
/// as in PyTorch.
template <std::size_t Axes, extent GivenKernel, class... Options>
struct sliding_windows {
  static constexpr window_options options = gather<window_options, Options...>().on(Axes);
  static constexpr extent kernel = on_axes(GivenKernel, Axes, 1);
  static constexpr extent step = options.stride_given ? options.stride : kernel;
  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{kernel, step, options.padding}; }
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    return image_shape(in.e0, output_size(in), Axes);
  }
  [[nodiscard]] static constexpr window_range planes(shape in, std::size_t d) noexcept requires(Axes == 3) {
    return inside(d * step.depth, kernel.depth, options.padding.depth, image_size(in).depth);
  }
  [[nodiscard]] static constexpr window_range rows(shape in, std::size_t i) noexcept {
    return inside(i * step.height, kernel.height, options.padding.height, image_size(in).height);
  }
  [[nodiscard]] static constexpr window_range columns(shape in, std::size_t j) noexcept {
    return inside(j * step.width, kernel.width, options.padding.width, image_size(in).width);
  }
  /// Windows of a shorter sequence. With padding a window could see beyond its end, so that is not offered.
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept
      requires(Axes == 1 && options.padding.height == 0) {
    return window_count(length, kernel.height, step.height, 0, 1);
  }
  /// Values in a window, padding included (PyTorch's `count_include_pad`).
  template <class... Index>
  [[nodiscard]] static constexpr std::size_t divisor(shape /*in*/, Index... /*of the output*/) noexcept {
    return kernel.size();
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.unknown_given || options.dilation != extent{1} || options.groups != 1 || !options.bias ||
        options.output_padding_given || !fits_axes(GivenKernel, Axes)) {
      return mistake::option_not_offered;
    }
    if (in.rank() != Axes + 1) return wrong_rank(Axes);
    if (has_zero(kernel) || has_zero(step)) return mistake::zero_is_no_size;
    if (2 * options.padding.depth > kernel.depth || 2 * options.padding.height > kernel.height ||
        2 * options.padding.width > kernel.width) {
      return mistake::pool_padding_too_large;
    }
    return has_zero(output_size(in)) ? mistake::kernel_too_large : mistake::none;
  }

 private:
  [[nodiscard]] static constexpr extent output_size(shape in) noexcept {
    const extent size = image_size(in);
    return {window_count(size.depth, kernel.depth, step.depth, options.padding.depth, 1),
            window_count(size.height, kernel.height, step.height, options.padding.height, 1),
            window_count(size.width, kernel.width, step.width, options.padding.width, 1)};
  }
  [[nodiscard]] static constexpr window_range inside(std::size_t start, std::size_t length, std::size_t padding,
                                                     std::size_t size) noexcept {
    const std::size_t end = std::min(start + length, size + padding);
    return {start < padding ? 0 : start - padding, end < padding ? 0 : end - padding};
  }
};

/// Overlapping windows that cut each of `Axes` axes into a fixed number of parts: part i of n along an axis of h sees
/// floor(i h / n) .. ceil((i + 1) h / n) - 1, as in PyTorch.
template <std::size_t Axes, extent Parts, class... Options>
struct adaptive_windows {
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return image_shape(in.e0, Parts, Axes); }
  [[nodiscard]] static constexpr window_range planes(shape in, std::size_t d) noexcept requires(Axes == 3) {
    return part(image_size(in).depth, Parts.depth, d);
  }
  [[nodiscard]] static constexpr window_range rows(shape in, std::size_t i) noexcept {
    return part(image_size(in).height, Parts.height, i);
  }
  [[nodiscard]] static constexpr window_range columns(shape in, std::size_t j) noexcept {
    return part(image_size(in).width, Parts.width, j);
  }
  /// Inputs that the mean of output (i, j) or (d, i, j) counts.
  [[nodiscard]] static constexpr std::size_t divisor(shape in, std::size_t i, std::size_t j) noexcept {
    return length(rows(in, i)) * length(columns(in, j));
  }
  [[nodiscard]] static constexpr std::size_t divisor(shape in, std::size_t d, std::size_t i, std::size_t j) noexcept
      requires(Axes == 3) {
    return length(planes(in, d)) * divisor(in, i, j);
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (sizeof...(Options) != 0) return mistake::option_not_offered;
    if (in.rank() != Axes + 1) return wrong_rank(Axes);
    return has_zero(Parts) ? mistake::zero_is_no_size : mistake::none;
  }

 private:
  [[nodiscard]] static constexpr std::size_t length(window_range range) noexcept { return range.end - range.begin; }
  [[nodiscard]] static constexpr window_range part(std::size_t size, std::size_t parts, std::size_t i) noexcept {
    return {i * size / parts, ((i + 1) * size + parts - 1) / parts};
  }
};

/// The largest value of a window; its gradient goes to the first input that equals it, or to the first NaN.
struct maximum_of_window {
  using rule_type = maximum_of_window;
  static constexpr window_rule known_rule = window_rule::maximum;
  static constexpr bool on_device = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value start() noexcept {
    return Value{} - math::detail::float_format<math::element_t<Value>>::infinity;
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value combine(Value best, Value x) noexcept {
    return math::select(x > best, x, math::select(x != x, x, best));  // a NaN wins and stays, as in PyTorch
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value finish(Value best, math::element_t<Value> /*divisor*/) noexcept {
    return best;
  }
  /// The part of `dy` that belongs to input x. `remaining` is dy before the window's first input, what is left after
  /// it.
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value share(Value x, Value y, Value& remaining,
                                              math::element_t<Value> /*divisor*/) noexcept {
    const Value part = math::select(x == y, remaining, math::select(x != x, remaining, Value{}));
    remaining = math::select(x == y, Value{}, math::select(x != x, Value{}, remaining));
    return part;
  }
};

/// y = sum / divisor; every input's share of dy is dy / divisor.
struct mean_of_window {
  using rule_type = mean_of_window;
  static constexpr window_rule known_rule = window_rule::mean;
  static constexpr bool on_device = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value start() noexcept {
    return Value{};
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value combine(Value sum, Value x) noexcept {
    return sum + x;
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value finish(Value sum, math::element_t<Value> divisor) noexcept {
    return sum / divisor;
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value share(Value /*x*/, Value /*y*/, Value& dy,
                                              math::element_t<Value> divisor) noexcept {
    return dy / divisor;
  }
};

}  // namespace detail

/// `max_pool1d<Kernel, Options...>` on `{channels, positions}`; options `stride<>` (default: the kernel),
/// `padding<>` (counts as minus infinity). PyTorch: `nn.MaxPool1d` with its tie rule: first in row order.
template <std::size_t Kernel, class... Options>
struct max_pool1d : detail::sliding_windows<1, extent{Kernel}, Options...>, detail::maximum_of_window {
  using rule_is_of = max_pool1d;
  static constexpr const char* name = "max_pool1d";
};
/// The same on `{channels, height, width}`. PyTorch: `nn.MaxPool2d`.
template <extent Kernel, class... Options>
struct max_pool2d : detail::sliding_windows<2, Kernel, Options...>, detail::maximum_of_window {
  using rule_is_of = max_pool2d;
  static constexpr const char* name = "max_pool2d";
};
/// The same on `{channels, depth, height, width}`. PyTorch: `nn.MaxPool3d`.
template <extent Kernel, class... Options>
struct max_pool3d : detail::sliding_windows<3, Kernel, Options...>, detail::maximum_of_window {
  using rule_is_of = max_pool3d;
  static constexpr const char* name = "max_pool3d";
};

/// `avg_pool1d<Kernel, Options...>` on `{channels, positions}`; options `stride<>` (default: the kernel),
/// `padding<>` (zeros that count in the mean). PyTorch: `nn.AvgPool1d` with its default `count_include_pad=True`.
template <std::size_t Kernel, class... Options>
struct avg_pool1d : detail::sliding_windows<1, extent{Kernel}, Options...>, detail::mean_of_window {
  using rule_is_of = avg_pool1d;
  static constexpr const char* name = "avg_pool1d";
};
/// The same on `{channels, height, width}`. PyTorch: `nn.AvgPool2d`.
template <extent Kernel, class... Options>
struct avg_pool2d : detail::sliding_windows<2, Kernel, Options...>, detail::mean_of_window {
  using rule_is_of = avg_pool2d;
  static constexpr const char* name = "avg_pool2d";
};
/// The same on `{channels, depth, height, width}`. PyTorch: `nn.AvgPool3d`.
template <extent Kernel, class... Options>
struct avg_pool3d : detail::sliding_windows<3, Kernel, Options...>, detail::mean_of_window {
  using rule_is_of = avg_pool3d;
  static constexpr const char* name = "avg_pool3d";
};

/// `adaptive_avg_pool1d<Positions>` on `{channels, positions}`: means over windows that cut any sequence into a fixed
/// number of (overlapping) parts. Takes no options. PyTorch: `nn.AdaptiveAvgPool1d`.
template <std::size_t Positions, class... Options>
struct adaptive_avg_pool1d : detail::adaptive_windows<1, extent{Positions, 1}, Options...>, detail::mean_of_window {
  using rule_is_of = adaptive_avg_pool1d;
  static constexpr const char* name = "adaptive_avg_pool1d";
};
/// `adaptive_avg_pool2d<Height, Width>`: the same on `{channels, height, width}`. PyTorch: `nn.AdaptiveAvgPool2d`.
template <std::size_t Height, std::size_t Width = Height, class... Options>
struct adaptive_avg_pool2d : detail::adaptive_windows<2, extent{Height, Width}, Options...>, detail::mean_of_window {
  using rule_is_of = adaptive_avg_pool2d;
  static constexpr const char* name = "adaptive_avg_pool2d";
};
/// `adaptive_avg_pool3d<Depth, Height, Width>`: the same on `{channels, depth, height, width}`. PyTorch:
/// `nn.AdaptiveAvgPool3d`.
template <std::size_t Depth, std::size_t Height = Depth, std::size_t Width = Height, class... Options>
struct adaptive_avg_pool3d : detail::adaptive_windows<3, extent{Depth, Height, Width}, Options...>,
                             detail::mean_of_window {
  using rule_is_of = adaptive_avg_pool3d;
  static constexpr const char* name = "adaptive_avg_pool3d";
};

}  // namespace pergrad::inline v0_1
