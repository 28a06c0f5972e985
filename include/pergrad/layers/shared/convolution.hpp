// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/convolution.hpp - what convolutions on sequences, images and volumes share
//
// y[o, t] = b[o] + sum_{c, k} W[o, c, k] x[c, t s + k r - p] along every axis that the layer has; the axes that it does
// not have are one pixel wide. Per-sample gradient: a correlation of the padded input with delta in which stride and
// dilation change places,
//     G_b[o, c, k] = sum_t delta[o, t] x[c, t s + k r - p]                     (Rochette et al. 2019, arXiv:1912.06015)
// which is the outer-product sum over the T windows that the layer's view shows: the geometry says it all.
#pragma once

#include <cstddef>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

/// What to say of an input that has not `axes` axes besides its channels.
[[nodiscard]] constexpr mistake wrong_rank(std::size_t axes) noexcept {
  return axes == 1   ? mistake::needs_channels_and_positions
         : axes == 2 ? mistake::needs_an_image
                     : mistake::needs_a_volume;
}

/// A convolution along `Axes` axes of an input {channels, ...}.
template <std::size_t Axes, std::size_t Channels, extent GivenKernel, class... Options>
struct convolution {
  static constexpr window_options options = gather_options<Options...>().on(Axes);
  static constexpr extent kernel = on_axes(GivenKernel, Axes, 1);
  static constexpr std::size_t kernel_axes = Axes;
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    return image_shape(Channels, output_size(in), Axes);
  }
  /// Windows of a sequence that is shorter than the others: behind its end lie zeros, as behind any sequence's.
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept
      requires(Axes == 1) {
    return window_count(length, kernel.height, options.stride.height, options.padding.height, options.dilation.height);
  }
  [[nodiscard]] static constexpr affine_map affine(shape in) noexcept {
    return {.in_channels = in.e0,
            .in_size = image_size(in),
            .out_channels = Channels,
            .out_size = output_size(in),
            .kernel = kernel,
            .stride = options.stride,
            .padding = options.padding,
            .dilation = options.dilation,
            .groups = options.groups,
            .bias = options.bias};
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.unknown_given || options.output_padding_given || !fits_axes(GivenKernel, Axes)) {
      return mistake::option_not_offered;
    }
    if (in.rank() != Axes + 1) return wrong_rank(Axes);
    if (Channels == 0 || has_zero(kernel) || has_zero(options.stride) || has_zero(options.dilation) ||
        options.groups == 0) {
      return mistake::zero_is_no_size;
    }
    if (in.e0 % options.groups != 0 || Channels % options.groups != 0) return mistake::groups_do_not_divide;
    return has_zero(output_size(in)) ? mistake::kernel_too_large : mistake::none;
  }

 private:
  [[nodiscard]] static constexpr extent output_size(shape in) noexcept {
    const extent size = image_size(in);
    return {
        window_count(size.depth, kernel.depth, options.stride.depth, options.padding.depth, options.dilation.depth),
        window_count(size.height, kernel.height, options.stride.height, options.padding.height,
                     options.dilation.height),
        window_count(size.width, kernel.width, options.stride.width, options.padding.width, options.dilation.width)};
  }
};

}  // namespace pergrad::inline v0_1::detail
