// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/not_offered.hpp - names of PyTorch's losses that are not here: a batch with one says what to take
//
// They stand in a namespace of their own: a loss of the same name hides its stand-in.
#pragma once

namespace pergrad::inline v0_1 {

namespace detail {
struct loss_not_offered {};
}  // namespace detail

namespace not_offered {

// clang-format off
struct cross_entropy_loss : detail::loss_not_offered {};
struct nll_loss : detail::loss_not_offered {};
struct mse_loss : detail::loss_not_offered {};
struct l1_loss : detail::loss_not_offered {};
struct smooth_l1_loss : detail::loss_not_offered {};
struct binary_cross_entropy : detail::loss_not_offered {};
struct bce_loss : detail::loss_not_offered {};
struct bce_with_logits_loss : detail::loss_not_offered {};
struct kl_div_loss : detail::loss_not_offered {};
struct hinge_loss : detail::loss_not_offered {};
struct ctc_loss : detail::loss_not_offered {};
// clang-format on

}  // namespace not_offered
using namespace not_offered;  // NOLINT(google-build-using-namespace)

}  // namespace pergrad::inline v0_1
