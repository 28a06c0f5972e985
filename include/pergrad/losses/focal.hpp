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
#include <pergrad/losses/terms.hpp>

namespace pergrad::inline v0_1 {

/// Classification on `{classes}` logits with many easy records: `focal<>` or `focal<1.5>`, gamma, finite and not
/// negative; 0 is `cross_entropy`. A target is one class index.
template <detail::number Gamma = 2.0>
struct focal : cross_entropy {
  static_assert(Gamma.is_size(), "focal: gamma must be finite and not negative");
  using by_threads = focal;  ///< as of cross_entropy

  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy) noexcept {
    return evaluate(y.data(), y.size(), targets.data(), dy.data());
  }
  /// The same for `count` logits, on host and device.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate(const Scalar* y, std::size_t count, const std::int32_t* targets,
                                                  Scalar* dy) noexcept {
    const factors of = factors_of(cross_entropy::evaluate(y, count, targets, dy));
    for (std::size_t i = 0; i < count; ++i) dy[i] = static_cast<Scalar>(static_cast<double>(dy[i]) * of.gradient);
    return of.loss;
  }
  /// By threads of a device together: as of cross_entropy.
  template <class Block, class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate_together(const Block& block, const Scalar* y, int classes, int target,
                                                           Scalar weight, Scalar* dy,
                                                           Scalar (&partial)[Block::threads / 32]) noexcept {
    const factors of = factors_of(cross_entropy::evaluate_together(block, y, classes, target, weight, dy, partial));
    block.each([&](int thread) {
      for (int i = thread; i < classes; i += Block::threads) {
        dy[i] = static_cast<Scalar>(static_cast<double>(dy[i]) * of.gradient);
      }
    });
    return of.loss;
  }

 private:
  struct factors {
    double loss;
    double gradient;  ///< of the cross entropy's
  };
  [[nodiscard]] PERGRAD_HD static factors factors_of(double entropy) noexcept {
    constexpr double gamma = Gamma.value;
    const double missing = -std::expm1(-entropy);
    const double power = std::pow(missing, gamma);
    const double ratio = missing > 0 ? entropy / missing : 1.0;
    const double slope = missing < 1 ? (1 - missing) * ratio : 0.0;  // also where the entropy is infinite
    return {power * entropy, power * (1 + gamma * slope)};
  }
};

/// Binary targets in [0, 1], one a logit; `Alpha` in [0, 1] weighs ones, 1 - Alpha zeros. torchvision:
/// `ops.sigmoid_focal_loss(inputs, targets, alpha, gamma)`, whose defaults these are, then the mean over a sample's
/// outputs. Stable for any logits.
template <detail::number Gamma = 2.0, detail::number Alpha = 0.25>
struct binary_focal_with_logits : detail::mean_over_logits<binary_focal_with_logits<Gamma, Alpha>> {
  static_assert(Gamma.is_size(), "binary_focal_with_logits: gamma must be finite and not negative");
  static_assert(Alpha.is_size() && Alpha.value <= 1, "binary_focal_with_logits: alpha must be in [0, 1]");

  /// One output's part: losses/terms.hpp.
  [[nodiscard]] PERGRAD_HD static detail::loss_term term(double logit, double target, double count) noexcept {
    constexpr double gamma = Gamma.value;
    constexpr double alpha = Alpha.value;
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
    return {weight * entropy, weight * slope / count};
  }
};

}  // namespace pergrad::inline v0_1
