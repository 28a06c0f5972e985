// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/huber.hpp - L = (1/n) sum_i h(y_i - t_i);  h(x) = x² / 2 for |x| <= D, else D (|x| - D / 2);
// dL/dy_i = (1/n) max(-D, min(D, y_i - t_i))                                    (Huber 1964, Ann. Math. Stat. 35(1))
#pragma once

#include <cstddef>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/number.hpp>
#include <pergrad/losses/terms.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// Regression that bounds what an outlier does: `huber<>` or `huber<0.5>`, the error above which the loss grows
/// linearly, finite and above 0. A target has as many values as the output. PyTorch: `nn.HuberLoss(delta=0.5,
/// reduction="none")`, then the mean over a sample's outputs.
template <detail::number Delta = 1.0>
struct huber : detail::mean_over_outputs<huber<Delta>> {
  static_assert(Delta.is_size() && Delta.value > 0, "huber: delta must be finite and above 0");

  /// Slopes are bounded but those of a target that is NaN: a sum without clipping relies on it.
  template <class Scalar>
  [[nodiscard]] static constexpr bool valid(shape /*output*/, std::span<const Scalar> targets) noexcept {
    for (const Scalar each : targets) {
      if (!(each == each)) return false;
    }
    return true;
  }
  /// One output's part: losses/terms.hpp.
  [[nodiscard]] PERGRAD_HD static detail::loss_term term(double y, double target, double count) noexcept {
    constexpr double delta = Delta.value;
    const double x = y - target;
    // A NaN is neither above nor below, so it stays one.
    const double slope = x > delta ? delta : x < -delta ? -delta : x;
    return {slope * (x - slope / 2), slope / count};
  }
};

}  // namespace pergrad::inline v0_1
