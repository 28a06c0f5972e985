// SPDX-License-Identifier: Apache-2.0
// tests/layers/derived.hpp - a pool and a loss as users derive them from the library's, with functions of their own
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/layers/pools.hpp>
#include <pergrad/losses/token_cross_entropy.hpp>

namespace derived {

struct twice_the_sum : pergrad::max_pool2d<2> {
  template <class Value>
  PERGRAD_HD static Value start() {
    return Value{};
  }
  template <class Value>
  PERGRAD_HD static Value combine(Value sum, Value x) {
    return sum + x;
  }
  template <class Value, class Divisor>
  PERGRAD_HD static Value finish(Value sum, Divisor /*divisor*/) {
    return sum + sum;
  }
  template <class Value, class Divisor>
  PERGRAD_HD static Value share(Value /*x*/, Value /*y*/, Value& dy, Divisor /*divisor*/) {
    return dy + dy;
  }
};
struct twice_the_loss : pergrad::token_cross_entropy<> {
  template <class Scalar>
  static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets, std::span<Scalar> dy) {
    return evaluate(y, targets, dy, targets.size());
  }
  template <class Scalar>
  static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets, std::span<Scalar> dy,
                         std::size_t length) {
    return evaluate(y.data(), y.size(), targets.data(), dy.data(), targets.size(), length);
  }
  template <class Scalar>
  PERGRAD_HD static double evaluate(const Scalar* y, std::size_t size, const std::int32_t* targets, Scalar* dy,
                                    std::size_t positions, std::size_t length) {
    const double loss = pergrad::token_cross_entropy<>::evaluate(y, size, targets, dy, positions, length);
    for (std::size_t i = 0; i < size; ++i) dy[i] *= 2;
    return 2 * loss;
  }
};

}  // namespace derived
