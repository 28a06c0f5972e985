// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/not_offered.hpp - names of PyTorch's layers that are not here: a network with one says what to take
//
// They stand in a namespace of their own: a layer of the same name hides its stand-in.
#pragma once

#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Keeps its place in a network until the network's examination, which says `What`.
template <mistake What>
struct layer_not_offered {
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr mistake check(shape /*in*/) noexcept { return What; }
};

}  // namespace detail

namespace not_offered {

// clang-format off
struct softmax : detail::layer_not_offered<detail::mistake::softmax_is_in_the_loss> {};
struct log_softmax : softmax {};
struct softmax2d : softmax {};
struct softmin : softmax {};

struct relu6 : detail::layer_not_offered<detail::mistake::activation_not_offered> {};
struct hardtanh : relu6 {};
struct hardswish : relu6 {};
struct hardsigmoid : relu6 {};
struct log_sigmoid : relu6 {};
struct mish : relu6 {};
struct prelu : relu6 {};
struct selu : relu6 {};
struct celu : relu6 {};
struct softsign : relu6 {};
struct tanhshrink : relu6 {};
struct glu : relu6 {};

struct dropout1d : detail::layer_not_offered<detail::mistake::layer_of_pytorch_not_offered> {};
struct dropout2d : dropout1d {};
struct dropout3d : dropout1d {};
struct alpha_dropout : dropout1d {};
struct adaptive_max_pool1d : dropout1d {};
struct adaptive_max_pool2d : dropout1d {};
struct adaptive_max_pool3d : dropout1d {};
struct local_response_norm : dropout1d {};
struct identity : dropout1d {};
struct pixel_shuffle : dropout1d {};
struct zero_pad2d : dropout1d {};
struct unflatten : dropout1d {};

struct sync_batch_norm : detail::layer_not_offered<detail::mistake::mixes_samples> {};
struct lazy_batch_norm2d : sync_batch_norm {};
// clang-format on

}  // namespace not_offered
// Not a declaration of them here: behind a name of the library's own, they are not found.
using namespace not_offered;  // NOLINT(google-build-using-namespace)

}  // namespace pergrad::inline v0_1
