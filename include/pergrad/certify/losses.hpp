// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/losses.hpp - ‖dL/dy‖₂ of a loss, whatever outputs and targets are
//
//   cross entropy   softmax(y) - target: two distributions are at most sqrt(2) apart, smoothed or not
//   focal           the same times q^g (1 + g (1 - q) E/q) <= 1 + g, as (1 - q) E <= q
//   tokens          of n positions sqrt(2 / n), n at least 1; of a sum sqrt(2 n)
//   binary          |sigmoid(y) - t| <= 1 of n outputs: 1 / sqrt(n)
//   binary focal    max(a, 1 - a) times (1 - q)^g ((1 - q) + g q E) <= 1 + g / e, as q E = -q log q <= 1 / e
//   Huber           D / sqrt(n)
// n may differ from sample to sample: of lengths of their own a loss has the largest bound of any number of positions.
// A squared error has none: no network knows how far away a target is. `scale<std::ratio<1, T>>` as last layer is a
// temperature: it divides everything before it by T.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include <pergrad/certify/upper.hpp>
#include <pergrad/concepts.hpp>
#include <pergrad/detail/number.hpp>
#include <pergrad/losses/binary_cross_entropy.hpp>
#include <pergrad/losses/cross_entropy.hpp>
#include <pergrad/losses/focal.hpp>
#include <pergrad/losses/huber.hpp>
#include <pergrad/losses/token_cross_entropy.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::certified {

[[nodiscard]] inline upper of_distributions(std::size_t classes, const roundoff& rounds) {
  return root_of(2) * rounds.growth(classes + 16);
}

[[nodiscard]] inline upper loss_bound(std::type_identity<cross_entropy> /*loss*/, shape out, const roundoff& rounds) {
  return of_distributions(out.size(), rounds);
}
template <detail::number Smoothing>
[[nodiscard]] upper loss_bound(std::type_identity<cross_entropy_with_label_smoothing<Smoothing>> /*loss*/, shape out,
                               const roundoff& rounds) {
  return of_distributions(out.size(), rounds);
}
template <detail::number Gamma>
[[nodiscard]] upper loss_bound(std::type_identity<focal<Gamma>> /*loss*/, shape out, const roundoff& rounds) {
  return of_distributions(out.size(), rounds) * (upper{1} + upper{Gamma.value}) * rounds.growth(4);
}
template <class... Options>
[[nodiscard]] upper loss_bound(std::type_identity<token_cross_entropy<Options...>> /*loss*/, shape out,
                               const roundoff& rounds) {
  const upper one = of_distributions(out.e1, rounds);
  return token_cross_entropy<Options...>::options.sum ? one * root_of(out.e0) : one;
}
[[nodiscard]] inline upper loss_bound(std::type_identity<binary_cross_entropy_with_logits> /*loss*/, shape out,
                                      const roundoff& rounds) {
  return sqrt(upper{1} / static_cast<double>(out.size())) * rounds.growth(4);
}
template <detail::number Gamma, detail::number Alpha>
[[nodiscard]] upper loss_bound(std::type_identity<binary_focal_with_logits<Gamma, Alpha>> /*loss*/, shape out,
                               const roundoff& rounds) {
  const upper one =
      upper{std::max(Alpha.value, 1 - Alpha.value)} * (upper{1} + upper{Gamma.value} * 0.36787944117144234);
  return one * sqrt(upper{1} / static_cast<double>(out.size())) * rounds.growth(16);
}
template <detail::number Delta>
[[nodiscard]] upper loss_bound(std::type_identity<huber<Delta>> /*loss*/, shape out, const roundoff& rounds) {
  return upper{Delta.value} * sqrt(upper{1} / static_cast<double>(out.size())) * rounds.growth(4);
}
/// A loss of one's own: `gradient_bound(output)`, a double.
template <class Loss>
requires requires(shape out) {
  { Loss::gradient_bound(out) } -> std::same_as<double>;
}
[[nodiscard]] upper loss_bound(std::type_identity<Loss> /*loss*/, shape out, const roundoff& /*rounds*/) {
  return Loss::gradient_bound(out);
}

/// Of samples with lengths of their own, too.
template <class Loss>
[[nodiscard]] upper loss_bound_of_any_length(shape out, const roundoff& rounds) {
  upper result = loss_bound(std::type_identity<Loss>{}, out, rounds);
  for (std::size_t length = 1; out.varying_axis() != 0 && length < out.e0; ++length) {
    result = std::max(result, loss_bound(std::type_identity<Loss>{}, detail::cut_to(out, length), rounds));
  }
  return result;
}

/// A loss, the library's or one's own, whose gradient can be bounded.
template <class Loss>
concept has_loss_bound = requires(shape out, const roundoff& rounds) {
  loss_bound(std::type_identity<Loss>{}, out, rounds);
};

}  // namespace pergrad::inline v0_1::certified
