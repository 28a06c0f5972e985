// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/conv.hpp - convolutions of sequences, images and volumes
//
//     y[o, t] = b[o] + sum_{c, k} W[o, c, k] x[c, t s + k r - p]
// along every axis that the layer has; the axes that it does not have are one pixel wide. Per-sample gradient: a
// correlation of the padded input with delta in which stride and dilation change places,
//     G_b[o, c, k] = sum_t delta[o, t] x[c, t s + k r - p]                     (Rochette et al. 2019, arXiv:1912.06015)
// which is the outer-product sum over the T windows that the layer's view shows: the geometry says it all.
#pragma once

#include <cstddef>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// A convolution along `Axes` axes of an input {channels, ...}.
template <std::size_t Axes, std::size_t OutChannels, extent GivenKernel, class... Options>
struct convolution {
  static constexpr window_options options = gather<window_options, Options...>().on(Axes);
  static constexpr extent kernel = on_axes(GivenKernel, Axes, 1);
  static constexpr std::size_t kernel_axes = Axes;
  static constexpr bool channels_first = true;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    return image_shape(OutChannels, output_size(in), Axes);
  }
  /// Windows of a sequence that is shorter than the others: behind its end lie zeros, as behind any sequence's.
  [[nodiscard]] static constexpr std::size_t output_length(shape /*in*/, std::size_t length) noexcept
      requires(Axes == 1) {
    return window_count(length, kernel.height, options.stride.height, options.padding.height, options.dilation.height);
  }
  [[nodiscard]] static constexpr affine_map affine(shape in) noexcept {
    return map_between(in.e0, image_size(in), OutChannels, output_size(in));
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.output_padding_given) return mistake::option_not_offered;
    const mistake wrong = check_options(in);
    return wrong == mistake::none && has_zero(output_size(in)) ? mistake::kernel_too_large : wrong;
  }

 protected:
  [[nodiscard]] static constexpr affine_map map_between(std::size_t in_channels, extent in_size,
                                                        std::size_t out_channels, extent out_size) noexcept {
    return {.in_channels = in_channels,
            .in_size = in_size,
            .out_channels = out_channels,
            .out_size = out_size,
            .kernel = kernel,
            .stride = options.stride,
            .padding = options.padding,
            .dilation = options.dilation,
            .groups = options.groups,
            .bias = options.bias};
  }
  [[nodiscard]] static constexpr mistake check_options(shape in) noexcept {
    if (options.unknown_given || !fits_axes(GivenKernel, Axes)) return mistake::option_not_offered;
    if (in.rank() != Axes + 1) return wrong_rank(Axes);
    if (OutChannels == 0 || has_zero(kernel) || has_zero(options.stride) || has_zero(options.dilation) ||
        options.groups == 0) {
      return mistake::zero_is_no_size;
    }
    const bool divide = in.e0 % options.groups == 0 && OutChannels % options.groups == 0;
    return divide ? mistake::none : mistake::groups_do_not_divide;
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

}  // namespace detail

/// `conv1d<OutChannels, Kernel, Options...>` on `{channels, positions}`; put `transpose` before it if the sequence is
/// (positions, features). Options in any order: `stride<>`, `padding<>`, `dilation<>`, `groups<>`, `no_bias`. PyTorch:
/// `nn.Conv1d` with zero padding; parameters: weight `[OutChannels, channels / groups, Kernel]`, then bias.
template <std::size_t OutChannels, std::size_t Kernel, class... Options>
struct conv1d : detail::convolution<1, OutChannels, extent{Kernel}, Options...> {
  static constexpr const char* name = "conv1d";
};
/// The same on `{channels, height, width}`. Kernel: one number, or `extent{height, width}`. PyTorch: `nn.Conv2d`;
/// weight `[OutChannels, channels / groups, height, width]`.
template <std::size_t OutChannels, extent Kernel, class... Options>
struct conv2d : detail::convolution<2, OutChannels, Kernel, Options...> {
  static constexpr const char* name = "conv2d";
};
/// The same on `{channels, depth, height, width}`. Kernel: one number, or `extent{depth, height, width}`. PyTorch:
/// `nn.Conv3d`; weight `[OutChannels, channels / groups, depth, height, width]`.
template <std::size_t OutChannels, extent Kernel, class... Options>
struct conv3d : detail::convolution<3, OutChannels, Kernel, Options...> {
  static constexpr const char* name = "conv3d";
};

}  // namespace pergrad::inline v0_1
