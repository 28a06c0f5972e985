// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/binary_cross_entropy.hpp - L = (1/n) sum_i [ max(y_i, 0) - y_i t_i + log(1 + e^{-|y_i|}) ];
// dL/dy_i = (sigmoid(y_i) - t_i) / n
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/losses/terms.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Of binary targets.
template <class Loss>
struct mean_over_logits : mean_over_outputs<Loss> {
  /// Every target lies in [0, 1].
  template <class Scalar>
  [[nodiscard]] static constexpr bool valid(shape /*output*/, std::span<const Scalar> targets) noexcept {
    for (const Scalar target : targets) {
      if (!(target >= 0 && target <= 1)) return false;
    }
    return true;
  }
  /// The least and the largest target, for messages.
  [[nodiscard]] static constexpr std::array<int, 2> target_limits(shape /*output*/) noexcept { return {0, 1}; }
};

}  // namespace detail

/// Binary targets in [0, 1], one a logit. PyTorch: `nn.BCEWithLogitsLoss(reduction="none")`, then the mean over a
/// sample's outputs. Stable for any logits.
struct binary_cross_entropy_with_logits : detail::mean_over_logits<binary_cross_entropy_with_logits> {
  /// One output's part: losses/terms.hpp.
  [[nodiscard]] PERGRAD_HD static detail::loss_term term(double logit, double target, double count) noexcept {
    const double decay = std::exp(-std::fabs(logit));
    return {(logit > 0 ? logit : 0.0) - logit * target + std::log1p(decay),
            ((logit >= 0 ? 1 / (1 + decay) : decay / (1 + decay)) - target) / count};
  }
};

}  // namespace pergrad::inline v0_1
