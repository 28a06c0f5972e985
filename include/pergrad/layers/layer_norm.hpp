// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/layer_norm.hpp - y = gain (x - mean) / sqrt(variance + eps) + shift, over the last axes of one sample
//
// Ba, Kiros & Hinton 2016, arXiv:1607.06450. The variance is the biased one. Per-sample gradients: of the gain
// sum_t dy_t xhat_t, of the shift sum_t dy_t, over the rows t that share them.
#pragma once

#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/layers/shared/row_norm.hpp>

namespace pergrad::inline v0_1 {

/// `layer_norm<>` normalises along the last axis of an input of any rank, `layer_norm<axes<K>>` along the last K axes
/// together. Options in any order: `axes<K>`, `no_affine`, `no_bias`, `eps<Numerator, Denominator>` (default
/// 1/100000). PyTorch: `nn.LayerNorm(shape[-K:])`; parameters: weight, then bias, each of the normalised axes' size; at
/// first 1 and 0. Positions of samples with lengths of their own are normalised one by one.
template <class... Options>
struct layer_norm : detail::row_norm<true, Options...> {
  static constexpr const char* name = "layer_norm";
};

}  // namespace pergrad::inline v0_1
