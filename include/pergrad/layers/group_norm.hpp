// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/group_norm.hpp - channels in groups, each normalised over its channels and all pixels of one sample
//
// Wu & He 2018, arXiv:1803.08494: y = gain_c (x - mean) / sqrt(variance + eps) + shift_c with the group's own moments.
// Per-sample gradients: of gain_c the sum of dy xhat over the pixels of channel c, of shift_c the sum of dy. It takes
// the place of batch norm, which mixes samples.
#pragma once

#include <cstddef>

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/grouped_norm.hpp>
#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// `group_norm<Groups>` on `{channels}`, `{channels, positions}`, `{channels, height, width}` or `{channels, depth,
/// height, width}`; Groups must divide the channels. Options: `no_affine`, `eps<Numerator, Denominator>` (default
/// 1/100000). PyTorch: `nn.GroupNorm(Groups, channels)`; parameters: weight, then bias, one a channel, at first 1 and
/// 0.
template <std::size_t Groups, class... Options>
struct group_norm : detail::grouped_norm<Groups, Options...> {
  static constexpr const char* name = "group_norm";
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return Groups == 0 ? detail::mistake::zero_is_no_size : detail::grouped_norm<Groups, Options...>::check(in);
  }
};

}  // namespace pergrad::inline v0_1
