// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/conv2d.hpp - 2-d convolution  y[o, i, j] = b[o] + sum_{c, k, l} W[o, c, k, l] x[c, i s + k r - p, j s
// + l r - p]
//
// Per-sample gradient: a correlation of the padded input with delta in which stride and dilation change places
//     G_b[o, c, k, l] = sum_{i, j} delta[o, i, j] x[c, i s + k r - p, j s + l r - p]       (Rochette et al. 2019,
//     arXiv:1912.06015)
// which is the outer-product sum over the T = H_out W_out windows that the layer's view shows: the geometry says it
// all.
#pragma once

#include <pergrad/detail/mistakes.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `conv2d<Channels, Kernel, Options...>` on `{channels, height, width}`. Kernel: one number, or `extent{height,
/// width}`. Options in any order: `stride<>`, `padding<>`, `dilation<>`, `groups<>`, `no_bias`. PyTorch: `nn.Conv2d`
/// with zero padding; parameters: weight `[Channels, channels / groups, height, width]`, then bias.
template <std::size_t Channels, extent Kernel, class... Options>
struct conv2d {
  static constexpr detail::window_options options = detail::gather_options<Options...>();

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    const extent out = output_size(in);
    return {Channels, out.height, out.width};
  }
  [[nodiscard]] static constexpr affine_map affine(shape in) noexcept {
    return {.in_channels = in.e0,
            .in_size = {in.e1, in.e2},
            .out_channels = Channels,
            .out_size = output_size(in),
            .kernel = Kernel,
            .stride = options.stride,
            .padding = options.padding,
            .dilation = options.dilation,
            .groups = options.groups,
            .bias = options.bias};
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    if (options.unknown_given) return detail::mistake::option_not_offered;
    if (in.rank() != 3) return detail::mistake::needs_an_image;
    if (Channels == 0 || Kernel.height == 0 || Kernel.width == 0 || options.stride.height == 0 ||
        options.stride.width == 0 || options.dilation.height == 0 || options.dilation.width == 0 ||
        options.groups == 0) {
      return detail::mistake::zero_is_no_size;
    }
    if (in.e0 % options.groups != 0 || Channels % options.groups != 0) return detail::mistake::groups_do_not_divide;
    const extent out = output_size(in);
    return out.height == 0 || out.width == 0 ? detail::mistake::kernel_too_large : detail::mistake::none;
  }

 private:
  [[nodiscard]] static constexpr extent output_size(shape in) noexcept {
    return {
        detail::window_count(in.e1, Kernel.height, options.stride.height, options.padding.height,
                             options.dilation.height),
        detail::window_count(in.e2, Kernel.width, options.stride.width, options.padding.width, options.dilation.width)};
  }
};

}  // namespace pergrad::inline v0_1
