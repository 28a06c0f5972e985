// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/mean_squared_error.hpp - L = (1/n) sum_i (y_i - t_i)^2 over a sample's n outputs;  dL/dy_i = (2/n)(y_i
// - t_i)
#pragma once

#include <cstddef>
#include <span>

#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// Regression; a target has as many values as the output. PyTorch: `nn.MSELoss(reduction="none")`, then the mean over a
/// sample's outputs.
struct mean_squared_error {
  template <class Scalar>
  using target = Scalar;

  [[nodiscard]] static constexpr std::size_t target_count(shape output) noexcept { return output.size(); }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept { return output.size() > 0; }
  template <class Scalar>
  [[nodiscard]] static constexpr bool valid(shape /*output*/, std::span<const Scalar> /*targets*/) noexcept {
    return true;
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets,
                                       std::span<Scalar> dy) noexcept {
    const auto count = static_cast<double>(y.size());
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double difference = static_cast<double>(y[i]) - static_cast<double>(targets[i]);
      sum += difference * difference;
      dy[i] = static_cast<Scalar>(2 * difference / count);
    }
    return sum / count;
  }
};

}  // namespace pergrad::inline v0_1
