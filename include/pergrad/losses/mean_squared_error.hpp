// SPDX-License-Identifier: Apache-2.0
// pergrad/losses/mean_squared_error.hpp - L = (1/n) sum_i (y_i - t_i)^2 over a sample's n outputs;  dL/dy_i = (2/n)(y_i
// - t_i)
#pragma once

#include <cstddef>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/losses/terms.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// Regression; a target has as many values as the output. PyTorch: `nn.MSELoss(reduction="none")`, then the mean over a
/// sample's outputs.
struct mean_squared_error : detail::mean_over_outputs<mean_squared_error> {
  using detail::mean_over_outputs<mean_squared_error>::evaluate;  // without the sums side by side below

  template <class Scalar>
  [[nodiscard]] static constexpr bool valid(shape /*output*/, std::span<const Scalar> /*targets*/) noexcept {
    return true;
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets,
                                       std::span<Scalar> dy) noexcept {
    const auto count = static_cast<double>(y.size());
    const double slope = 2 / count;
    constexpr std::size_t together = 16;  // sums that do not wait for each other; of fixed length, so they are vectors
    double sums[together]{};
    const std::size_t rest = y.size() % together;
    const std::size_t whole = y.size() - rest;
    for (std::size_t i = 0; i < whole; i += together) {
      double differences[together];
      Scalar slopes[together];
      for (std::size_t k = 0; k < together; ++k) {
        differences[k] = static_cast<double>(y[i + k]) - static_cast<double>(targets[i + k]);
      }
      for (std::size_t k = 0; k < together; ++k) sums[k] += differences[k] * differences[k];
      for (std::size_t k = 0; k < together; ++k) slopes[k] = static_cast<Scalar>(differences[k] * slope);
      for (std::size_t k = 0; k < together; ++k) dy[i + k] = slopes[k];
    }
    for (std::size_t k = 0; k < rest; ++k) {
      const double difference = static_cast<double>(y[whole + k]) - static_cast<double>(targets[whole + k]);
      sums[k] += difference * difference;
      dy[whole + k] = static_cast<Scalar>(difference * slope);
    }
    double sum = 0;
    for (const double part : sums) sum += part;
    return sum / count;
  }
  /// One output's part: losses/terms.hpp.
  [[nodiscard]] PERGRAD_HD static detail::loss_term term(double y, double target, double count) noexcept {
    const double difference = y - target;
    return {difference * difference, difference * (2 / count)};
  }
};

}  // namespace pergrad::inline v0_1
