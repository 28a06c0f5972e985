// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/token_cross_entropy.hpp - cross entropy at every position of a sequence, as language models have it
//
//   L = (1/n) sum_t [ log sum_j e^{y_tj} - y_{t,k_t} ];  dL/dy_t = (softmax(y_t) - onehot(k_t)) / n
//
// over the n positions t that count: those that are there and whose target k_t is not ignored. Without such positions
// L = 0 and dL/dy = 0. With `sum_over_positions` there is no 1/n.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/losses/cross_entropy.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

/// Loss option of `token_cross_entropy`: the target of positions that do not count. Negative, or a class.
template <std::int32_t Id>
struct ignore_index {
  static constexpr std::int32_t value = Id;
};
/// Loss option of `token_cross_entropy`: the sum over the positions that count, not their mean.
struct sum_over_positions {};

namespace detail {
struct token_loss_options {
  std::int32_t ignored = -100;
  bool sum = false;
  bool unknown_given = false;

  friend constexpr bool operator==(const token_loss_options&, const token_loss_options&) noexcept = default;
};
template <std::int32_t Id>
constexpr void apply(token_loss_options& options, ignore_index<Id> option) noexcept {
  options.ignored = option.value;
}
constexpr void apply(token_loss_options& options, sum_over_positions) noexcept { options.sum = true; }
}  // namespace detail

/// On `{positions, classes}` logits; a target is one class a position, or the ignored index (`ignore_index<Id>`, -100
/// by default). PyTorch: `F.cross_entropy(y, targets, ignore_index=-100)` of one sample's `[positions, classes]`, mean
/// or, with `sum_over_positions`, sum; but 0 where no position counts. Of a sample with a length of its own, positions
/// behind it do not count; their targets are looked at nevertheless: 0 is valid always. The mean is one sample's, so
/// every sample weighs the same, however many of its positions count.
template <class... Options>
struct token_cross_entropy {
  static constexpr bool on_device = true;
  /// Whose words these are for executors that do not call `evaluate`, `weight_of` to `differentiate`: one that derives
  /// has its own, or is evaluated as a whole.
  using by_position = token_cross_entropy;
  static constexpr detail::token_loss_options options = detail::gather<detail::token_loss_options, Options...>();
  static_assert(!options.unknown_given,
                "token_cross_entropy takes the options ignore_index<Id> and sum_over_positions");

  template <class Scalar>
  using target = std::int32_t;

  [[nodiscard]] static constexpr std::size_t target_count(shape output) noexcept { return output.e0; }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept {
    return output.rank() == 2 && output.varying_axis() != 2;  // 2: positions lie along the other axis
  }
  /// Does a position with this target not count?
  [[nodiscard]] PERGRAD_HD static constexpr bool ignores(std::int32_t target) noexcept {
    return target == options.ignored;
  }
  /// Every target is a class, 0 <= target < classes, or ignored.
  [[nodiscard]] static constexpr bool valid(shape output, std::span<const std::int32_t> targets) noexcept {
    for (const std::int32_t target : targets) {
      if (!ignores(target) && (target < 0 || static_cast<std::size_t>(target) >= output.e1)) return false;
    }
    return true;
  }
  /// The least and the largest target that is not ignored, for messages.
  [[nodiscard]] static constexpr std::array<std::int32_t, 2> target_limits(shape output) noexcept {
    return {0, static_cast<std::int32_t>(output.e1) - 1};
  }
  /// All positions are there.
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy) noexcept {
    return evaluate(y, targets, dy, targets.size());
  }
  /// The first `length` positions are there.
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy, std::size_t length) noexcept {
    return evaluate(y.data(), y.size(), targets.data(), dy.data(), targets.size(), length);
  }
  /// The same for `size` logits of `positions`, on host and device.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate(const Scalar* y, std::size_t size, const std::int32_t* targets,
                                                  Scalar* dy, std::size_t positions, std::size_t length) noexcept {
    const std::size_t classes = size / positions;
    const double weight = weight_of(targets, length);
    double loss = 0;
    for (std::size_t t = 0; t < positions; ++t, y += classes, dy += classes) {
      if (t >= length || ignores(targets[t])) {
        for (std::size_t i = 0; i < classes; ++i) dy[i] = 0;
        continue;
      }
      loss += evaluate_position(y, classes, targets[t], static_cast<Scalar>(weight), dy);
    }
    return loss * weight;
  }

  /// What the loss of each position that counts is multiplied by.
  [[nodiscard]] PERGRAD_HD static double weight_of(const std::int32_t* targets, std::size_t length) noexcept {
    std::size_t count = 0;
    for (std::size_t t = 0; t < length; ++t) count += ignores(targets[t]) ? 0U : 1U;
    return options.sum || count == 0 ? 1.0 : 1 / static_cast<double>(count);
  }
  /// The loss of a position that counts, and `weight` times its gradient: as of cross_entropy.
  template <class Block, class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate_together(const Block& block, const Scalar* y, int classes, int target,
                                                           Scalar weight, Scalar* dy,
                                                           Scalar (&partial)[Block::threads / 32]) noexcept {
    return cross_entropy::evaluate_together(block, y, classes, target, weight, dy, partial);
  }

  // Of logits that come a stretch of classes at a time, the same stretches twice, and are not kept in between: `see` of
  // each, `finish`, and `differentiate` of each. `Position` has what must be known of a position from one to the next:
  // host/norms/request.hpp.
  static constexpr bool takes_stretches = true;

  /// `y`: logits of classes first .. first + count - 1 at the sample's positions.
  template <class Position, class Scalar>
  static void see(std::span<Position> positions, const Scalar* y, std::size_t first, std::size_t count,
                  std::span<const std::int32_t> targets, std::size_t length) noexcept {
    for (std::size_t t = 0; t < length; ++t) {
      if (ignores(targets[t])) continue;
      Position& seen = positions[t];
      const Scalar* const here = y + t * count;
      const Scalar largest = on_host::largest_of(here, static_cast<std::ptrdiff_t>(count));
      if (largest > seen.largest) {
        seen.sum *= std::exp(static_cast<double>(seen.largest - largest));
        seen.largest = largest;
      }
      seen.sum +=
          static_cast<double>(on_host::sum_of_packs<Scalar>(static_cast<std::ptrdiff_t>(count), [&](const auto& at) {
            return math::exp_or_zero(at(here) - seen.largest);
          }));
      const std::size_t target = static_cast<std::size_t>(targets[t]) - first;
      if (target < count) seen.target = here[target];
    }
  }
  /// The loss. Positions have what `differentiate` asks for.
  template <class Position>
  [[nodiscard]] static double finish(std::span<Position> positions, std::span<const std::int32_t> targets,
                                     std::size_t length) noexcept {
    using scalar = decltype(positions[0].largest);
    const double weight = weight_of(targets.data(), length);
    double loss = 0;
    for (std::size_t t = 0; t < length; ++t) {
      if (ignores(targets[t])) continue;
      Position& seen = positions[t];
      seen.counts = true;
      seen.weight = static_cast<scalar>(weight);
      seen.share = seen.weight / static_cast<scalar>(seen.sum);
      loss += std::log(seen.sum) - (static_cast<double>(seen.target) - static_cast<double>(seen.largest));
    }
    return loss * weight;
  }
  /// Makes dL/dy of logits.
  template <class Position, class Scalar>
  static void differentiate(std::span<const Position> positions, Scalar* y, std::size_t first, std::size_t count,
                            std::span<const std::int32_t> targets) noexcept {
    for (std::size_t t = 0; t < positions.size(); ++t, y += count) {
      const Position& seen = positions[t];
      if (!seen.counts) {
        std::fill_n(y, count, Scalar{0});
        continue;
      }
      on_host::for_each_pack<Scalar>(static_cast<std::ptrdiff_t>(count), [&](std::ptrdiff_t i, const auto& lanes) {
        lanes.store(y + i, math::exp_or_zero(lanes.load(y + i) - seen.largest) * seen.share);
      });
      const std::size_t target = static_cast<std::size_t>(targets[t]) - first;
      if (target < count) y[target] -= seen.weight;
    }
  }

 private:
  /// One position's loss, and `weight` times its gradient. With vectors, as vocabularies are large.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate_position(const Scalar* y, std::size_t classes, std::int32_t target,
                                                           Scalar weight, Scalar* dy) noexcept {
    const auto count = static_cast<std::ptrdiff_t>(classes);
    const Scalar largest = on_host::largest_of(y, count);
    const Scalar sum = on_host::sum_of_packs<Scalar>(count, [&](const auto& at) {
      const auto power = math::exp_or_zero(at(y) - largest);
      at.put(dy, power);
      return power;
    });
    const Scalar share = weight / sum;
    on_host::for_each_pack<Scalar>(
        count, [&](std::ptrdiff_t i, const auto& lanes) { lanes.store(dy + i, lanes.load(dy + i) * share); });
    dy[target] -= weight;
    return std::log(static_cast<double>(sum)) - (static_cast<double>(y[target]) - static_cast<double>(largest));
  }
};

}  // namespace pergrad::inline v0_1
