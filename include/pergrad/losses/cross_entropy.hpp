// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/cross_entropy.hpp - softmax cross entropy of logits  L = log sum_j e^{y_j} - y_t;  dL/dy = softmax(y)
// - onehot(t)
//
// With label smoothing e (Szegedy et al. 2016, arXiv:1512.00567) the target is (1 - e) onehot(t) + e / K over K
// classes: L_e = L - (e / K) sum_j (y_j - y_t);  dL_e/dy = dL/dy + e onehot(t) - e / K.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/number.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

/// Classification on `{classes}` logits; a target is one class index. PyTorch: `nn.CrossEntropyLoss(reduction="none")`.
/// Stable for any logits: the largest is subtracted first.
struct cross_entropy {
  static constexpr bool on_device = true;
  using by_threads = cross_entropy;  ///< whose `evaluate_together` this is: one that derives has its own, or none

  template <class Scalar>
  using target = std::int32_t;

  [[nodiscard]] static constexpr std::size_t target_count(shape /*output*/) noexcept { return 1; }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept {
    return output.rank() == 1 && output.varying_axis() == 0;
  }
  /// Every target is a class: 0 <= target < classes.
  [[nodiscard]] static constexpr bool valid(shape output, std::span<const std::int32_t> targets) noexcept {
    for (const std::int32_t target : targets) {
      if (target < 0 || static_cast<std::size_t>(target) >= output.size()) return false;
    }
    return true;
  }
  /// The least and the largest target, for messages.
  [[nodiscard]] static constexpr std::array<std::int32_t, 2> target_limits(shape output) noexcept {
    return {0, static_cast<std::int32_t>(output.size()) - 1};
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy) noexcept {
    return evaluate(y.data(), y.size(), targets.data(), dy.data());
  }
  /// The same for `count` logits, on host and device.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate(const Scalar* y, std::size_t count, const std::int32_t* targets,
                                                  Scalar* dy) noexcept {
    const auto target = static_cast<std::size_t>(targets[0]);
    Scalar largest = y[0];
    for (std::size_t i = 0; i < count; ++i) largest = y[i] > largest ? y[i] : largest;
    Scalar sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      dy[i] = std::exp(y[i] - largest);
      sum += dy[i];
    }
    for (std::size_t i = 0; i < count; ++i) dy[i] /= sum;
    dy[target] -= 1;
    // In double: the difference of two floats may be more than a float can be.
    return static_cast<double>(std::log(sum)) - (static_cast<double>(y[target]) - static_cast<double>(largest));
  }
  /// The loss, and `weight` times its gradient, by threads of a device together: a block of
  /// cuda/device/kernel.hpp, whose warps meet in `partial`.
  template <class Block, class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate_together(const Block& block, const Scalar* y, int classes, int target,
                                                           Scalar weight, Scalar* dy,
                                                           Scalar (&partial)[Block::threads / 32]) noexcept {
    typename Block::template local<Scalar> own;
    block.each([&](int thread) {
      Scalar largest = y[0];
      for (int i = thread; i < classes; i += Block::threads) largest = y[i] > largest ? y[i] : largest;
      own[thread] = largest;
    });
    const Scalar largest = block.largest(own, partial);
    block.each([&](int thread) {
      Scalar sum = 0;
      for (int i = thread; i < classes; i += Block::threads) {
        dy[i] = math::exp_or_zero(y[i] - largest);
        sum += dy[i];
      }
      own[thread] = sum;
    });
    const Scalar sum = block.sum(own, partial);
    const Scalar share = weight / sum;
    block.each([&](int thread) {
      for (int i = thread; i < classes; i += Block::threads) {
        const Scalar probability = dy[i] * share;
        dy[i] = i == target ? probability - weight : probability;
      }
    });
    return std::log(static_cast<double>(sum)) - (static_cast<double>(y[target]) - static_cast<double>(largest));
  }
};

/// `cross_entropy` whose target is spread over all classes by a share in [0, 1]: `nn.CrossEntropyLoss(label_smoothing=
/// 0.1, reduction="none")`.
template <detail::number Smoothing>
struct cross_entropy_with_label_smoothing : cross_entropy {
  static_assert(Smoothing.is_size() && Smoothing.value <= 1, "the share of label smoothing must be in [0, 1]");
  using by_threads = cross_entropy_with_label_smoothing;

  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy) noexcept {
    return evaluate(y.data(), y.size(), targets.data(), dy.data());
  }
  /// The same for `count` logits, on host and device.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate(const Scalar* y, std::size_t count, const std::int32_t* targets,
                                                  Scalar* dy) noexcept {
    constexpr double smoothing = Smoothing.value;
    const double loss = cross_entropy::evaluate(y, count, targets, dy);
    if constexpr (smoothing == 0) {
      return loss;  // and not 0 times what is above an infinite logit
    } else {
      const auto target = static_cast<std::size_t>(targets[0]);
      const double share = smoothing / static_cast<double>(count);
      double above = 0;  // what all logits together are above the target's
      for (std::size_t i = 0; i < count; ++i) {
        above += static_cast<double>(y[i]) - static_cast<double>(y[target]);
        dy[i] = static_cast<Scalar>(static_cast<double>(dy[i]) + ((i == target ? smoothing : 0.0) - share));
      }
      return loss - share * above;
    }
  }
  /// By threads of a device together: as of cross_entropy.
  template <class Block, class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate_together(const Block& block, const Scalar* y, int classes, int target,
                                                           Scalar weight, Scalar* dy,
                                                           Scalar (&partial)[Block::threads / 32]) noexcept {
    constexpr double smoothing = Smoothing.value;
    const double loss = cross_entropy::evaluate_together(block, y, classes, target, weight, dy, partial);
    if constexpr (smoothing == 0) {
      return loss;
    } else {
      const double share = smoothing / classes;
      typename Block::template local<Scalar> own;
      block.each([&](int thread) {
        Scalar above = 0;
        for (int i = thread; i < classes; i += Block::threads) {
          above += y[i] - y[target];
          dy[i] += weight * static_cast<Scalar>((i == target ? smoothing : 0.0) - share);
        }
        own[thread] = above;
      });
      return loss - share * static_cast<double>(block.sum(own, partial));
    }
  }
};

}  // namespace pergrad::inline v0_1
