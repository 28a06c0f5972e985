// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/linear.hpp - fully connected layer  y = W x + b
//
// Per-sample gradient  G_b = sum_t delta_t (x) x_t;  with one position  |G_b|^2 = |delta|^2 |x|^2  (Goodfellow 2015,
// arXiv:1510.01799), so its norm costs nothing next to the product itself.
#pragma once

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `linear<OutFeatures>` on `{features}`, or position by position on `{positions, features}`. Option: `no_bias`.
/// PyTorch: `nn.Linear`; parameters: weight `[OutFeatures, features]`, then bias.
template <std::size_t OutFeatures, class... Options>
struct linear {
  static constexpr const char* name = "linear";
  static constexpr detail::window_options options = detail::gather<detail::window_options, Options...>();

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    return in.rank() == 1 ? shape{OutFeatures} : shape{in.e0, OutFeatures};
  }
  [[nodiscard]] static constexpr affine_map affine(shape in) noexcept {
    const std::size_t positions = in.rank() == 1 ? 1 : in.e0;
    return {.in_channels = in.rank() == 1 ? in.e0 : in.e1,
            .in_size = {positions, 1},
            .out_channels = OutFeatures,
            .out_size = {positions, 1},
            .bias = options.bias};
  }
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    constexpr bool only_bias = !options.stride_given && options.padding == extent{0} && options.dilation == extent{1} &&
                               options.groups == 1 && !options.output_padding_given && !options.unknown_given;
    if (!only_bias) return detail::mistake::option_not_offered;
    if (OutFeatures == 0) return detail::mistake::zero_is_no_size;
    return in.rank() > 2 ? detail::mistake::needs_features : detail::mistake::none;
  }
};

}  // namespace pergrad::inline v0_1
