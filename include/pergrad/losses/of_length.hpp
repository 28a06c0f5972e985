// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/of_length.hpp - the loss of a sample with a length of its own, by any loss: that of its positions
//
// A loss that takes the length is told it (token_cross_entropy). Any other one gets the outputs of the positions that
// are there and as many targets as it wants of so many: it is what it is of a sample that ends there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <pergrad/concepts.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

/// Can the outputs of the positions that are there be taken from others'? They lie side by side along the first axis.
template <class Loss, class Scalar>
[[nodiscard]] constexpr bool takes_lengths_of(shape output) noexcept {
  return output.varying_axis() != 2 || takes_length<Loss, Scalar> || requires { Loss::asks_nothing; };
}

/// An output of `length` positions, all of which are there.
[[nodiscard]] constexpr shape cut_to(shape output, std::size_t length) noexcept {
  output.set_varying_axis(0);
  output.e0 = length;
  return output;
}

/// The loss of a sample of which `length` of the output's positions are there, and its gradient: 0 behind them. Without
/// positions both are 0.
template <class Loss, class Scalar>
[[nodiscard]] double evaluate_of_length(const Loss& loss, shape output, std::span<const Scalar> y,
                                        std::span<const typename Loss::template target<Scalar>> targets,
                                        std::span<Scalar> dy, std::size_t length) {
  if constexpr (takes_length<Loss, Scalar>) {
    return loss.evaluate(y, targets, dy, length);
  } else {
    // Of positions along the second axis nothing is asked: takes_lengths_of.
    if (output.varying_axis() != 1 || length >= output.e0) return loss.evaluate(y, targets, dy);
    const std::size_t there = y.size() / output.e0 * length;
    std::ranges::fill(dy.subspan(there), Scalar{0});
    if (there == 0) return 0;
    const std::size_t asked = std::min<std::size_t>(Loss::target_count(cut_to(output, length)), targets.size());
    return loss.evaluate(y.first(there), targets.first(asked), dy.first(there));
  }
}

}  // namespace pergrad::inline v0_1::detail
