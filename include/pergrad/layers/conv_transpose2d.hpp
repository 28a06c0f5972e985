// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/conv_transpose2d.hpp - transposed 2-d convolution: the adjoint of a convolution from its output to its
// input
//
//     y[o, i s + k r - p, j s + l r - p] += W[c, o, k, l] x[c, i, j],   then  + b[o]
//
// With windows of y in the place of windows of x the per-sample gradient is a convolution's,
//     G_b[c, o, k, l] = sum_{i, j} x[c, i, j] dy[o, i s + k r - p, j s + l r - p]:
// the same outer-product sum in which the input takes the place of delta. The bias gradient is the sum of dy.
#pragma once

#include <cstddef>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/conv.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `conv_transpose2d<OutChannels, Kernel, Options...>` on `{channels, height, width}`; its output is (size - 1) stride
/// - 2 padding + dilation (kernel - 1) + output_padding + 1 high and wide. Options in any order: `stride<>`,
/// `padding<>`, `output_padding<>` (smaller than the stride or the dilation), `dilation<>`, `groups<>`, `no_bias`.
/// PyTorch: `nn.ConvTranspose2d`; parameters: weight `[channels, OutChannels / groups, height, width]`, then bias
/// `[OutChannels]`.
template <std::size_t OutChannels, extent Kernel, class... Options>
struct conv_transpose2d : detail::convolution<2, OutChannels, Kernel, Options...> {
  using frame = detail::convolution<2, OutChannels, Kernel, Options...>;
  static constexpr const char* name = "conv_transpose2d";
  using frame::kernel;
  using frame::options;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    return detail::image_shape(OutChannels, output_size(in), 2);
  }
  [[nodiscard]] static constexpr affine_map affine(shape in) noexcept {
    affine_map map = frame::map_between(OutChannels, output_size(in), in.e0, detail::image_size(in));
    map.adjoint = true;
    return map;
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    const detail::mistake wrong = frame::check_options(in);
    if (wrong != detail::mistake::none) return wrong;
    if (too_much(options.output_padding.height, options.stride.height, options.dilation.height) ||
        too_much(options.output_padding.width, options.stride.width, options.dilation.width)) {
      return detail::mistake::output_padding_too_large;
    }
    return detail::has_zero(output_size(in)) ? detail::mistake::no_output : detail::mistake::none;
  }

 private:
  [[nodiscard]] static constexpr bool too_much(std::size_t extra, std::size_t stride, std::size_t dilation) noexcept {
    return extra >= stride && extra >= dilation;
  }
  /// 0 if the padding leaves nothing.
  [[nodiscard]] static constexpr std::size_t size_after(std::size_t in, std::size_t taps, std::size_t stride,
                                                        std::size_t padding, std::size_t dilation,
                                                        std::size_t extra) noexcept {
    const std::size_t whole = (in - 1) * stride + dilation * (taps - 1) + extra + 1;
    return whole > 2 * padding ? whole - 2 * padding : 0;
  }
  [[nodiscard]] static constexpr extent output_size(shape in) noexcept {
    return {size_after(in.e1, kernel.height, options.stride.height, options.padding.height, options.dilation.height,
                       options.output_padding.height),
            size_after(in.e2, kernel.width, options.stride.width, options.padding.width, options.dilation.width,
                       options.output_padding.width)};
  }
};

}  // namespace pergrad::inline v0_1
