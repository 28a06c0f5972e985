// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/focal.hpp - the focal loss (Lin et al. 2017, arXiv:1708.02002): cross entropy E, times the gamma-th
// power of what was missing of the right answer
//
//   classes  q = 1 - softmax(y)_t        L = q^gamma E;  dL/dy = (softmax(y) - onehot(t)) q^gamma (1 + gamma (1 - q)
//   E/q) binary   p = sigmoid(y), a = alpha t + (1 - alpha)(1 - t), q = p (1 - t) + (1 - p) t
//            L = a q^gamma E;  dL/dy = a q^gamma (p - t + gamma p (1 - p)(1 - 2 t) E/q)
//
// E/q goes to 1 with q, so nothing is divided by zero where gamma < 1.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/number.hpp>
#include <pergrad/losses/binary_cross_entropy.hpp>
#include <pergrad/losses/cross_entropy.hpp>

namespace pergrad::inline v0_1 {

/// Classification on `{classes}` logits with many easy records: `focal<>` or `focal<1.5>`, gamma, finite and not
/// negative; 0 is `cross_entropy`. A target is one class index.
template <detail::number Gamma = 2.0>
struct focal : cross_entropy {
  static_assert(Gamma.is_size(), "focal: gamma must be finite and not negative");

  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy) noexcept {
    return evaluate(y.data(), y.size(), targets.data(), dy.data());
  }
  /// The same for `count` logits, on host and device.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate(const Scalar* y, std::size_t count, const std::int32_t* targets,
                                                  Scalar* dy) noexcept {
    constexpr double gamma = Gamma.value;
    const double entropy = cross_entropy::evaluate(y, count, targets, dy);
    const double missing = -std::expm1(-entropy);
    const double power = std::pow(missing, gamma);
    const double ratio = missing > 0 ? entropy / missing : 1.0;
    const double slope = missing < 1 ? (1 - missing) * ratio : 0.0;  // also where the entropy is infinite
    const double factor = power * (1 + gamma * slope);
    for (std::size_t i = 0; i < count; ++i) dy[i] = static_cast<Scalar>(static_cast<double>(dy[i]) * factor);
    return power * entropy;
  }
};

/// Binary targets in [0, 1], one a logit; `Alpha` in [0, 1] weighs ones, 1 - Alpha zeros. torchvision:
/// `ops.sigmoid_focal_loss(inputs, targets, alpha, gamma)`, whose defaults these are, then the mean over a sample's
/// outputs. Stable for any logits.
template <detail::number Gamma = 2.0, detail::number Alpha = 0.25>
struct binary_focal_with_logits : binary_cross_entropy_with_logits {
  static_assert(Gamma.is_size(), "binary_focal_with_logits: gamma must be finite and not negative");
  static_assert(Alpha.is_size() && Alpha.value <= 1, "binary_focal_with_logits: alpha must be in [0, 1]");

  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets,
                                       std::span<Scalar> dy) noexcept {
    return evaluate(y.data(), y.size(), targets.data(), dy.data());
  }
  /// The same for `size` logits, on host and device.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate(const Scalar* y, std::size_t size, const Scalar* targets,
                                                  Scalar* dy) noexcept {
    constexpr double gamma = Gamma.value;
    constexpr double alpha = Alpha.value;
    const auto count = static_cast<double>(size);
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const auto logit = static_cast<double>(y[i]);
      const auto target = static_cast<double>(targets[i]);
      const double decay = std::exp(-std::fabs(logit));
      const double larger = 1 / (1 + decay);
      const double smaller = decay / (1 + decay);
      const double one = logit >= 0 ? larger : smaller;
      const double zero = logit >= 0 ? smaller : larger;
      const double entropy = (logit > 0 ? logit : 0.0) - logit * target + std::log1p(decay);
      const double missing = one * (1 - target) + zero * target;
      const double weight = (alpha * target + (1 - alpha) * (1 - target)) * std::pow(missing, gamma);
      const double ratio = missing > 0 ? entropy / missing : 1.0;
      const double slope = one * (1 - target) - zero * target + gamma * (one * zero * (1 - 2 * target)) * ratio;
      sum += weight * entropy;
      dy[i] = static_cast<Scalar>(weight * slope / count);
    }
    return sum / count;
  }
};

}  // namespace pergrad::inline v0_1
