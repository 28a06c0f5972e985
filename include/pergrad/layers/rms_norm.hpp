// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/rms_norm.hpp - y = gain x / sqrt(mean(x^2) + eps), over the last axes of one sample
//
// Zhang & Sennrich 2019, arXiv:1910.07467. Per-sample gradient of the gain: sum_t dy_t xhat_t.
#pragma once

#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/layers/shared/row_norm.hpp>

namespace pergrad::inline v0_1 {

/// `rms_norm<>` normalises along the last axis of an input of any rank, `rms_norm<axes<K>>` along the last K axes
/// together. Options in any order: `axes<K>`, `no_affine`, `eps<Numerator, Denominator>`; without the last, as in
/// PyTorch, the machine epsilon of the network's type. PyTorch: `nn.RMSNorm(shape[-K:])`; parameter: weight, at
/// first 1.
template <class... Options>
struct rms_norm : detail::row_norm<false, Options...> {
  static constexpr const char* name = "rms_norm";
};

}  // namespace pergrad::inline v0_1
