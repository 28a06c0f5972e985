// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/terms.hpp - losses that are means over a sample's outputs:  L = (1/n) sum_i l(y_i, t_i)
//
// Such a loss says `term(y, target, count)`, and `by_threads`, the class whose term it is: threads of a device share
// the outputs of a sample then. A loss that derives from it says `by_threads` again for a term of its own, or is
// evaluated by one thread.
#pragma once

#include <cstddef>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

/// What an output adds to the sum whose mean a loss is, and the loss' derivative by it.
struct loss_term {
  double loss = 0;
  double slope = 0;
};

/// What all of them have in common but their terms and which targets are valid; there is a target an output.
template <class Loss>
struct mean_over_outputs {
  static constexpr bool on_device = true;
  using by_threads = Loss;

  template <class Scalar>
  using target = Scalar;

  [[nodiscard]] static constexpr std::size_t target_count(shape output) noexcept { return output.size(); }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept { return output.size() > 0; }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets,
                                       std::span<Scalar> dy) noexcept {
    return evaluate(y.data(), y.size(), targets.data(), dy.data());
  }
  /// The same for `size` outputs, on host and device.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static double evaluate(const Scalar* y, std::size_t size, const Scalar* targets,
                                                  Scalar* dy) noexcept {
    const auto count = static_cast<double>(size);
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const loss_term term = Loss::term(static_cast<double>(y[i]), static_cast<double>(targets[i]), count);
      sum += term.loss;
      dy[i] = static_cast<Scalar>(term.slope);
    }
    return sum / count;
  }
};

}  // namespace pergrad::inline v0_1::detail
